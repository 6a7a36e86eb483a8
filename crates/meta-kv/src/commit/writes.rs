//! What each write makes of the keys it touches.
//!
//! What must stay true: a write that adds is applied to what the writes before it left, and a
//! record that shares its key with others leaves them as they are.

use sluice_meta::{
    engine::{EngineError, List, Write},
    schema::{Counter, FlockKind, Key, LockOwner, PlockRange, Row},
};
use sluice_types::Ino;

use super::draft::Draft;
use crate::{
    codec::{decode_counter, encode, encode_counter},
    keys::Cells,
    kv::Change,
    locks,
    stored::Raw,
    totals::{Lane, is_spread},
    values::{Values, spans},
};

impl Draft<'_> {
    pub(super) fn clear(&mut self, values: &Values, clears: &[&Write]) -> Result<(), EngineError> {
        for write in clears {
            let Write::Clear(list) = write else { continue };
            match list {
                List::Flocks(ino) => self.remove(values, self.volume.keys.flocks(*ino)),
                List::Plocks(ino) => self.remove(values, self.volume.keys.plocks(*ino)),
                List::LocksOf(_) | List::Sustained(_) => {
                    return Err(self.volume.refused(format!("{list:?} is not to be cleared")));
                }
                _ if self.is_emptied(*list) => self.cleared.extend(spans(self.volume, *list)),
                _ => {
                    for span in spans(self.volume, *list) {
                        for (key, value) in values.rows(&span) {
                            if let List::Lanes(_) = list {
                                self.fold_into_totals(values, key, value)?;
                            }
                            self.set(key.clone(), Change::Delete);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Removes a key if there is one.
    fn remove(&mut self, values: &Values, key: Raw) {
        if self.now(values, &key).is_some() {
            self.set(key, Change::Delete);
        }
    }

    pub(super) fn apply(&mut self, values: &Values, write: &Write) -> Result<(), EngineError> {
        match write {
            Write::Insert(row) => self.insert(values, row),
            Write::Put(row) => self.put(values, row),
            Write::Delete(key) => {
                if self.record(values, key)?.is_none() && values.record(self.volume, key)?.is_none() {
                    self.broken.push(key.clone());
                    return Ok(());
                }
                self.delete(values, key)
            }
            Write::Discard(key) => self.delete(values, key),
            Write::Bump { ino, nlink, time } => {
                let key = Key::Node(*ino);
                let Some(Row::Node(_, mut attr)) = self.record(values, &key)? else {
                    self.broken.push(key);
                    return Ok(());
                };
                attr.nlink = attr.nlink.saturating_add_signed(*nlink);
                if let Some(time) = *time {
                    attr.mtime = attr.mtime.max(time);
                    attr.ctime = attr.ctime.max(time);
                }
                self.put(values, &Row::Node(*ino, attr))
            }
            Write::Count(counter, by) if !self.rides(*counter) => self.count(values, *counter, *by),
            Write::Refer(id, size, by) => {
                let refs = match self.record(values, &Key::SliceRef(*id, *size))? {
                    Some(Row::SliceRef(_, _, refs)) => refs,
                    _ => 1,
                };
                self.put(values, &Row::SliceRef(*id, *size, refs + by))
            }
            Write::Link(ino, parent, by) => {
                let count = match self.record(values, &Key::Parents(*ino, *parent))? {
                    Some(Row::Parents(_, _, count)) => count,
                    _ => 0,
                };
                self.put(values, &Row::Parents(*ino, *parent, count + by))
            }
            Write::Use(ino, by) => match self.record(values, &Key::DirStat(*ino))? {
                Some(Row::DirStat(_, stat)) => self.put(values, &Row::DirStat(*ino, stat.plus(*by))),
                _ => Ok(()),
            },
            Write::Charge(key, space, inodes) => {
                let there = self.record(values, &Key::Quota(*key))?;
                let quota = match there {
                    Some(Row::Quota(_, quota)) => Some(quota),
                    _ => key.kept(),
                };
                let Some(mut quota) = quota else { return Ok(()) };
                quota.charge(*space, *inodes);
                self.put(values, &Row::Quota(*key, quota))
            }
            Write::Append(ino, index, slices) => {
                let mut records = match self.record(values, &Key::Chunk(*ino, *index))? {
                    Some(Row::Chunk(_, _, records)) => records,
                    _ => Vec::new(),
                };
                records.extend_from_slice(slices);
                self.put(values, &Row::Chunk(*ino, *index, records))
            }
            // What rides is added with the step; what is cleared went first; what is told is told
            // afterwards.
            Write::Count(..) | Write::Clear(_) | Write::Notify(_) => Ok(()),
        }
    }

    fn insert(&mut self, values: &Values, row: &Row) -> Result<(), EngineError> {
        let key = row.key();
        let first = self.volume.keys.cells(&key).first;
        let known = values.knows(&first) || self.out.contains_key(&first);
        if known && self.record(values, &key)?.is_some() {
            self.broken.push(key);
            return Ok(());
        }
        self.put(values, row)?;
        if !known
            && let Some(change) = self.out.get_mut(&first)
            && let Change::Put(value) = change
        {
            *change = Change::Insert(std::mem::take(value));
        }
        Ok(())
    }

    fn put(&mut self, values: &Values, row: &Row) -> Result<(), EngineError> {
        match row {
            Row::Flock(ino, owner, kind) => self.set_flock(values, *ino, *owner, Some(*kind)),
            Row::Plock(ino, owner, ranges) => {
                let ranges = (!ranges.is_empty()).then(|| ranges.clone());
                self.set_plock(values, *ino, *owner, ranges)
            }
            Row::Counter(counter, value) if is_spread(*counter) => {
                let lanes = values.lanes(self.volume, &self.volume.keys.writers())?;
                let spread: i64 = lanes.iter().map(|(_, lane)| lane.part_of(*counter)).sum();
                let stored = encode_counter(*counter, value - spread);
                self.set(self.volume.keys.counter(*counter), Change::Put(stored));
                Ok(())
            }
            Row::Writer(writer, lane, n) => {
                let key = self.volume.keys.cells(&Key::Writer(*writer, *lane)).first;
                let mut lane = self.lane(values, &key)?.unwrap_or_default();
                lane.n = *n;
                self.set(key, Change::Put(lane.encode()));
                Ok(())
            }
            _ => {
                let Cells { first, second } = self.volume.keys.cells(&row.key());
                let (value, other) = encode(row);
                for (key, value) in std::iter::once((first, value)).chain(second.map(|key| (key, other))) {
                    match value {
                        Some(value) if value.is_empty() => {
                            let shown = self.volume.keys.shown(&key);
                            return Err(self.volume.refused(format!("{shown} would be empty")));
                        }
                        Some(value) => self.set(key, Change::Put(value)),
                        // Nothing is known of a session's information: it goes in any case.
                        None if values.knows(&key) || self.out.contains_key(&key) => self.remove(values, key),
                        None => self.set(key, Change::Delete),
                    }
                }
                Ok(())
            }
        }
    }

    fn delete(&mut self, values: &Values, key: &Key) -> Result<(), EngineError> {
        match key {
            Key::Flock(ino, owner) => return self.set_flock(values, *ino, *owner, None),
            Key::Plock(ino, owner) => return self.set_plock(values, *ino, *owner, None),
            Key::Writer(..) => {
                let raw = self.volume.keys.cells(key).first;
                if let Some(value) = self.now(values, &raw).map(<[u8]>::to_vec) {
                    self.fold_into_totals(values, &raw, &value)?;
                }
            }
            _ => {}
        }
        for raw in self.volume.keys.cells(key).into_iter() {
            self.remove(values, raw);
        }
        Ok(())
    }

    fn set_flock(
        &mut self,
        values: &Values,
        ino: Ino,
        owner: LockOwner,
        kind: Option<FlockKind>,
    ) -> Result<(), EngineError> {
        let key = self.volume.keys.flocks(ino);
        let stored = self.now(values, &key).map_or(Ok(Vec::new()), locks::decode_flocks);
        let mut all = stored.map_err(|damage| self.volume.corrupt(&key, damage))?;
        locks::set(&mut all, owner, kind);
        let change = if all.is_empty() { Change::Delete } else { Change::Put(locks::encode_flocks(&all)) };
        self.set(key, change);
        Ok(())
    }

    fn set_plock(
        &mut self,
        values: &Values,
        ino: Ino,
        owner: LockOwner,
        ranges: Option<Vec<PlockRange>>,
    ) -> Result<(), EngineError> {
        let key = self.volume.keys.plocks(ino);
        let stored = self.now(values, &key).map_or(Ok(Vec::new()), locks::decode_all_plocks);
        let mut all = stored.map_err(|damage| self.volume.corrupt(&key, damage))?;
        locks::set(&mut all, owner, ranges);
        let change =
            if all.is_empty() { Change::Delete } else { Change::Put(locks::encode_all_plocks(&all)) };
        self.set(key, change);
        Ok(())
    }

    /// Adds to a stored counter.
    fn count(&mut self, values: &Values, counter: Counter, by: i64) -> Result<(), EngineError> {
        let key = self.volume.keys.counter(counter);
        let start = i64::from(matches!(counter, Counter::NextInode | Counter::NextChunk));
        let stored = self.now(values, &key).map_or(Ok(start), |value| decode_counter(counter, value));
        let stored = stored.map_err(|damage| self.volume.corrupt(&key, damage))?;
        self.set(key, Change::Put(encode_counter(counter, stored + by)));
        Ok(())
    }

    fn lane(&self, values: &Values, key: &[u8]) -> Result<Option<Lane>, EngineError> {
        let lane = self.now(values, key).map(Lane::decode).transpose();
        lane.map_err(|damage| self.volume.corrupt(key, damage))
    }

    /// Adds what a writer record holds to the totals. The record is the caller's to change.
    pub(super) fn fold_into_totals(
        &mut self,
        values: &Values,
        key: &[u8],
        value: &[u8],
    ) -> Result<(), EngineError> {
        let lane = Lane::decode(value).map_err(|damage| self.volume.corrupt(key, damage))?;
        for counter in [Counter::UsedSpace, Counter::TotalInodes] {
            if lane.part_of(counter) != 0 {
                self.count(values, counter, lane.part_of(counter))?;
            }
        }
        Ok(())
    }
}
