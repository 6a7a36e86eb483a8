//! Compares all records and objects of a volume with each other.
//!
//! What must stay true: it reads the engine directly and has its own code for the rules of the
//! format. So no cache and no operation can hide a fault.

use std::collections::{BTreeMap, BTreeSet};

use sluice_data::Layout;
use sluice_meta::{
    engine::{Engine, Found, Read, Scan},
    schema::{Counter, Key, Row},
};
use sluice_types::{Attr, FileType, Ino, Slice};

use crate::volume::{Volume, engine};

/// A volume's records.
pub struct Records {
    nodes: BTreeMap<Ino, Attr>,
    /// Entries by directory and name.
    pub entries: BTreeMap<(Ino, Vec<u8>), Ino>,
    chunks: BTreeMap<(Ino, u32), Vec<Slice>>,
    refs: BTreeMap<(u64, u32), i64>,
    stats: BTreeMap<Ino, (i64, i64)>,
    /// Files without a name that a session has open.
    pub sustained: Vec<(u64, Ino)>,
    /// Files whose chunks wait to be deleted.
    pub deleted: Vec<Ino>,
    /// Sessions.
    pub sessions: Vec<u64>,
    used: (i64, i64),
}

/// All rows of a scan.
pub fn scan(engine: &dyn Engine, scan: Scan) -> Vec<Row> {
    let (mut rows, mut from) = (Vec::new(), None);
    loop {
        let page = engine.scan(scan, from.as_ref(), 500).unwrap();
        rows.extend(page.rows);
        match page.next {
            Some(next) => from = Some(next),
            None => return rows,
        }
    }
}

fn counter(engine: &dyn Engine, counter: Counter) -> i64 {
    match engine.read(&[Read::Get(Key::Counter(counter))]).unwrap().pop() {
        Some(Found::Row(Some(Row::Counter(_, value)))) => value,
        _ => 0,
    }
}

impl Records {
    /// Reads them all.
    pub fn load(engine: &dyn Engine) -> Self {
        let used = (counter(engine, Counter::UsedSpace), counter(engine, Counter::TotalInodes));
        let mut records = Self {
            nodes: BTreeMap::new(),
            entries: BTreeMap::new(),
            chunks: BTreeMap::new(),
            refs: BTreeMap::new(),
            stats: BTreeMap::new(),
            sustained: Vec::new(),
            deleted: Vec::new(),
            sessions: Vec::new(),
            used,
        };
        let scans = [
            Scan::Nodes,
            Scan::AllEntries,
            Scan::Chunks,
            Scan::SliceRefs,
            Scan::DirStats,
            Scan::Sustained,
            Scan::DelFiles,
            Scan::Sessions,
        ];
        for row in scans.into_iter().flat_map(|kind| scan(engine, kind)) {
            records.add(row);
        }
        records
    }

    fn add(&mut self, row: Row) {
        match row {
            Row::Node(ino, attr) => drop(self.nodes.insert(ino, attr)),
            Row::Entry(dir, name, entry) => drop(self.entries.insert((dir, name.to_vec()), entry.ino)),
            Row::Chunk(ino, index, slices) => drop(self.chunks.insert((ino, index), slices)),
            Row::SliceRef(id, size, refs) => drop(self.refs.insert((id, size), refs)),
            Row::DirStat(ino, stat) => drop(self.stats.insert(ino, (stat.space, stat.inodes))),
            Row::Sustained(sid, ino) => self.sustained.push((sid, ino)),
            Row::DelFile(ino, ..) => self.deleted.push(ino),
            Row::Session(sid, _) => self.sessions.push(sid),
            _ => {}
        }
    }

