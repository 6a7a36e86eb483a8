//! Compares each inode with its entries and chunks, and counts the content of directories.
//!
//! What must stay true: the memory use is that of the sorts, of the parents of one inode, and of
//! the inodes that are read at once.

use sluice_types::{FileType, FsError, FsResult, Ino, Name, align4k};

use super::{
    cycles::CycleFinder,
    dirs::{Dirs, Held},
    finding::{Counted, Finding},
    lookups::Lookups,
    report::Candidates,
    survey::{Fact, Node, fact_of},
};
use crate::{
    batch::Interrupt,
    meta::Meta,
    sort::{SortSpace, Sorted},
};

/// What all nodes come to.
#[derive(Default)]
pub(super) struct Totals {
    /// Nodes.
    pub(super) inodes: u64,
    /// Bytes that are accounted for.
    pub(super) space: i64,
    /// Inodes that are accounted for.
    pub(super) accounted: i64,
    /// The highest inode outside the trash.
    pub(super) last: u64,
    /// Whether there is a root.
    has_root: bool,
}

/// What was found besides faults.
pub(super) struct Found {
    pub(super) totals: Totals,
    pub(super) dirs: Dirs,
    pub(super) cycles: CycleFinder,
}

/// Compares all facts of a survey, which come sorted by inode.
pub(super) fn compare(
    facts: &Sorted,
    meta: &Meta,
    space: &SortSpace,
    candidates: &mut Candidates,
    interrupt: &Interrupt,
) -> FsResult<Found> {
    let found = Found { totals: Totals::default(), dirs: Dirs::new(space), cycles: CycleFinder::new(space) };
    let mut pass = Pass { found, lookups: Lookups::new(meta, interrupt), candidates };
    let mut facts = facts.records()?;
    let mut of = Seen::default();
    while let Some((record, _)) = facts.next()? {
        let (ino, fact) =
            fact_of(record).ok_or_else(|| FsError::io("a record cannot be read back from the disk"))?;
        if ino != of.ino {
            pass.end(std::mem::take(&mut of))?;
            of.ino = ino;
        }
        pass.see(&mut of, fact)?;
    }
    pass.end(of)?;
    let Pass { mut found, lookups, candidates } = pass;
    if !found.totals.has_root {
        candidates.add(&Finding::NoRoot)?;
    }
    lookups.finish(candidates)?;
    found.dirs.complete()?;
    Ok(found)
}

/// What was seen of one inode.
#[derive(Default)]
struct Seen {
    ino: Ino,
    node: Option<Node>,
    /// Entries that name it.
    names: u32,
    /// Directory of one of them.
    named_in: Ino,
    nameless: bool,
    deleted: bool,
    /// Names of a several-times linked file, by directory.
    links: Vec<(Ino, i64)>,
}

struct Pass<'a> {
    found: Found,
    lookups: Lookups<'a>,
    candidates: &'a mut Candidates,
}

impl Pass<'_> {
    fn see(&mut self, of: &mut Seen, fact: Fact<'_>) -> FsResult<()> {
        match fact {
            Fact::Node(node) => of.node = Some(node),
            Fact::Entry { dir, kind, name } => self.entry(of, dir, kind, name)?,
            Fact::Nameless => of.nameless = true,
            Fact::Deleted => of.deleted = true,
            Fact::Chunk(index) if of.node.is_none() && !of.deleted => {
                self.candidates.add(&Finding::ChunkWithoutFile { ino: of.ino, index })?;
            }
            Fact::Chunk(_) => {}
        }
        Ok(())
    }

    fn entry(&mut self, of: &mut Seen, dir: Ino, kind: u8, bytes: &[u8]) -> FsResult<()> {
        let (ino, name) = (of.ino, || Name::stored(bytes));
        let kind = FileType::from_code(kind)
            .ok_or_else(|| FsError::io("an entry cannot be read back from the disk"))?;
        let Some(node) = of.node else {
            self.found.dirs.hold(dir, Held::default())?;
            return self.candidates.add(&Finding::EntryWithoutNode { dir, name: name(), ino, kind });
        };
        if node.kind != kind {
            self.candidates.add(&Finding::Kind { dir, name: name(), ino, kind: node.kind })?;
        }
        if Name::new(bytes).is_err() {
            self.candidates.add(&Finding::UnusableName { dir, name: name(), ino })?;
        }
        of.names += 1;
        of.named_in = dir;
        let is_dir = node.kind == FileType::Dir;
        let length = if node.kind == FileType::File { node.length } else { 0 };
        let held = Held { subdirs: i64::from(is_dir), length: length as i64, space: align4k(length) };
        self.found.dirs.hold(dir, held)?;
        if !is_dir && node.parent == Ino::NONE {
            match of.links.last_mut() {
                Some((last, names)) if *last == dir => *names += 1,
                _ => of.links.push((dir, 1)),
            }
        }
        Ok(())
    }

    /// All of an inode has been seen.
    fn end(&mut self, of: Seen) -> FsResult<()> {
        let (Some(node), Seen { ino, names, named_in, .. }) = (of.node, &of) else { return Ok(()) };
        let (ino, names, named_in) = (*ino, *names, *named_in);
        let totals = &mut self.found.totals;
        totals.inodes += 1;
        if !matches!(ino, Ino::ROOT | Ino::TRASH) {
            totals.space += align4k(node.length);
            totals.accounted += 1;
        }
        totals.has_root |= ino == Ino::ROOT;
        if !ino.is_trash() {
            totals.last = totals.last.max(ino.0);
        }
        let is_dir = node.kind == FileType::Dir;
        if is_dir {
            self.found.dirs.dir(ino, node.nlink, names > 0, named_in.is_trash_hour())?;
        }
        if node.kind == FileType::Symlink {
            self.lookups.symlink(ino, self.candidates)?;
        }
        // Nobody keeps the links of the root and of the directories of the trash exactly.
        if ino == Ino::ROOT || ino.is_trash() {
            return Ok(());
        }
        if names == 0 {
            if !of.nameless {
                self.candidates.add(&Finding::NodeWithoutEntry { ino, kind: node.kind })?;
            }
            return Ok(());
        }
        if is_dir {
            self.found.cycles.add(ino, named_in)?;
            if names > 1 {
                self.candidates.add(&Finding::SeveralNames { ino, names })?;
            }
        } else if node.nlink != names {
            let links = Counted { stored: i64::from(node.nlink), counted: i64::from(names) };
            self.candidates.add(&Finding::Links { ino, links })?;
        }
        let one = names == 1 && (is_dir || node.parent != Ino::NONE);
        if one && node.parent != named_in {
            self.candidates.add(&Finding::Parent { ino, stored: node.parent, found: named_in })?;
        }
        if !is_dir && node.parent == Ino::NONE {
            self.lookups.links(ino, of.links, self.candidates)?;
        }
        Ok(())
    }
}
