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

/// A directory that is being counted.
struct Counting {
    node: SummaryNode,
    /// How many levels below it are shown.
    depth: usize,
    /// Directories in it that are not counted yet.
    dirs: Vec<(Ino, Name)>,
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
        if !attr.is_dir() {
            return Ok(SummaryNode::new(ino, None, &attr));
        }
        // The way down is a list and not the stack, which a deep tree would overflow.
        let mut above: Vec<Counting> = Vec::new();
        let mut at = self.count_dir(SummaryNode::new(ino, None, &attr), (depth, top), interrupt, progress)?;
        loop {
            if let Some((ino, name)) = at.dirs.pop() {
                let node = SummaryNode::dir(ino, Some(name));
                let below = self.count_dir(node, (at.depth.saturating_sub(1), top), interrupt, progress)?;
                above.push(std::mem::replace(&mut at, below));
            } else if let Some(parent) = above.pop() {
                let done = std::mem::replace(&mut at, parent);
                at.add(done.node, top);
                progress(1);
            } else {
                return Ok(at.node);
            }
        }
    }

    /// Counts what lies in one directory, but for the directories.
    fn count_dir(
        &self,
        node: SummaryNode,
        (depth, top): (usize, usize),
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<Counting> {
        let scan = Scan::Entries { dir: node.ino, nodes: true };
        let mut counting = Counting { node, depth, dirs: Vec::new() };
        self.each_page(scan, interrupt, |rows| {
            let mut entry = None;
            for row in rows {
                match row {
                    Row::Entry(_, name, _) => entry = Some(name),
                    Row::Node(ino, attr) => {
                        let Some(name) = entry.take() else { continue };
                        if attr.is_dir() {
                            counting.dirs.push((ino, name));
                        } else {
                            counting.add(SummaryNode::new(ino, Some(name), &attr), top);
                            progress(1);
                        }
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        Ok(counting)
    }
}

impl Counting {
    fn add(&mut self, child: SummaryNode, top: usize) {
        self.node.total.merge(&child.total);
        if self.depth > 0 {
            self.node.keep(child, top);
        }
    }
}

impl SummaryNode {
    fn new(ino: Ino, name: Option<Name>, attr: &Attr) -> Self {
        let mut total = Summary::default();
        total.add(attr);
        Self { ino, name, kind: attr.kind, total, children: Vec::new() }
    }

    fn dir(ino: Ino, name: Option<Name>) -> Self {
        let total = Summary { dirs: 1, size: 4096, ..Summary::default() };
        Self { ino, name, kind: FileType::Dir, total, children: Vec::new() }
    }

    /// Keeps `child` among the `top` largest.
    fn keep(&mut self, child: Self, top: usize) {
        let place = self.children.partition_point(|kept| kept.total.size >= child.total.size);
        if place < top {
            self.children.insert(place, child);
            self.children.truncate(top);
        }
    }
}
