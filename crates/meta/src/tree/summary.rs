//! Count a tree.

use serde::Serialize;
use sluice_types::{Attr, FileType, FsResult, Ino, Name};

use super::Progress;
use crate::{batch::Interrupt, engine::Scan, meta::Meta, ops::getattr::GetAttr, schema::Row};

/// What a tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Sum of the lengths of regular files, bytes.
    pub length: u64,
    /// Bytes in 4 KiB units, 4 KiB for everything that is no file.
    pub size: u64,
    /// Everything but directories.
    pub files: u64,
    /// Directories, the root of the tree included.
    pub dirs: u64,
}

impl Summary {
    fn add(&mut self, attr: &Attr) {
        match attr.kind {
            FileType::Dir => {
                self.dirs += 1;
                self.size += 4096;
            }
            FileType::File => {
                self.files += 1;
                self.length += attr.length;
                self.size += attr.space() as u64;
            }
            _ => {
                self.files += 1;
                self.size += 4096;
            }
        }
    }

    fn merge(&mut self, other: &Self) {
        self.length += other.length;
        self.size += other.size;
        self.files += other.files;
        self.dirs += other.dirs;
    }
}

/// A node of the tree that is shown.
#[derive(Clone, Debug)]
pub struct SummaryNode {
    /// Inode.
    pub ino: Ino,
    /// Its name; none for the root.
    pub name: Option<Name>,
    /// Kind.
    pub kind: FileType,
    /// What it and all below it hold.
    pub total: Summary,
    /// The largest children, largest first, as deep and as many as asked for.
    pub children: Vec<SummaryNode>,
}

impl Meta {
    /// Counts a node and all below it, and keeps the `top` largest entries of each directory down to `depth` levels.
    pub fn summarize(
        &self,
        ino: Ino,
        depth: usize,
        top: usize,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<SummaryNode> {
        let attr = self.ask(&GetAttr(ino), interrupt)?;
        self.summarize_node(ino, None, &attr, (depth, top), interrupt, progress)
    }

    fn summarize_node(
        &self,
        ino: Ino,
        name: Option<Name>,
        attr: &Attr,
        (depth, top): (usize, usize),
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<SummaryNode> {
        let mut node =
            SummaryNode { ino, name, kind: attr.kind, total: Summary::default(), children: Vec::new() };
        node.total.add(attr);
        if !attr.is_dir() {
            return Ok(node);
        }
        self.each_page(Scan::Entries { dir: ino, nodes: true }, interrupt, |rows| {
            let mut entry = None;
            for row in rows {
                match row {
                    Row::Entry(_, name, _) => entry = Some(name),
                    Row::Node(child, attr) => {
                        let Some(name) = entry.take() else { continue };
                        let limits = (depth.saturating_sub(1), top);
                        let child =
                            self.summarize_node(child, Some(name), &attr, limits, interrupt, progress)?;
                        progress(1);
                        node.total.merge(&child.total);
                        if depth > 0 {
                            node.keep(child, top);
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        Ok(node)
    }
}

impl SummaryNode {
    /// Keeps `child` among the `top` largest.
    fn keep(&mut self, child: Self, top: usize) {
        let place = self.children.partition_point(|kept| kept.total.size >= child.total.size);
        if place < top {
            self.children.insert(place, child);
            self.children.truncate(top);
        }
    }
}
