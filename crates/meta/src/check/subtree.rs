//! A check of one directory, or of all below it, without reading the rest of the volume.

use sluice_types::{FsError, FsResult, Ino, Name};

use super::{
    finding::{Counted, Finding},
    report::{Candidates, Report, Slices},
};
use crate::{
    batch::Interrupt,
    engine::{Found, Read, Scan},
    meta::Meta,
    ops::{getattr::GetAttr, rules::entry_usage},
    schema::{DirStat, Entry, Key, Row},
    sort::{Fields, SortError, SortSpace, Sorter},
    tree::Progress,
};

pub(super) fn check(
    meta: &Meta,
    dir: Ino,
    recursive: bool,
    space: &SortSpace,
    interrupt: &Interrupt,
    progress: Progress<'_>,
) -> FsResult<Report> {
    let attr = meta.read(&GetAttr(dir), interrupt)?;
    if !attr.is_dir() {
        return Err(FsError::NotDir);
    }
    let (mut candidates, mut inodes) = (Candidates::new(space), 0);
    let mut level = Level::new(space);
    level.add(dir, attr.nlink)?;
    while level.count > 0 {
        // Level by level, as many directories as one may hold.
        let (dirs, mut below) = (level.dirs.sorted()?, Level::new(space));
        let mut dirs = dirs.records()?;
        while let Some((record, _)) = dirs.next()? {
            let mut fields = Fields(record);
            let (dir, nlink) = (Ino(fields.u64()), fields.u32());
            inodes += check_dir(meta, dir, nlink, interrupt, &mut candidates, &mut below)?;
            progress(1);
        }
        level = if recursive { below } else { Level::new(space) };
    }
    Ok(Report { findings: candidates.findings(space)?, slices: Slices::none(), inodes })
}

/// Directories that are still to be checked, each with its links.
struct Level {
    dirs: Sorter,
    count: u64,
}

impl Level {
    fn new(space: &SortSpace) -> Self {
        Self { dirs: Sorter::new(space), count: 0 }
    }

    fn add(&mut self, dir: Ino, nlink: u32) -> Result<(), SortError> {
        self.count += 1;
        self.dirs.add(&[&dir.0.to_be_bytes()[..], &nlink.to_be_bytes()].concat())
    }
}

/// Checks one directory; how many inodes are in it. Directories among them go to `below`.
fn check_dir(
    meta: &Meta,
    dir: Ino,
    nlink: u32,
    interrupt: &Interrupt,
    candidates: &mut Candidates,
    below: &mut Level,
) -> FsResult<u64> {
    let mut usage = DirStat::default();
    let (mut inodes, mut subdirs) = (0, 0);
    meta.each_page(Scan::Entries { dir, nodes: true }, interrupt, |rows| {
        let mut entry = None;
        for row in rows {
            match row {
                Row::Entry(_, name, to) => missing(candidates, dir, entry.replace((to, name)))?,
                Row::Node(ino, node) => {
                    let Some((to, name)) = entry.take() else { continue };
                    inodes += 1;
                    if Name::new(&name).is_err() {
                        candidates.add(&Finding::UnusableName { dir, name: name.clone(), ino })?;
                    }
                    if to.kind != node.kind {
                        candidates.add(&Finding::Kind { dir, name, ino, kind: node.kind })?;
                    }
                    usage = usage.plus(entry_usage(&node));
                    if node.parent != dir && (node.is_dir() || node.parent != Ino::NONE) {
                        candidates.add(&Finding::Parent { ino, stored: node.parent, found: dir })?;
                    }
                    if node.is_dir() {
                        subdirs += 1;
                        // Where it says it lies it is checked: one that has a second name below
                        // itself has no end.
                        if node.parent == dir {
                            below.add(ino, node.nlink)?;
                        }
                    }
                }
                _ => {}
            }
        }
        missing(candidates, dir, entry)
    })?;
    let links = Counted { stored: i64::from(nlink), counted: 2 + subdirs };
    if links.stored != links.counted && !dir.is_trash() {
        candidates.add(&Finding::Links { ino: dir, links })?;
    }
    if meta.env().format().dir_stats && dir != Ino::TRASH {
        let read = [Read::Get(Key::DirStat(dir))];
        let stored = match meta.retry(interrupt, || meta.engine.read(&read))?.pop() {
            Some(Found::Row(Some(Row::DirStat(_, stored)))) => Some(stored),
            _ => None,
        };
        if stored != Some(usage) {
            candidates.add(&Finding::Usage { dir, stored, counted: usage })?;
        }
    }
    Ok(inodes)
}

/// Tells of an entry that no node came with.
fn missing(candidates: &mut Candidates, dir: Ino, entry: Option<(Entry, Name)>) -> FsResult<()> {
    let Some((Entry { kind, ino }, name)) = entry else { return Ok(()) };
    candidates.add(&Finding::EntryWithoutNode { dir, name, ino, kind })
}
