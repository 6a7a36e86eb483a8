//! The largest directories in the root, with everything below them, from the statistics of
//! directories.
//!
//! What must stay true: no record of a file is read. If a volume has too many directories, only a
//! part is counted, and the answer says so.

use rustc_hash::FxHashMap;
use serde::Serialize;
use sluice_meta::{
    Interrupt, Meta,
    engine::{Engine, Found, Read, Scan},
    schema::{DirStat, Key, Row},
};
use sluice_types::{FileType, FsError, FsResult, Ino};

/// Most directories that are counted: some 10 MB of memory.
const MOST: usize = 100_000;
/// Most entries of the root that are looked through for names.
const ENTRIES: usize = 50_000;
/// Directories that are shown.
const SHOWN: usize = 20;
/// Directories asked for at once.
const BATCH: usize = 1024;
/// Directories above each other that are followed: records that are damaged may make a circle.
const DEEPEST: usize = 4096;

/// A directory of the root, with all below it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Directory {
    pub(crate) path: String,
    pub(crate) bytes: i64,
    pub(crate) entries: i64,
    /// Directories, itself included.
    pub(crate) directories: u64,
}

/// The biggest directories, the biggest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Directories {
    pub(crate) shown: Vec<Directory>,
    /// Directories of the whole volume that were counted.
    pub(crate) counted: usize,
    /// Whether that is all of them.
    pub(crate) complete: bool,
    /// Whether the volume keeps statistics. If not, nothing is known.
    pub(crate) statistics: bool,
    /// Unix seconds when they were counted.
    pub(crate) at: i64,
}

/// Counts them; `now` in Unix seconds.
pub(crate) fn read(
    engine: &dyn Engine,
    meta: &Meta,
    now: i64,
    interrupt: &Interrupt,
) -> FsResult<Directories> {
    if !meta.env().format().dir_stats {
        return Ok(Directories { at: now, complete: true, ..Directories::default() });
    }
    let (stats, complete) = statistics(meta, interrupt)?;
    let parents = parents(engine, &stats, interrupt)?;
    let mut totals: FxHashMap<Ino, (DirStat, u64)> = FxHashMap::default();
    for (dir, stat) in &stats {
        if let Some(top) = top(*dir, &parents) {
            let (total, directories) = totals.entry(top).or_default();
            *total = total.plus(*stat);
            *directories += 1;
        }
    }
    let mut biggest: Vec<_> = totals.into_iter().collect();
    biggest.sort_by_key(|(dir, (stat, _))| (-stat.space, *dir));
    biggest.truncate(SHOWN);
    let names = names(meta, interrupt)?;
    let shown = biggest.into_iter().map(|(dir, (stat, directories))| Directory {
        path: names.get(&dir).map_or_else(|| format!("inode {dir}"), |name| format!("/{name}")),
        bytes: stat.space,
        entries: stat.inodes,
        directories,
    });
    Ok(Directories { shown: shown.collect(), counted: stats.len(), complete, statistics: true, at: now })
}

/// Statistics of directories, and whether these are all.
fn statistics(meta: &Meta, interrupt: &Interrupt) -> FsResult<(FxHashMap<Ino, DirStat>, bool)> {
    let mut stats = FxHashMap::default();
    let mut full = false;
    let read = meta.each_page(Scan::DirStats, interrupt, |rows| {
        for row in rows {
            if let Row::DirStat(dir, stat) = row
                && !dir.is_trash()
            {
                stats.insert(dir, stat);
            }
        }
        full = stats.len() >= MOST;
        // Ends the scan.
        if full { Err(FsError::Interrupted) } else { Ok(()) }
    });
    if !full {
        read?;
    }
    Ok((stats, !full))
}

/// In which directory each of them lies.
fn parents(
    engine: &dyn Engine,
    stats: &FxHashMap<Ino, DirStat>,
    interrupt: &Interrupt,
) -> FsResult<FxHashMap<Ino, Ino>> {
    let dirs: Vec<Ino> = stats.keys().copied().collect();
    let mut parents = FxHashMap::default();
    for some in dirs.chunks(BATCH) {
        if interrupt.is_set() {
            return Err(FsError::Interrupted);
        }
        let reads: Vec<Read> = some.iter().map(|dir| Read::Get(Key::Node(*dir))).collect();
        for found in engine.read(&reads).map_err(FsError::io)? {
            if let Found::Row(Some(Row::Node(dir, attr))) = found {
                parents.insert(dir, attr.parent);
            }
        }
    }
    Ok(parents)
}

/// The directory of the root that `dir` lies in, or is; `None` for the root and for what is in the
/// trash or gone.
fn top(dir: Ino, parents: &FxHashMap<Ino, Ino>) -> Option<Ino> {
    let mut at = dir;
    for _ in 0..DEEPEST {
        match *parents.get(&at)? {
            Ino::ROOT if at != Ino::ROOT => return Some(at),
            above if at == Ino::ROOT || above.is_trash() => return None,
            above => at = above,
        }
    }
    None
}

/// Names of the directories of the root.
fn names(meta: &Meta, interrupt: &Interrupt) -> FsResult<FxHashMap<Ino, String>> {
    let mut names = FxHashMap::default();
    let mut seen = 0;
    let read = meta.each_page(Scan::Entries { dir: Ino::ROOT, nodes: false }, interrupt, |rows| {
        seen += rows.len();
        for row in rows {
            if let Row::Entry(_, name, entry) = row
                && entry.kind == FileType::Dir
            {
                names.insert(entry.ino, String::from_utf8_lossy(&name).into_owned());
            }
        }
        // Ends the scan.
        if seen >= ENTRIES { Err(FsError::Interrupted) } else { Ok(()) }
    });
    if seen < ENTRIES {
        read?;
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_ends_at_the_root_in_the_trash_and_in_a_circle() {
        let hour = Ino(Ino::TRASH.0 + 1);
        let parents: FxHashMap<Ino, Ino> =
            [(1, 1), (2, 1), (3, 2), (4, 3), (5, hour.0), (6, 7), (7, 6), (8, 99)]
                .map(|(dir, above)| (Ino(dir), Ino(above)))
                .into_iter()
                .collect();
        let tops = (1..=9).map(|dir| top(Ino(dir), &parents).map(|ino| ino.0)).collect::<Vec<_>>();
        assert_eq!(tops, [None, Some(2), Some(2), Some(2), None, None, None, None, None]);
    }
}
