//! All records of a store, and the invariants that must hold after any sequence of operations.

use std::collections::{BTreeMap, BTreeSet};

use sluice_meta::{
    engine::{Engine, Found, List, Read, Scan},
    schema::{Counter, DirStat, Key, Quota, QuotaKey, Row, VolumeFormat},
};
use sluice_types::{Attr, Ino, align4k};

/// All records of files, directories and their content.
pub struct State {
    /// By key.
    pub rows: BTreeMap<Key, Row>,
}

const SCANS: [Scan; 9] = [
    Scan::Nodes,
    Scan::AllEntries,
    Scan::Chunks,
    Scan::SliceRefs,
    Scan::DelFiles,
    Scan::Sustained,
    Scan::DirStats,
    Scan::Detached,
    Scan::Quotas,
];

impl State {
    /// Reads a store that nobody changes meanwhile.
    pub fn of(engine: &dyn Engine) -> Self {
        let mut state = Self { rows: BTreeMap::new() };
        for scan in SCANS {
            let mut from = None;
            loop {
                let page = engine.scan(scan, from.as_ref(), 1000).expect("scan");
                state.add(page.rows);
                from = page.next;
                if from.is_none() {
                    break;
                }
            }
        }
        let mut reads: Vec<Read> =
            [Counter::UsedSpace, Counter::TotalInodes].map(|counter| Read::Get(Key::Counter(counter))).into();
        reads.push(Read::Get(Key::Setting));
        for (ino, _) in state.nodes() {
            reads.extend([List::Parents(ino), List::Xattrs(ino)].map(Read::All));
        }
        for reads in reads.chunks(200) {
            for found in engine.read(reads).expect("read") {
                match found {
                    Found::Row(row) => state.add(row.into_iter().collect()),
                    Found::Rows(rows) => state.add(rows),
                    Found::Names(_) => {}
                }
            }
        }
        state
    }

