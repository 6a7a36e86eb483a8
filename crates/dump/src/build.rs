//! Makes records from the trees of a JSON dump. Counts are computed from the tree, not taken from
//! the dump.
//!
//! Memory: a bit for each node and slice, some 150 bytes for each file with several names, and some
//! 40 bytes for each slice to which several records refer.

use bytes::Bytes;
use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use sluice_meta::schema::{AclRule, Counter, DirStat, Entry, Quota, QuotaKey, Row};
use sluice_types::{Attr, Ino, Name, align4k};

use crate::{
    DumpError,
    json::{Event, Head, Node, Tree},
    slice_refs::SliceRefs,
};

/// A directory whose entries are being read.
struct Open {
    ino: Ino,
    attr: Attr,
    /// Usage of its entries.
    stat: DirStat,
    /// Bytes and inodes of everything below.
    below: (i64, i64),
}

/// A file with several names.
struct Linked {
    attr: Attr,
    /// How many names it has in each directory.
    names: FxHashMap<Ino, i64>,
    /// Whether its first name is missing in `names`, because its link count was one.
    unexpected: bool,
}

/// Makes records from a dump.
pub(crate) struct Builder {
    counters: FxHashMap<Counter, i64>,
    quotas: FxHashMap<QuotaKey, Quota>,
    /// Whether usage of all users and groups is kept.
    owners: bool,
    dir_stats: bool,
    open: Vec<Open>,
    acls: FxHashMap<AclRule, u32>,
    nodes: RoaringTreemap,
    linked: FxHashMap<Ino, Linked>,
    refs: SliceRefs,
}

impl Builder {
    /// For a dump with this `head`. Adds the records that follow from it to `rows`.
    pub(crate) fn new(head: Head, owners: bool, dir_stats: bool, rows: &mut Vec<Row>) -> Self {
        rows.extend(
            head.del_files.into_iter().map(|(ino, length, expire)| Row::DelFile(ino, length, expire)),
        );
        let mut counters: FxHashMap<Counter, i64> = head.counters.into_iter().collect();
        counters.insert(Counter::UsedSpace, 0);
        counters.insert(Counter::TotalInodes, 0);
        Self {
            counters,
            quotas: head.quotas.into_iter().collect(),
            owners,
            dir_stats,
            open: Vec::new(),
            acls: FxHashMap::default(),
            nodes: RoaringTreemap::new(),
            linked: FxHashMap::default(),
            refs: SliceRefs::default(),
        }
    }

    /// Adds the records that follow from `event` to `rows`.
    ///
    /// # Errors
    /// If a directory is at two places.
    pub(crate) fn event(&mut self, event: Event, rows: &mut Vec<Row>) -> Result<(), DumpError> {
        match event {
            Event::Begin(tree, node) => {
                let parent = if tree == Tree::Trash { Ino::ROOT } else { node.ino };
                self.open(parent, node, rows)
            }
            Event::Directory(name, node) => {
                let parent = self.entry(name, &node, rows);
                self.count(&node.attr);
                self.open(parent, node, rows)
            }
            Event::File(name, node) => {
                let parent = self.entry(name, &node, rows);
                self.file(parent, node, rows);
                Ok(())
            }
            Event::Close => {
                self.close(rows);
                Ok(())
            }
        }
    }

    /// Adds the records that are known only at the end to `rows`. `parent_of` returns the parent in
    /// the record of a node, which an event added.
    ///
    /// # Errors
    /// Those of `parent_of`.
    pub(crate) fn finish(
        mut self,
        parent_of: impl Fn(Ino) -> Result<Ino, DumpError>,
        rows: &mut Vec<Row>,
    ) -> Result<(), DumpError> {
        for (ino, Linked { mut attr, mut names, unexpected }) in self.linked {
            if unexpected {
                *names.entry(parent_of(ino)?).or_default() += 1;
            }
            attr.nlink = names.values().sum::<i64>() as u32;
            if attr.nlink > 1 {
                attr.parent = Ino::NONE;
                rows.extend(names.into_iter().map(|(dir, count)| Row::Parents(ino, dir, count)));
            }
            rows.push(Row::Node(ino, attr));
        }
        rows.extend(self.quotas.into_iter().map(|(key, quota)| Row::Quota(key, quota)));
        let above = |ids: &RoaringTreemap, limit: u64| {
            let below = ids.rank(limit - 1);
            below.checked_sub(1).and_then(|last| ids.select(last)).map_or(0, |last| last as i64 + 1)
        };
        let mut raise = |counter, least: i64| {
            let value = self.counters.entry(counter).or_default();
            *value = (*value).max(least);
        };
        raise(Counter::NextInode, above(&self.nodes, Ino::INTERNAL.0));
        raise(Counter::NextChunk, above(self.refs.slices(), u64::MAX));
        let trash = self.nodes.max().map_or(0, |last| last.saturating_sub(Ino::TRASH.0) as i64);
        raise(Counter::NextTrash, trash);
        raise(Counter::AclMaxId, self.acls.len() as i64);
        rows.extend(self.counters.into_iter().map(|(counter, value)| Row::Counter(counter, value)));
        rows.extend(self.refs.shared());
        Ok(())
    }

