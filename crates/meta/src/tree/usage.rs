//! The directories below a directory, and their usage, from statistics or by a walk.
//!
//! What must stay true: a directory is reported as without statistics only if it really has none.
//! The usage below a directory without statistics is not counted at one point in time.

use rustc_hash::FxHashSet;
use sluice_types::{Attr, Caller, FileType, FsError, FsResult, Ino};

use super::Progress;
use crate::{
    batch::Interrupt,
    engine::{Found, Read, Scan},
    meta::Meta,
    schema::{DirStat, Key, Row},
};

/// Directories asked for at once.
const BATCH: usize = 512;

/// The directories of a tree, its root first, and what their statistics say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dirs {
    /// The directories.
    pub(crate) dirs: Vec<Ino>,
    /// Bytes and inodes below the root; `None` if a directory has no statistics.
    pub(crate) usage: Option<(i64, i64)>,
}

/// A directory, its attributes and its statistics, as far as they are there.
type DirRecords = (Ino, Option<Attr>, Option<DirStat>);

impl Meta {
    /// Most directories of a tree that one commit compares: twice as many as it takes operations,
    /// 48 on etcd and some hundreds elsewhere.
    pub(crate) fn most_dirs(&self) -> usize {
        2 * self.engine.limits().batch
    }

    /// The directories of a tree. Reads the entries of those only that have directories in them.
    /// Memory: 16 bytes a directory.
    ///
    /// # Errors
    /// [`FsError::NotFound`] if `root` is no directory, or none any more.
    pub(crate) fn dirs_of(&self, root: Ino, interrupt: &Interrupt, progress: Progress<'_>) -> FsResult<Dirs> {
        let (mut seen, mut at) = (FxHashSet::from_iter([root]), 0);
        let mut dirs = vec![root];
        let mut usage = Some((0, 0));
        while at < dirs.len() {
            let some = dirs[at..dirs.len().min(at + BATCH)].to_vec();
            at += some.len();
            progress(some.len() as u64);
            for (dir, attr, stat) in self.dirs_with_usage(&some, interrupt)? {
                let Some(attr) = attr.filter(Attr::is_dir) else {
                    if dir == root {
                        return Err(FsError::NotFound);
                    }
                    continue;
                };
                usage =
                    usage.zip(stat).map(|((space, inodes), stat)| (space + stat.space, inodes + stat.inodes));
                if attr.nlink <= 2 {
                    continue;
                }
                self.each_page(Scan::Entries { dir, nodes: false }, interrupt, |rows| {
                    dirs.extend(rows.into_iter().filter_map(|row| match row {
                        Row::Entry(_, _, entry) if entry.kind == FileType::Dir && seen.insert(entry.ino) => {
                            Some(entry.ino)
                        }
                        _ => None,
                    }));
                    Ok(())
                })?;
            }
        }
        Ok(Dirs { dirs, usage })
    }

    /// Attributes and statistics of directories. One trip; two if a directory seems to have no
    /// statistics.
    fn dirs_with_usage(&self, dirs: &[Ino], interrupt: &Interrupt) -> FsResult<Vec<DirRecords>> {
        let mut known = self.look_at_dirs(dirs, interrupt)?;
        let mut bare: Vec<(Ino, &mut Option<Attr>)> = known
            .iter_mut()
            .filter(|(_, attr, stat)| attr.is_some_and(|attr| attr.is_dir()) && stat.is_none())
            .map(|(dir, attr, _)| (*dir, attr))
            .collect();
        if bare.is_empty() {
            return Ok(known);
        }
        // A directory that is removed loses its statistics: it may have gone between the reads of
        // the one record and at the other.
        let reads: Vec<Read> = bare.iter().map(|(dir, _)| Read::Get(Key::Node(*dir))).collect();
        let found = self.retry(interrupt, || self.engine.read(&reads))?;
        for ((_, attr), found) in bare.iter_mut().zip(&found) {
            let was_removed = attr.is_some_and(|attr| attr.parent.is_trash_hour());
            **attr = node(found).filter(|attr| was_removed || !attr.parent.is_trash_hour());
        }
        Ok(known)
    }

    /// The same, each record as it was at a moment of its own.
    fn look_at_dirs(&self, dirs: &[Ino], interrupt: &Interrupt) -> FsResult<Vec<DirRecords>> {
        let reads: Vec<Read> =
            dirs.iter().flat_map(|dir| [Key::Node(*dir), Key::DirStat(*dir)].map(Read::Get)).collect();
        let found = self.retry(interrupt, || self.engine.read(&reads))?;
        let known = dirs.iter().zip(found.chunks_exact(2)).map(|(dir, found)| {
            let stat =
                if let Found::Row(Some(Row::DirStat(_, stat))) = &found[1] { Some(*stat) } else { None };
            (*dir, node(&found[0]), stat)
        });
        Ok(known.collect())
    }

    /// Bytes and inodes below a directory, counted entry by entry.
    pub(crate) fn walked_usage(
        &self,
        root: Ino,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<(i64, i64)> {
        let (node, _) = self.summarize(root, (0, 0), &Caller::client(), interrupt, progress)?;
        let total = node.total;
        // The root itself does not count.
        Ok((total.size as i64 - 4096, (total.files + total.dirs) as i64 - 1))
    }
}

fn node(found: &Found) -> Option<Attr> {
    if let Found::Row(Some(Row::Node(_, attr))) = found { Some(*attr) } else { None }
}
