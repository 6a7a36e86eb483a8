//! Records that are asked for by inode, many at once: the parents of files with several links, and
//! the targets of symbolic links.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{FsResult, Ino};

use super::{
    finding::{Counted, Finding},
    report::Candidates,
};
use crate::{
    batch::Interrupt,
    engine::{Found, List, Read},
    meta::Meta,
    schema::{Key, Row},
};

/// Records asked for at once.
const BATCH: usize = 512;
/// Directories of files that are asked for at once.
const DIRS: usize = 1 << 16;

/// What is to be asked for.
pub(super) struct Lookups<'a> {
    meta: &'a Meta,
    interrupt: &'a Interrupt,
    symlinks: Vec<Ino>,
    files: Vec<Ino>,
    /// Names of these files, by file and directory.
    names: FxHashMap<(Ino, Ino), i64>,
}

impl<'a> Lookups<'a> {
    pub(super) fn new(meta: &'a Meta, interrupt: &'a Interrupt) -> Self {
        Self { meta, interrupt, symlinks: Vec::new(), files: Vec::new(), names: FxHashMap::default() }
    }

    /// Asks for the target of a symbolic link.
    pub(super) fn symlink(&mut self, ino: Ino, candidates: &mut Candidates) -> FsResult<()> {
        self.symlinks.push(ino);
        if self.symlinks.len() < BATCH { Ok(()) } else { self.compare_symlinks(candidates) }
    }

    /// Asks for the parents of a file that has so many names in these directories.
    pub(super) fn links(
        &mut self,
        ino: Ino,
        names: Vec<(Ino, i64)>,
        candidates: &mut Candidates,
    ) -> FsResult<()> {
        self.files.push(ino);
        self.names.extend(names.into_iter().map(|(dir, names)| ((ino, dir), names)));
        if self.files.len() < BATCH && self.names.len() < DIRS {
            return Ok(());
        }
        self.compare_links(candidates)
    }

    /// Asks for what is left.
    pub(super) fn finish(mut self, candidates: &mut Candidates) -> FsResult<()> {
        self.compare_links(candidates)?;
        self.compare_symlinks(candidates)
    }

    fn read(&self, reads: &[Read]) -> FsResult<Vec<Found>> {
        if reads.is_empty() {
            return Ok(Vec::new());
        }
        self.meta.retry(self.interrupt, || self.meta.engine.read(reads))
    }

    fn compare_links(&mut self, candidates: &mut Candidates) -> FsResult<()> {
        let reads: Vec<Read> = self.files.drain(..).map(|ino| Read::All(List::Parents(ino))).collect();
        let mut stored: FxHashMap<(Ino, Ino), i64> = FxHashMap::default();
        for found in self.read(&reads)? {
            let Found::Rows(rows) = found else { continue };
            stored.extend(rows.iter().filter_map(|row| match row {
                Row::Parents(ino, dir, names) if *names != 0 => Some(((*ino, *dir), *names)),
                _ => None,
            }));
        }
        let counted = std::mem::take(&mut self.names);
        let both: FxHashSet<&(Ino, Ino)> = stored.keys().chain(counted.keys()).collect();
        for key in both {
            let count = |of: &FxHashMap<(Ino, Ino), i64>| of.get(key).copied().unwrap_or(0);
            let names = Counted { stored: count(&stored), counted: count(&counted) };
            if names.stored != names.counted {
                candidates.add(&Finding::Parents { ino: key.0, dir: key.1, names })?;
            }
        }
        Ok(())
    }

    fn compare_symlinks(&mut self, candidates: &mut Candidates) -> FsResult<()> {
        let links = std::mem::take(&mut self.symlinks);
        let reads: Vec<Read> = links.iter().map(|ino| Read::Get(Key::Symlink(*ino))).collect();
        let found = self.read(&reads)?;
        for (ino, _) in links.iter().zip(found).filter(|(_, found)| matches!(found, Found::Row(None))) {
            candidates.add(&Finding::SymlinkWithoutTarget { ino: *ino })?;
        }
        Ok(())
    }
}