    fn add(&mut self, rows: Vec<Row>) {
        self.rows.extend(rows.into_iter().map(|row| (row.key(), row)));
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<(Ino, Attr)> {
        let node = |row: &Row| if let Row::Node(ino, attr) = row { Some((*ino, *attr)) } else { None };
        self.rows.values().filter_map(node).collect()
    }

    /// A node.
    pub fn node(&self, ino: Ino) -> Option<Attr> {
        match self.rows.get(&Key::Node(ino)) {
            Some(Row::Node(_, attr)) => Some(*attr),
            _ => None,
        }
    }

    fn counter(&self, counter: Counter) -> i64 {
        match self.rows.get(&Key::Counter(counter)) {
            Some(Row::Counter(_, value)) => *value,
            _ => 0,
        }
    }

    /// What is on record of a user's or group's usage.
    pub fn quota(&self, key: QuotaKey) -> Option<Quota> {
        match self.rows.get(&Key::Quota(key)) {
            Some(Row::Quota(_, quota)) => Some(*quota),
            _ => None,
        }
    }

    /// Users and groups are on record with what they own, on a volume that keeps that, and else not
    /// at all.
    pub fn assert_owners(&self, context: &str) {
        let kept = matches!(self.rows.get(&Key::Setting), Some(Row::Setting(json))
                if VolumeFormat::parse(json).expect("settings").user_group_quota);
        let mut owned: BTreeMap<QuotaKey, (i64, i64)> = BTreeMap::new();
        for (ino, attr) in self.nodes() {
            // The root and the root of the trash belong to the volume.
            if kept && ino != Ino::ROOT && ino != Ino::TRASH {
                for key in [QuotaKey::User(attr.uid), QuotaKey::Group(attr.gid)] {
                    let (space, inodes) = owned.entry(key).or_default();
                    *space += attr.space();
                    *inodes += 1;
                }
            }
        }
        for row in self.rows.values() {
            if let Row::Quota(key @ (QuotaKey::User(_) | QuotaKey::Group(_)), quota) = row {
                assert!(kept, "{key:?} is on record: {context}");
                let counted = owned.remove(key).unwrap_or_default();
                assert_eq!((quota.used_space, quota.used_inodes), counted, "usage of {key:?}: {context}");
            }
        }
        assert_eq!(owned, BTreeMap::new(), "not on record: {context}");
    }

    /// Directories with quotas are on record with what lies below them.
    pub fn assert_quotas(&self, context: &str) {
        let mut children = BTreeMap::<Ino, Vec<Ino>>::new();
        for row in self.rows.values() {
            if let Row::Entry(dir, _, entry) = row {
                children.entry(*dir).or_default().push(entry.ino);
            }
        }
        for row in self.rows.values() {
            let Row::Quota(QuotaKey::Dir(root), quota) = row else { continue };
            assert!(self.node(*root).is_some(), "a quota of {root}, which is gone: {context}");
            let (mut space, mut inodes, mut dirs) = (0, 0, vec![*root]);
            while let Some(dir) = dirs.pop() {
                for ino in children.get(&dir).into_iter().flatten() {
                    let attr = self.node(*ino).expect("a node");
                    space += attr.space();
                    inodes += 1;
                    dirs.extend(attr.is_dir().then_some(*ino));
                }
            }
            assert_eq!((quota.used_space, quota.used_inodes), (space, inodes), "quota of {root}: {context}");
        }
    }

    /// Every node is reached from the root exactly as often as its links say; parents, counters,
    /// directory statistics and the usage of users and groups agree.
    pub fn assert_tree(&self, context: &str) {
        let (mut names, mut children) = (BTreeMap::<Ino, Vec<Ino>>::new(), BTreeMap::<Ino, Vec<Ino>>::new());
        for row in self.rows.values() {
            if let Row::Entry(dir, name, entry) = row {
                assert!(self.node(entry.ino).is_some(), "{dir}/{name:?} names nothing: {context}");
                names.entry(entry.ino).or_default().push(*dir);
                children.entry(*dir).or_default().push(entry.ino);
            }
        }
        let (mut reached, mut queue) = (BTreeSet::new(), vec![Ino::ROOT, Ino::TRASH]);
        while let Some(ino) = queue.pop() {
            if reached.insert(ino) {
                queue.extend(children.get(&ino).into_iter().flatten());
            }
        }
        let (mut inodes, mut space) = (0, 0);
        for (ino, attr) in self.nodes() {
            assert!(reached.contains(&ino), "{ino} is not in the tree: {context}");
            if ino != Ino::ROOT && ino != Ino::TRASH {
                inodes += 1;
                space += attr.space();
            }
            let parents = names.get(&ino).map(Vec::as_slice).unwrap_or_default();
            if attr.is_dir() {
                let below: Vec<Attr> =
                    children.get(&ino).into_iter().flatten().filter_map(|ino| self.node(*ino)).collect();
                self.assert_dir(ino, &attr, parents, &below, context);
            } else {
                self.assert_file(ino, &attr, parents, context);
            }
        }
        let stored = (self.counter(Counter::TotalInodes), self.counter(Counter::UsedSpace));
        assert_eq!(stored, (inodes, space), "totalInodes and usedSpace: {context}");
        self.assert_owners(context);
    }

    fn assert_dir(&self, ino: Ino, attr: &Attr, parents: &[Ino], below: &[Attr], context: &str) {
        let dirs = if ino.is_trash() { 0 } else { below.iter().filter(|attr| attr.is_dir()).count() };
        assert_eq!(attr.nlink as usize, 2 + dirs, "nlink of directory {ino}: {context}");
        let root = ino == Ino::ROOT || ino == Ino::TRASH;
        assert!(root || parents == [attr.parent], "parent of directory {ino}: {context}");
        if let Some(Row::DirStat(_, stat)) = self.rows.get(&Key::DirStat(ino)) {
            let length = |attr: &Attr| if attr.is_file() { attr.length } else { 0 };
            let wanted = DirStat {
                length: below.iter().map(|attr| length(attr) as i64).sum(),
                space: below.iter().map(|attr| align4k(length(attr))).sum(),
                inodes: below.len() as i64,
            };
            assert_eq!(*stat, wanted, "statistics of directory {ino}: {context}");
        }
    }

    fn assert_file(&self, ino: Ino, attr: &Attr, parents: &[Ino], context: &str) {
        assert_eq!(attr.nlink as usize, parents.len(), "nlink of {ino}: {context}");
        if attr.parent != Ino::NONE {
            assert_eq!(parents, [attr.parent], "parent of {ino}: {context}");
            return;
        }
        for dir in parents {
            let count = parents.iter().filter(|other| *other == dir).count() as i64;
            let stored = self.rows.get(&Key::Parents(ino, *dir));
            assert_eq!(stored, Some(&Row::Parents(ino, *dir, count)), "parents of {ino}: {context}");
        }
    }

    /// Every slice is counted as often as chunks refer to it, and every chunk belongs to a file, or
    /// to one on record as deleted.
    pub fn assert_slices(&self, context: &str) {
        let mut shown: BTreeMap<(u64, u32), i64> = BTreeMap::new();
        let deleted: BTreeSet<Ino> = self
            .rows
            .keys()
            .filter_map(|key| if let Key::DelFile(ino, _) = key { Some(*ino) } else { None })
            .collect();
        for row in self.rows.values() {
            let Row::Chunk(ino, index, slices) = row else { continue };
            let owned = self.node(*ino).is_some() || deleted.contains(ino);
            assert!(owned, "chunk {index} of {ino} belongs to nothing: {context}");
            for slice in slices.iter().filter(|slice| !slice.is_hole()) {
                *shown.entry((slice.id, slice.size)).or_default() += 1;
            }
        }
        for (&(id, size), &count) in &shown {
            // A slice without a record has one reference.
            let stored = match self.rows.get(&Key::SliceRef(id, size)) {
                Some(Row::SliceRef(_, _, refs)) => *refs,
                _ => 1,
            };
            assert_eq!(stored, count, "references to slice {id}: {context}");
        }
        for row in self.rows.values() {
            if let Row::SliceRef(id, size, refs) = row {
                let leaked = *refs > 0 && !shown.contains_key(&(*id, *size));
                assert!(!leaked, "slice {id} is shown nowhere: {context}");
            }
        }
    }
}
