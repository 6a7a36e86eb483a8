//! What lies below a directory: its directories, and what they hold, by statistics or by a walk.

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

    /// Attributes and statistics of directories. One trip.
    fn dirs_with_usage(&self, dirs: &[Ino], interrupt: &Interrupt) -> FsResult<Vec<DirRecords>> {
        let reads: Vec<Read> =
            dirs.iter().flat_map(|dir| [Key::Node(*dir), Key::DirStat(*dir)].map(Read::Get)).collect();
        let found = self.patiently(interrupt, || self.engine.read(&reads))?;
        let known = dirs.iter().zip(found.chunks_exact(2)).map(|(dir, found)| {
            let attr = if let Found::Row(Some(Row::Node(_, attr))) = &found[0] { Some(*attr) } else { None };
            let stat =
                if let Found::Row(Some(Row::DirStat(_, stat))) = &found[1] { Some(*stat) } else { None };
            (*dir, attr, stat)
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
