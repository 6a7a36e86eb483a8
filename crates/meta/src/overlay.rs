//! The decisions of a batch's operations so far, on top of the engine's records.
//!
//! Writes are merged as they arrive. Ten creates in one directory become one update of its mtime. A
//! create followed by an unlink becomes nothing. The merged writes are committed.

mod group;

use std::collections::{BTreeMap, hash_map::Entry as Slot};

use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Name, Slice, Time};

use self::group::Group;
use crate::{
    engine::{List, Write},
    schema::{Change, Counter, DirStat, Key, QuotaKey, Row},
};

/// The pending change of one record.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Pending {
    /// New.
    Insert(Row),
    /// Replaced or made.
    Put(Row),
    /// Removed; it is there.
    Delete,
    /// Removed if it is there.
    Discard,
    /// Made and removed again by the same batch.
    Gone,
}

impl Pending {
    /// The record as the next operation sees it.
    pub(crate) fn row(&self) -> Option<&Row> {
        match self {
            Self::Insert(row) | Self::Put(row) => Some(row),
            Self::Delete | Self::Discard | Self::Gone => None,
        }
    }

    fn row_mut(&mut self) -> Option<&mut Row> {
        match self {
            Self::Insert(row) | Self::Put(row) => Some(row),
            Self::Delete | Self::Discard | Self::Gone => None,
        }
    }
}

/// A pending change of `nlink` and times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Bump {
    pub(crate) nlink: i32,
    pub(crate) time: Option<Time>,
}

impl Bump {
    fn merge(&mut self, nlink: i32, time: Option<Time>) {
        self.nlink += nlink;
        self.time = self.time.max(time);
    }

    /// The attributes after the change.
    pub(crate) fn apply(self, attr: &mut Attr) {
        attr.nlink = attr.nlink.saturating_add_signed(self.nlink);
        if let Some(time) = self.time {
            attr.mtime = attr.mtime.max(time);
            attr.ctime = attr.ctime.max(time);
        }
    }
}

/// The merged writes of a batch.
#[derive(Debug, Default)]
pub(crate) struct Overlay {
    rows: FxHashMap<Key, Pending>,
    /// Keys of `rows` that are in collections.
    members: FxHashMap<Group, Vec<Key>>,
    bumps: FxHashMap<Ino, Bump>,
    appends: BTreeMap<(Ino, u32), Vec<Slice>>,
    counts: FxHashMap<Counter, i64>,
    /// In order, because engines keep them so.
    refers: BTreeMap<(u64, u32), i64>,
    links: FxHashMap<(Ino, Ino), i64>,
    uses: FxHashMap<Ino, DirStat>,
    charges: FxHashMap<QuotaKey, (i64, i64)>,
    clears: FxHashMap<Option<Group>, Vec<List>>,
    tells: Vec<Change>,
}

impl Overlay {
    /// The pending change of `key`, if an operation of the batch decided it.
    pub(crate) fn get(&self, key: &Key) -> Option<&Pending> {
        self.rows.get(key)
    }

    /// The pending change of a node that is not replaced.
    pub(crate) fn bump(&self, ino: Ino) -> Option<Bump> {
        self.bumps.get(&ino).copied()
    }

    /// Records that will be appended to a chunk that is not replaced.
    pub(crate) fn appended(&self, ino: Ino, index: u32) -> &[Slice] {
        self.appends.get(&(ino, index)).map_or(&[], Vec::as_slice)
    }

    /// What will be added to a number that is not replaced.
    pub(crate) fn added(&self, key: &Key) -> i64 {
        match key {
            Key::Counter(counter) => self.counts.get(counter).copied(),
            Key::SliceRef(id, size) => self.refers.get(&(*id, *size)).copied(),
            Key::Parents(ino, parent) => self.links.get(&(*ino, *parent)).copied(),
            _ => None,
        }
        .unwrap_or(0)
    }

    /// Numbers of entries that will be added to parents of `ino`.
    pub(crate) fn links_of(&self, ino: Ino) -> impl Iterator<Item = (Ino, i64)> {
        self.links.iter().filter(move |((child, _), _)| *child == ino).map(|((_, parent), n)| (*parent, *n))
    }

