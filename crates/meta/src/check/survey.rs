//! A survey: counts everything in one scan of all records.

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{Attr, FileType, FsResult, Ino, Name, align4k};

use super::finding::Finding;
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    schema::{DirStat, Entry, Row},
    tree::Progress,
};

/// A node, and what was seen of it.
pub(super) struct Seen {
    pub(super) kind: FileType,
    pub(super) nlink: u32,
    pub(super) parent: Ino,
    pub(super) length: u64,
    pub(super) space: i64,
    /// Entries that name it.
    pub(super) names: u32,
    /// Directory of one of them.
    pub(super) named_in: Ino,
    /// Directories in it.
    pub(super) subdirs: u32,
}

/// What was seen.
#[derive(Default)]
pub(super) struct Survey {
    pub(super) nodes: FxHashMap<Ino, Seen>,
    /// Names of several-times linked files by file and directory.
    pub(super) links: FxHashMap<(Ino, Ino), i64>,
    /// What directories hold.
    pub(super) usage: FxHashMap<Ino, DirStat>,
    /// Nodes that need no name.
    pub(super) nameless: FxHashSet<Ino>,
    /// How often each slice is used.
    pub(super) slices: FxHashMap<(u64, u32), u32>,
    /// What was wrong at first sight.
    pub(super) findings: Vec<Finding>,
}

impl Survey {
    /// Takes a survey.
    pub(super) fn take(meta: &Meta, interrupt: &Interrupt, progress: Progress<'_>) -> FsResult<Self> {
        let mut survey = Self::default();
        let mut each = |scan: Scan, see: &mut dyn FnMut(&mut Self, Row)| {
            meta.each_readable_page(scan, interrupt, |page| {
                progress((page.rows.len() + page.damaged.len()) as u64);
                for row in page.rows {
                    see(&mut survey, row);
                }
                survey.findings.extend(page.damaged.into_iter().map(Finding::unreadable));
                Ok(())
            })
        };
        // What is made or removed between two scans looks wrong once, and is not found again by the
        // second survey.
        each(Scan::Nodes, &mut |survey, row| {
            if let Row::Node(ino, attr) = row {
                survey.node(ino, &attr);
            }
        })?;
        each(Scan::AllEntries, &mut |survey, row| {
            if let Row::Entry(dir, name, entry) = row {
                survey.entry(dir, name, entry);
            }
        })?;
        each(Scan::Sustained, &mut |survey, row| {
            if let Row::Sustained(_, ino) = row {
                survey.nameless.insert(ino);
            }
        })?;
        each(Scan::Detached, &mut |survey, row| {
            if let Row::Detached(ino, _) = row {
                survey.nameless.insert(ino);
            }
        })?;
        let mut deleted = FxHashSet::default();
        each(Scan::DelFiles, &mut |_, row| {
            if let Row::DelFile(ino, ..) = row {
                deleted.insert(ino);
            }
        })?;
        each(Scan::Chunks, &mut |survey, row| {
            if let Row::Chunk(ino, index, records) = row {
                if !survey.nodes.contains_key(&ino) && !deleted.contains(&ino) {
                    survey.findings.push(Finding::ChunkWithoutFile { ino, index });
                }
                let slices = records.iter().filter(|record| !record.is_hole());
                slices.for_each(|slice| survey.slice(slice.id, slice.size));
            }
        })?;
        each(Scan::DelSlices, &mut |survey, row| {
            if let Row::DelSlices(_, _, slices) = row {
                for (id, size) in slices {
                    survey.slice(id, size);
                }
            }
        })?;
        Ok(survey)
    }

    fn node(&mut self, ino: Ino, attr: &Attr) {
        let Attr { kind, nlink, parent, length, .. } = *attr;
        let seen = Seen {
            kind,
            nlink,
            parent,
            length,
            space: attr.space(),
            names: 0,
            named_in: Ino::NONE,
            subdirs: 0,
        };
        self.nodes.insert(ino, seen);
    }

    fn entry(&mut self, dir: Ino, name: Name, entry: Entry) {
        let Entry { kind, ino } = entry;
        if self.nodes.get(&dir).is_none_or(|dir| dir.kind != FileType::Dir) {
            self.findings.push(Finding::EntryWithoutDir { dir, name: name.clone(), ino });
        }
        let usage = self.usage.entry(dir).or_default();
        usage.inodes += 1;
        let Some(node) = self.nodes.get_mut(&ino) else {
            return self.findings.push(Finding::EntryWithoutNode { dir, name, ino, kind });
        };
        if node.kind != kind {
            self.findings.push(Finding::Kind { dir, name, ino, kind: node.kind });
        }
        node.names += 1;
        node.named_in = dir;
        let length = if node.kind == FileType::File { node.length } else { 0 };
        usage.length += length as i64;
        usage.space += align4k(length);
        if node.kind == FileType::Dir {
            if let Some(dir) = self.nodes.get_mut(&dir) {
                dir.subdirs += 1;
            }
        } else if node.parent == Ino::NONE {
            *self.links.entry((ino, dir)).or_default() += 1;
        }
    }

    fn slice(&mut self, id: u64, size: u32) {
        *self.slices.entry((id, size)).or_default() += 1;
    }
}
