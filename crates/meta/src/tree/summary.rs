//! Counts a tree.
//!
//! What must stay true: the result contains nothing of a directory that the caller may not list.

use serde::Serialize;
use sluice_types::{Access, Attr, Caller, FileType, FsResult, Ino, Name};

use super::Progress;
use crate::{batch::Interrupt, engine::Scan, meta::Meta, ops::getattr::GetAttr, schema::Row};

/// Names of directories that were left out which are kept.
const MOST_NAMED: usize = 100;
/// What it takes to list a directory and to look at what is in it.
const LIST: Access = Access(Access::READ.0 | Access::EXEC.0);

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

/// Directories that a walk left out, since its caller may not list them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct Denied {
    /// How many.
    pub count: u64,
    /// Paths of the first hundred, below the start of the walk.
    pub paths: Vec<String>,
}

impl Denied {
    /// Counts one more, and keeps its path if it is one of the first.
    pub fn add(&mut self, path: impl FnOnce() -> String) {
        self.count += 1;
        if self.paths.len() < MOST_NAMED {
            self.paths.push(path());
        }
    }
}

/// A count under way.
struct Walk<'a> {
    meta: &'a Meta,
    top: usize,
    caller: &'a Caller,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
    denied: Denied,
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
    /// Counts a node and all below it, and keeps the `top` largest entries of each directory down
    /// to `depth` levels. Of directories that `caller` may not list only they themselves count;
    /// they are told beside the sum.
    ///
    /// # Errors
    /// [`FsError::Access`](sluice_types::FsError) if `ino` is such a directory itself.
    pub fn summarize(
        &self,
        ino: Ino,
        (depth, top): (usize, usize),
        caller: &Caller,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<(SummaryNode, Denied)> {
        let attr = self.read(&GetAttr(ino), interrupt)?;
        let node = SummaryNode::new(ino, None, &attr);
        if !attr.is_dir() {
            return Ok((node, Denied::default()));
        }
        self.check_access(ino, &attr, caller, LIST, interrupt)?;
        let denied = Denied::default();
        Walk { meta: self, top, caller, interrupt, progress, denied }.count(node, depth)
    }
}

impl Walk<'_> {
    fn count(mut self, node: SummaryNode, depth: usize) -> FsResult<(SummaryNode, Denied)> {
        // The way down is a list and not the stack, which a deep tree would overflow.
        let mut above: Vec<Counting> = Vec::new();
        let mut at = self.count_dir(&above, node, depth)?;
        loop {
            if let Some((ino, name)) = at.dirs.pop() {
                let (node, depth) = (SummaryNode::dir(ino, Some(name)), at.depth.saturating_sub(1));
                above.push(at);
                at = self.count_dir(&above, node, depth)?;
            } else if let Some(parent) = above.pop() {
                let done = std::mem::replace(&mut at, parent);
                at.add(done.node, self.top);
                (self.progress)(1);
            } else {
                return Ok((at.node, self.denied));
            }
        }
    }

    /// Counts what lies in one directory, but for the directories that may be listed.
    fn count_dir(&mut self, above: &[Counting], node: SummaryNode, depth: usize) -> FsResult<Counting> {
        let scan = Scan::Entries { dir: node.ino, nodes: true };
        let mut counting = Counting { node, depth, dirs: Vec::new() };
        let Self { meta, top, caller, interrupt, progress, denied } = self;
        meta.each_page(scan, interrupt, |rows| {
            let mut entry = None;
            for row in rows {
                match row {
                    Row::Entry(_, name, _) => entry = Some(name),
                    Row::Node(ino, attr) => {
                        let Some(name) = entry.take() else { continue };
                        if attr.is_dir() {
                            if meta.may_access(ino, &attr, caller, LIST, interrupt)? {
                                counting.dirs.push((ino, name));
                                continue;
                            }
                            denied.add(|| path(above, &counting.node, &name));
                        }
                        counting.add(SummaryNode::new(ino, Some(name), &attr), *top);
                        progress(1);
                    }
                    _ => {}
                }
            }
            Ok(())
        })?;
        Ok(counting)
    }
}

/// The path of an entry of `dir` below the start of the walk.
fn path(above: &[Counting], dir: &SummaryNode, name: &Name) -> String {
    let dirs = above.iter().map(|counting| &counting.node).chain([dir]);
    let names = dirs.filter_map(|node| node.name.as_ref()).chain([name]);
    names.map(Name::to_string).collect::<Vec<_>>().join("/")
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