    /// Chunks of `ino` that will be appended to.
    pub(crate) fn appended_chunks(&self, ino: Ino) -> impl Iterator<Item = (u32, &[Slice])> {
        self.appends.range((ino, 0)..=(ino, u32::MAX)).map(|((_, index), slices)| (*index, slices.as_slice()))
    }

    /// What will be added to the usage of a directory whose record is not replaced.
    pub(crate) fn used(&self, ino: Ino) -> DirStat {
        self.uses.get(&ino).copied().unwrap_or_default()
    }

    /// Bytes and inodes that will be added to the usage of a quota whose record is not replaced.
    pub(crate) fn charged(&self, key: QuotaKey) -> (i64, i64) {
        self.charges.get(&key).copied().unwrap_or_default()
    }

    /// What is added to a counter.
    pub(crate) fn counted(&self, counter: Counter) -> i64 {
        self.counts.get(&counter).copied().unwrap_or_default()
    }

    /// Whether exactly this collection is to be removed.
    pub(crate) fn is_cleared(&self, list: &List) -> bool {
        self.clears.get(&Group::of_list(list)).is_some_and(|lists| lists.contains(list))
    }

    /// Whether a record is removed with a whole collection.
    pub(crate) fn in_cleared(&self, key: &Key) -> bool {
        let Some(group) = Group::of(key) else { return false };
        let has =
            |group| self.clears.get(&group).is_some_and(|lists| lists.iter().any(|list| list.contains(key)));
        !self.clears.is_empty() && (has(Some(group)) || has(None))
    }

    /// Pending records whose keys are in a collection. Returns none for a collection that spans
    /// kinds of records: only operations that run alone read such a collection.
    pub(crate) fn in_list(&self, list: &List) -> impl Iterator<Item = (&Key, &Pending)> {
        self.in_group(Group::of_list(list)).filter(|(key, _)| list.contains(key))
    }

    fn in_group(&self, group: Option<Group>) -> impl Iterator<Item = (&Key, &Pending)> {
        let members = group.and_then(|group| self.members.get(&group));
        members.into_iter().flatten().filter_map(|key| self.rows.get_key_value(key))
    }

    /// Names in `dir` that will appear (`true`) or vanish (`false`).
    pub(crate) fn names(&self, dir: Ino) -> impl Iterator<Item = (&Name, bool)> {
        self.in_group(Some(Group::Entries(dir))).filter_map(|(key, pending)| match (key, pending) {
            (_, Pending::Gone) => None,
            (Key::Entry(_, name), pending) => Some((name, pending.row().is_some())),
            _ => None,
        })
    }

    /// Sets the pending change of a record.
    fn set(&mut self, key: Key, pending: Pending) {
        match self.rows.entry(key) {
            Slot::Occupied(mut slot) => drop(slot.insert(pending)),
            Slot::Vacant(slot) => {
                if let Some(group) = Group::of(slot.key()) {
                    self.members.entry(group).or_default().push(slot.key().clone());
                }
                slot.insert(pending);
            }
        }
    }