    /// What is wrong with the tree: links, parents, nodes that nobody names, counters, statistics.
    pub fn faults_of_tree(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut names: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
        let mut expected_stats: BTreeMap<Ino, (i64, i64)> = BTreeMap::new();
        for ((dir, name), ino) in &self.entries {
            names.entry(*ino).or_default().push(*dir);
            match self.nodes.get(ino) {
                None => {
                    faults.push(format!("{} in {dir} names {ino}, which is missing", name.escape_ascii()));
                }
                Some(attr) => {
                    let stat = expected_stats.entry(*dir).or_default();
                    stat.0 += if attr.is_file() { attr.space() } else { 4096 };
                    stat.1 += 1;
                }
            }
        }
        for (ino, attr) in &self.nodes {
            let parents = names.get(ino).map_or(&[][..], Vec::as_slice);
            let links = if attr.is_dir() {
                let is_dir = |ino: &&Ino| self.nodes.get(ino).is_some_and(Attr::is_dir);
                let children = self.entries.range((*ino, Vec::new())..(Ino(ino.0 + 1), Vec::new()));
                2 + children.map(|(_, child)| child).filter(is_dir).count()
            } else {
                parents.len()
            };
            if attr.nlink as usize != links {
                faults.push(format!("{ino} has nlink {} and {links} links", attr.nlink));
            }
            let held = self.sustained.iter().any(|(_, open)| open == ino);
            if parents.is_empty() && *ino != Ino::ROOT && !held {
                faults.push(format!("{ino} has no name"));
            }
            if attr.is_dir() && *ino != Ino::ROOT && parents != [attr.parent] {
                faults.push(format!("directory {ino} says it is in {}, is in {parents:?}", attr.parent));
            }
            if attr.is_dir() {
                let (stored, real) =
                    (self.stats.get(ino), expected_stats.get(ino).copied().unwrap_or_default());
                if stored.is_some_and(|stored| *stored != real) {
                    faults.push(format!("usage of directory {ino} is {real:?}, recorded {stored:?}"));
                }
            }
        }
        let below_root = self.nodes.iter().filter(|(ino, _)| **ino != Ino::ROOT);
        let space = below_root.clone().map(|(_, attr)| attr.space()).sum::<i64>();
        let real = (space, below_root.count() as i64);
        if self.used != real {
            faults.push(format!("usedSpace and totalInodes are {:?}, should be {real:?}", self.used));
        }
        faults
    }

    /// What is wrong with the blocks: records whose objects are missing, objects and references
    /// that nothing shows.
    pub fn faults_of_blocks(&self, layout: Layout, keys: &[String]) -> (Vec<String>, Vec<String>) {
        let (mut faults, mut leaks) = (Vec::new(), Vec::new());
        let mut shown: BTreeMap<(u64, u32), i64> = BTreeMap::new();
        for ((ino, _), slices) in &self.chunks {
            if self.nodes.get(ino).is_none_or(|attr| attr.kind != FileType::File)
                && !self.deleted.contains(ino)
            {
                leaks.push(format!("chunk of {ino}, which is no file"));
            }
            for slice in slices.iter().filter(|slice| !slice.is_hole()) {
                *shown.entry((slice.id, slice.size)).or_default() += 1;
            }
        }
        for (slice, count) in &shown {
            let stored = self.refs.get(slice).copied().unwrap_or(1);
            if stored != *count {
                faults.push(format!("slice {slice:?} is shown {count} times, recorded {stored}"));
            }
        }
        for (slice, refs) in &self.refs {
            if !shown.contains_key(slice) {
                leaks.push(format!("slice {slice:?} has {refs} references and is not shown"));
            }
        }
        let needed: BTreeSet<String> = shown
            .keys()
            .flat_map(|(id, size)| layout.blocks(*id, *size).map(|block| layout.name(block)))
            .collect();
        let keys: BTreeSet<String> = keys.iter().cloned().collect();
        faults.extend(needed.difference(&keys).map(|key| format!("object {key} is missing")));
        leaks.extend(keys.difference(&needed).map(|key| format!("object {key} belongs to nothing")));
        (faults, leaks)
    }
}

/// Fails unless everything in `volume` fits together. `url` reaches its metadata without any fault.
pub fn assert_sound(volume: &Volume, url: &str, layout: Layout, context: &str) {
    let records = Records::load(engine(url).as_ref());
    let mut faults = records.faults_of_tree();
    let (missing, leaks) = records.faults_of_blocks(layout, &volume.store.keys());
    faults.extend(missing);
    faults.extend(leaks);
    assert!(faults.is_empty(), "{context}: {faults:#?}");
}

/// Fails unless the tree is sound and no block of it is missing; blocks that nothing shows are
/// allowed.
pub fn assert_nothing_missing(volume: &Volume, url: &str, layout: Layout, context: &str) {
    let records = Records::load(engine(url).as_ref());
    let mut faults = records.faults_of_tree();
    faults.extend(records.faults_of_blocks(layout, &volume.store.keys()).0);
    assert!(faults.is_empty(), "{context}: {faults:#?}");
}
