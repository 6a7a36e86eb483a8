//! What a commit expects and writes, sorted by what is done with it.
//!
//! What must stay true: a record that is both compared and written is locked for writing at once.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, Expect, Hold, List, Write},
    schema::{Counter, DirStat, Key, QuotaKey, Row, encode_slices},
};
use sluice_types::{FileType, Ino, Time};

use crate::{
    codec::Record,
    mysql::watch::NOTICES,
    values::{key_values, row_values},
};

/// What is to become of one record, and what must hold of it before.
#[derive(Default)]
pub(super) struct Held<'c> {
    /// It is as it was.
    pub(super) expect: Option<(&'c Row, Hold)>,
    /// The commit changes it, or what it stands for.
    pub(super) written: bool,
}

pub(super) type HeldRows<'c> = BTreeMap<Key, Held<'c>>;

/// The writes of a commit, sorted by what they do.
#[derive(Default)]
pub(super) struct Sorted<'c> {
    /// By record; nodes under [`Record::Node`] if they are no directories.
    pub(super) held: BTreeMap<Record, HeldRows<'c>>,
    /// Nodes that are directories, but for those in `listed`.
    pub(super) dirs: HeldRows<'c>,
    /// Nodes whose lists of locks are compared: each must be locked before that, be it a directory.
    pub(super) listed: FxHashSet<Ino>,
    pub(super) absent: BTreeMap<Record, Vec<Key>>,
    pub(super) inserts: BTreeMap<Record, BTreeMap<Key, &'c Row>>,
    pub(super) puts: BTreeMap<Record, BTreeMap<Key, &'c Row>>,
    pub(super) dir_puts: BTreeMap<Key, &'c Row>,
    pub(super) deletes: BTreeMap<Record, Vec<&'c Key>>,
    pub(super) dir_deletes: Vec<&'c Key>,
    pub(super) clears: Vec<List>,
    pub(super) bumps: BTreeMap<Ino, (i32, Option<Time>)>,
    pub(super) counts: BTreeMap<&'static str, i64>,
    pub(super) refers: BTreeMap<(u64, u32), i64>,
    pub(super) uses: BTreeMap<Ino, DirStat>,
    pub(super) charges: BTreeMap<QuotaKey, (i64, i64)>,
    pub(super) appends: BTreeMap<(Ino, u32), Vec<u8>>,
}