    /// Merges one more write. `existed` tells whether the engine has a record of that key.
    pub(crate) fn apply(&mut self, write: Write, existed: impl Fn(&Key) -> bool) {
        match write {
            Write::Insert(row) => {
                let key = row.key();
                self.absorb(&key);
                let pending = match self.rows.get(&key) {
                    Some(Pending::Delete | Pending::Discard) => Pending::Put(row),
                    _ if self.in_cleared(&key) => Pending::Put(row),
                    _ => Pending::Insert(row),
                };
                self.set(key, pending);
            }
            Write::Put(row) => {
                let key = row.key();
                self.absorb(&key);
                let pending = match self.rows.get(&key) {
                    Some(Pending::Insert(_) | Pending::Gone) if !self.in_cleared(&key) => {
                        Pending::Insert(row)
                    }
                    _ => Pending::Put(row),
                };
                self.set(key, pending);
            }
            Write::Delete(key) => {
                let added = self.absorb(&key);
                let pending = match self.rows.get(&key) {
                    Some(Pending::Insert(_) | Pending::Gone) => Pending::Gone,
                    // What this batch made by adding to nothing is not there yet.
                    None if !added => Pending::Delete,
                    _ if existed(&key) => Pending::Delete,
                    _ => Pending::Discard,
                };
                self.set(key, pending);
            }
            Write::Discard(key) => {
                self.absorb(&key);
                let pending = match self.rows.get(&key) {
                    Some(Pending::Insert(_) | Pending::Gone) => Pending::Gone,
                    Some(Pending::Delete) => Pending::Delete,
                    _ => Pending::Discard,
                };
                self.set(key, pending);
            }
            Write::Clear(list) => self.clear(list),
            Write::Bump { ino, nlink, time } => {
                match self.rows.get_mut(&Key::Node(ino)).map(Pending::row_mut) {
                    Some(Some(Row::Node(_, attr))) => Bump { nlink, time }.apply(attr),
                    _ => self.bumps.entry(ino).or_default().merge(nlink, time),
                }
            }
            Write::Append(ino, index, slices) => match self.pending_mut(Row::Chunk(ino, index, Vec::new())) {
                Some(Row::Chunk(_, _, records)) => records.extend(slices),
                _ => self.appends.entry((ino, index)).or_default().extend(slices),
            },
            Write::Count(counter, by) => match self.pending_mut(Row::Counter(counter, 0)) {
                Some(Row::Counter(_, value)) => *value += by,
                _ => *self.counts.entry(counter).or_default() += by,
            },
            Write::Refer(id, size, by) => match self.pending_mut(Row::SliceRef(id, size, 1)) {
                Some(Row::SliceRef(_, _, refs)) => *refs += by,
                _ => *self.refers.entry((id, size)).or_default() += by,
            },
            Write::Link(ino, parent, by) => match self.pending_mut(Row::Parents(ino, parent, 0)) {
                Some(Row::Parents(_, _, count)) => *count += by,
                _ => *self.links.entry((ino, parent)).or_default() += by,
            },
            Write::Use(ino, by) => match self.rows.get_mut(&Key::DirStat(ino)).map(Pending::row_mut) {
                Some(Some(Row::DirStat(_, stat))) => *stat = stat.plus(by),
                Some(_) => {}
                None => {
                    let stat = self.uses.entry(ino).or_default();
                    *stat = stat.plus(by);
                }
            },
            Write::Charge(key, space, inodes) => self.charge(key, space, inodes),
            // Log lines are kept beside the records.
            Write::Log(_) => {}
            Write::Notify(change) => {
                if !self.tells.contains(&change) {
                    self.tells.push(change);
                }
            }
        }
    }

    fn charge(&mut self, key: QuotaKey, space: i64, inodes: i64) {
        let pending = match key.kept() {
            Some(fresh) => self.pending_mut(Row::Quota(key, fresh)),
            None => match self.rows.get_mut(&Key::Quota(key)).map(Pending::row_mut) {
                // It has no record any more.
                Some(None) => return,
                pending => pending.flatten(),
            },
        };
        if let Some(Row::Quota(_, quota)) = pending {
            quota.charge(space, inodes);
        } else {
            let charge = self.charges.entry(key).or_default();
            *charge = (charge.0 + space, charge.1 + inodes);
        }
    }

    /// The pending record to which a write adds. If the batch removed it, adding begins with
    /// `start` again. `None` if the batch has not decided about the record.
    fn pending_mut(&mut self, start: Row) -> Option<&mut Row> {
        let key = start.key();
        let cleared = self.in_cleared(&key);
        let pending = self.rows.get_mut(&key)?;
        match pending {
            Pending::Insert(_) | Pending::Put(_) => {}
            Pending::Gone if !cleared => *pending = Pending::Insert(start),
            Pending::Gone | Pending::Delete | Pending::Discard => *pending = Pending::Put(start),
        }
        pending.row_mut()
    }