    /// Counts an entry of the open directory. Returns that directory.
    fn entry(&mut self, name: Name, node: &Node, rows: &mut Vec<Row>) -> Ino {
        let Some(dir) = self.open.last_mut() else { return Ino::NONE };
        let length = if node.attr.is_file() { node.attr.length } else { 0 };
        let space = align4k(length);
        dir.stat = dir.stat.plus(DirStat { length: length as i64, space, inodes: 1 });
        dir.below = (dir.below.0 + space, dir.below.1 + 1);
        // Directories in the trash are not counted as links: a move to the trash does not change
        // the trash.
        if node.attr.is_dir() && !dir.ino.is_trash() {
            dir.attr.nlink += 1;
        }
        rows.push(Row::Entry(dir.ino, name, Entry { kind: node.attr.kind, ino: node.ino }));
        dir.ino
    }

    /// Counts a node for the volume and its owners.
    fn count(&mut self, attr: &Attr) {
        let space = align4k(if attr.is_file() { attr.length } else { 0 });
        *self.counters.entry(Counter::UsedSpace).or_default() += space;
        *self.counters.entry(Counter::TotalInodes).or_default() += 1;
        if self.owners {
            for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
                self.quotas.entry(key).or_insert(Quota::UNLIMITED).charge(space, 1);
            }
        }
    }

    fn open(&mut self, parent: Ino, node: Node, rows: &mut Vec<Row>) -> Result<(), DumpError> {
        if !self.nodes.insert(node.ino.0) {
            return Err(DumpError::Text(format!("directory {} stands at two places", node.ino)));
        }
        let ino = node.ino;
        let mut attr = self.content(node, rows);
        attr.parent = parent;
        attr.nlink = 2;
        attr.length = 4096;
        self.open.push(Open { ino, attr, stat: DirStat::default(), below: (0, 0) });
        Ok(())
    }

    fn close(&mut self, rows: &mut Vec<Row>) {
        let Some(Open { ino, attr, stat, below: (space, inodes) }) = self.open.pop() else { return };
        rows.push(Row::Node(ino, attr));
        // A directory in the trash has none: it is removed with its name.
        let in_trash = ino == Ino::TRASH || self.open.last().is_some_and(|above| above.ino.is_trash_hour());
        if self.dir_stats && !in_trash {
            rows.push(Row::DirStat(ino, stat));
        }
        if let Some(quota) = self.quotas.get_mut(&QuotaKey::Dir(ino)) {
            quota.charge(space, inodes);
        }
        if let Some(above) = self.open.last_mut() {
            above.below = (above.below.0 + space, above.below.1 + inodes);
        }
    }

    fn file(&mut self, parent: Ino, node: Node, rows: &mut Vec<Row>) {
        let ino = node.ino;
        if let Some(linked) = self.linked.get_mut(&ino) {
            *linked.names.entry(parent).or_default() += 1;
            return;
        }
        let names = FxHashMap::from_iter([(parent, 1)]);
        if !self.nodes.insert(ino.0) {
            // Its number of links said that it has no other name. Its content is known already.
            let bare = Node { chunks: Vec::new(), xattrs: Vec::new(), symlink: Bytes::new(), ..node };
            let length = bare.attr.length;
            let mut attr = self.content(bare, rows);
            attr.length = length;
            self.linked.insert(ino, Linked { attr, names, unexpected: true });
            return;
        }
        let several = node.attr.nlink > 1;
        self.count(&node.attr);
        let mut attr = self.content(node, rows);
        attr.parent = parent;
        attr.nlink = 1;
        if several {
            self.linked.insert(ino, Linked { attr, names, unexpected: false });
        } else {
            rows.push(Row::Node(ino, attr));
        }
    }

    /// Adds records of the content of a node. Returns its attributes with the ids of its ACLs.
    fn content(&mut self, node: Node, rows: &mut Vec<Row>) -> Attr {
        let Node { ino, mut attr, symlink, xattrs, access_acl, default_acl, chunks } = node;
        if !symlink.is_empty() {
            attr.length = symlink.len() as u64;
            rows.push(Row::Symlink(ino, symlink));
        }
        rows.extend(xattrs.into_iter().map(|(name, value)| Row::Xattr(ino, name, value)));
        attr.access_acl = self.acl(access_acl, rows);
        attr.default_acl = self.acl(default_acl, rows);
        for (index, slices) in chunks {
            for slice in &slices {
                rows.extend(self.refs.refer(slice));
            }
            rows.push(Row::Chunk(ino, index, slices));
        }
        attr
    }

    fn acl(&mut self, rule: Option<AclRule>, rows: &mut Vec<Row>) -> u32 {
        let Some(rule) = rule else { return 0 };
        let next = self.acls.len() as u32 + 1;
        *self.acls.entry(rule).or_insert_with_key(|rule| {
            rows.push(Row::Acl(next, rule.clone()));
            next
        })
    }
}