impl<'c> Sorted<'c> {
    fn held_of(&mut self, key: &Key, kind: Option<FileType>) -> Option<&mut Held<'c>> {
        let rows = match key {
            Key::Node(ino) if self.listed.contains(ino) => self.held.entry(Record::Node).or_default(),
            Key::Node(ino) if kind == Some(FileType::Dir) || ino.is_trash() => &mut self.dirs,
            Key::Node(_) if self.dirs.contains_key(key) => &mut self.dirs,
            Key::Parents(..) | Key::Counter(Counter::AclMaxId) => {
                self.held.entry(Record::Parents).or_default()
            }
            _ => self.held.entry(key_values(key)?.0).or_default(),
        };
        Some(rows.entry(key.clone()).or_default())
    }

    /// Notes that a record is changed, if anything must hold of it.
    fn written(&mut self, key: &Key) {
        let rows = match key_values(key) {
            Some((Record::Node, _)) if self.dirs.contains_key(key) => Some(&mut self.dirs),
            Some((record, _)) => self.held.get_mut(&record),
            None => None,
        };
        if let Some(held) = rows.and_then(|rows| rows.get_mut(key)) {
            held.written = true;
        }
    }

    /// Notes that a record must be there.
    fn exists(&mut self, key: &Key) {
        if !self.is_new(key)
            && let Some(held) = self.held_of(key, None)
        {
            held.written = true;
        }
    }

    fn is_new(&self, key: &Key) -> bool {
        let inserts = key_values(key).and_then(|(record, _)| self.inserts.get(&record));
        inserts.is_some_and(|inserts| inserts.contains_key(key))
    }

    fn write(&mut self, write: &'c Write) {
        match write {
            Write::Put(row) => {
                let key = row.key();
                if self.is_new(&key) {
                    return;
                }
                self.written(&key);
                let is_dir = self.dirs.contains_key(&key)
                    || matches!(row, Row::Node(ino, attr)
                        if attr.kind == FileType::Dir && !self.listed.contains(ino));
                if is_dir {
                    self.dir_puts.insert(key, row);
                } else if let Some((record, _)) = key_values(&key) {
                    self.puts.entry(record).or_default().insert(key, row);
                }
            }
            Write::Delete(key) | Write::Discard(key) => {
                let Some((record, _)) = key_values(key) else { return };
                if matches!(write, Write::Delete(_)) {
                    self.exists(key);
                }
                self.written(key);
                if self.dirs.contains_key(key) {
                    self.dir_deletes.push(key);
                } else {
                    self.deletes.entry(record).or_default().push(key);
                }
            }
            Write::Clear(list) => self.clears.push(*list),
            Write::Bump { ino, nlink, time } => {
                self.exists(&Key::Node(*ino));
                let bump = self.bumps.entry(*ino).or_default();
                *bump = (bump.0.saturating_add(*nlink), bump.1.max(*time));
            }
            // Inserts were sorted before; the others are counted from what is there.
            Write::Insert(_) | Write::Count(Counter::AclMaxId, _) | Write::Link(..) => {}
            Write::Count(counter, by) => {
                self.written(&Key::Counter(*counter));
                *self.counts.entry(counter.name()).or_default() += by;
            }
            Write::Refer(slice, size, by) => {
                self.written(&Key::SliceRef(*slice, *size));
                *self.refers.entry((*slice, *size)).or_default() += by;
            }
            Write::Use(ino, by) => {
                self.written(&Key::DirStat(*ino));
                let stat = self.uses.entry(*ino).or_default();
                *stat = stat.plus(*by);
            }
            Write::Charge(key, space, inodes) => {
                self.written(&Key::Quota(*key));
                let charge = self.charges.entry(*key).or_default();
                *charge = (charge.0.wrapping_add(*space), charge.1.wrapping_add(*inodes));
            }
            Write::Append(_, _, slices) if slices.is_empty() => {}
            Write::Append(ino, index, slices) => {
                self.written(&Key::Chunk(*ino, *index));
                self.appends.entry((*ino, *index)).or_default().extend(encode_slices(slices));
            }
            Write::Notify(_) => *self.counts.entry(NOTICES).or_default() += 1,
        }
    }
}

/// The node whose list of locks an expectation speaks of.
fn listed(expect: &Expect) -> Option<Ino> {
    match expect {
        Expect::Same(List::Flocks(ino) | List::Plocks(ino), _) => Some(*ino),
        _ => None,
    }
}

/// Sorts a commit.
pub(super) fn sort(commit: &Commit) -> Sorted<'_> {
    let mut sorted = Sorted::default();
    let absent = commit.expects.iter().filter_map(|expect| match expect {
        Expect::Absent(key) => Some(key),
        _ => None,
    });
    let absent: FxHashSet<&Key> = absent.collect();
    sorted.listed = commit.expects.iter().filter_map(listed).collect();
    let mut new: FxHashSet<Key> = FxHashSet::default();
    for write in &commit.writes {
        let (Write::Insert(row) | Write::Put(row)) = write else { continue };
        // What replaces a record that must not be there is new.
        let is_new = matches!(write, Write::Insert(_)) || absent.contains(&row.key());
        if is_new && let Some((record, _)) = row_values(row) {
            new.insert(row.key());
            sorted.inserts.entry(record).or_default().insert(row.key(), row);
        }
    }
    for expect in &commit.expects {
        match expect {
            Expect::Row(row, hold) if *hold > Hold::None => {
                let kind = if let Row::Node(_, attr) = row { Some(attr.kind) } else { None };
                if let Some(held) = sorted.held_of(&row.key(), kind)
                    && held.expect.is_none_or(|(_, known)| known < *hold)
                {
                    held.expect = Some((row, *hold));
                    // Others may rely on it although it is not written: what belongs to a node is
                    // held by its node.
                    held.written |= *hold == Hold::Lock;
                }
            }
            // An insert finds that out itself.
            Expect::Absent(key) if !new.contains(key) => {
                let record = key_values(key).map_or(Record::Parents, |(record, _)| record);
                sorted.absent.entry(record).or_default().push(key.clone());
            }
            _ => {}
        }
    }
    for write in &commit.writes {
        sorted.write(write);
    }
    sorted
}