    /// Drops what would be added to a record that is now replaced or removed: that operation has
    /// seen it. Returns whether one of these additions would have made a record.
    fn absorb(&mut self, key: &Key) -> bool {
        match key {
            Key::Node(ino) => drop(self.bumps.remove(ino)),
            Key::Chunk(ino, index) => return self.appends.remove(&(*ino, *index)).is_some(),
            Key::Counter(counter) => return self.counts.remove(counter).is_some(),
            Key::SliceRef(id, size) => return self.refers.remove(&(*id, *size)).is_some(),
            Key::Parents(ino, parent) => return self.links.remove(&(*ino, *parent)).is_some(),
            Key::DirStat(ino) => drop(self.uses.remove(ino)),
            Key::Quota(key) => return self.charges.remove(key).is_some() && key.kept().is_some(),
            _ => {}
        }
        false
    }

    fn clear(&mut self, list: List) {
        let keys: Vec<Key> = self.in_list(&list).map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.set(key, Pending::Gone);
        }
        match list {
            List::Parents(ino) => self.links.retain(|(child, _), _| *child != ino),
            List::Chunks(ino, from, to) => {
                self.appends.retain(|(i, at), _| *i != ino || !(from..to).contains(at));
            }
            _ => {}
        }
        let lists = self.clears.entry(Group::of_list(&list)).or_default();
        if !lists.contains(&list) {
            lists.push(list);
        }
    }

    /// Reserves space for that many records.
    pub(crate) fn reserve(&mut self, records: usize) {
        self.rows.reserve(records);
        self.clears.reserve(records);
    }

    /// What to commit, removals of whole collections first, then records in the order of their
    /// keys.
    pub(crate) fn into_writes(self) -> Vec<Write> {
        let mut lists: Vec<List> = self.clears.into_values().flatten().collect();
        lists.sort_unstable();
        let mut writes: Vec<Write> = lists.into_iter().map(Write::Clear).collect();
        // Records are large: their indexes are sorted, not they.
        let mut rows: Vec<Option<(Key, Pending)>> = self.rows.into_iter().map(Some).collect();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_unstable_by(|one, other| {
            let key = |at: usize| rows[at].as_ref().map(|(key, _)| key);
            key(*one).cmp(&key(*other))
        });
        let adding = self.bumps.len() + self.appends.len() + self.counts.len() + self.refers.len();
        let others = self.links.len() + self.uses.len() + self.charges.len() + self.tells.len();
        // One more for the announcement.
        writes.reserve_exact(rows.len() + adding + others + 1);
        for (key, pending) in order.into_iter().filter_map(|at| rows[at].take()) {
            match pending {
                Pending::Insert(row) => writes.push(Write::Insert(row)),
                Pending::Put(row) => writes.push(Write::Put(row)),
                Pending::Delete => writes.push(Write::Delete(key)),
                Pending::Discard => writes.push(Write::Discard(key)),
                Pending::Gone => {}
            }
        }
        writes.extend(self.bumps.into_iter().map(|(ino, b)| Write::Bump {
            ino,
            nlink: b.nlink,
            time: b.time,
        }));
        writes
            .extend(self.appends.into_iter().map(|((ino, index), slices)| Write::Append(ino, index, slices)));
        writes.extend(self.counts.into_iter().filter(|(_, n)| *n != 0).map(|(c, n)| Write::Count(c, n)));
        writes.extend(
            self.refers.into_iter().filter(|(_, n)| *n != 0).map(|((i, s), n)| Write::Refer(i, s, n)),
        );
        writes
            .extend(self.links.into_iter().filter(|(_, n)| *n != 0).map(|((i, p), n)| Write::Link(i, p, n)));
        writes.extend(self.uses.into_iter().filter(|(_, s)| !s.is_zero()).map(|(ino, s)| Write::Use(ino, s)));
        let charges = self.charges.into_iter().filter(|(_, by)| *by != (0, 0));
        writes.extend(charges.map(|(key, (s, n))| Write::Charge(key, s, n)));
        writes.extend(self.tells.into_iter().map(Write::Notify));
        writes
    }
}

#[cfg(test)]
mod tests;
