//! Applies each write to the keys of its record.
//!
//! What must stay true: an addition applies to the result of the writes before it. A record that
//! shares its key with others does not change them.

use sluice_meta::{
    engine::{List, Write},
    schema::{Counter, Key, Row},
};

use super::draft::Draft;
use crate::{
    codec::{decode_counter, encode, encode_counter},
    kv::Change,
    locks,
    parts::numbers,
    stored::{Raw, Result},
    totals::{Lane, TOTALS, is_spread},
    values::Values,
};

impl Draft<'_> {
    /// Removes a key if there is one.
    fn remove(&mut self, values: &Values, key: Raw) {
        if self.now(values, &key).is_some() {
            self.set(key, Change::Delete);
        }
    }

    pub(super) fn apply(&mut self, values: &Values, write: &Write) -> Result<()> {
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
            Write::Count(counter, by) if !self.is_in_writer_record(*counter) => {
                self.count(values, *counter, *by)
            }
            // Additions in the writer record are part of the step. Notices are sent afterwards. The
            // store adds lines.
            Write::Count(..) | Write::Notify(_) | Write::Log(_) => Ok(()),
            Write::Clear(list) => self.clear(values, *list),
            _ => {
                let Some(key) = write.base() else { return Ok(()) };
                match write.add_to(self.record(values, &key)?) {
                    Some(row) => self.put(values, &row)?,
                    None if matches!(write, Write::Bump { .. }) => self.broken.push(key),
                    None => {}
                }
                Ok(())
            }
        }
    }

    fn insert(&mut self, values: &Values, row: &Row) -> Result<()> {
        let key = row.key();
        let first = self.volume.keys.raw(&key);
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

    fn put(&mut self, values: &Values, row: &Row) -> Result<()> {
        let keys = &self.volume.keys;
        let raw = keys.raw(&row.key());
        let value = match row {
            Row::Plock(_, _, ranges) if ranges.is_empty() => return self.set_lock(values, &row.key(), None),
            Row::Flock(..) | Row::Plock(..) => return self.set_lock(values, &row.key(), Some(row.clone())),
            Row::Counter(counter, value) if is_spread(*counter) => {
                encode_counter(*counter, value - values.spread(self.volume, *counter)?)
            }
            Row::Writer(.., n) => Lane { n: *n, ..self.lane(values, &raw)?.unwrap_or_default() }.encode(),
            // A store that compares many of them as one range does not detect that one was deleted.
            Row::SliceRef(.., 1) if self.now(values, &raw).is_some() => numbers(&[0]),
            _ => {
                let (first, second) = encode(row);
                self.put_or_remove(values, raw, first)?;
                return match keys.second(&row.key()) {
                    Some(raw) => self.put_or_remove(values, raw, second),
                    None => Ok(()),
                };
            }
        };
        self.set(raw, Change::Put(value));
        Ok(())
    }

    fn put_or_remove(&mut self, values: &Values, key: Raw, value: Option<Vec<u8>>) -> Result<()> {
        match value {
            Some(value) if value.is_empty() => {
                let shown = self.volume.keys.shown(&key);
                return Err(self.volume.refused(format!("{shown} would be empty")));
            }
            Some(value) => self.set(key, Change::Put(value)),
            // The information of a session was not read, so its key is deleted in any case.
            None if values.knows(&key) || self.out.contains_key(&key) => self.remove(values, key),
            None => self.set(key, Change::Delete),
        }
        Ok(())
    }

    fn delete(&mut self, values: &Values, key: &Key) -> Result<()> {
        match key {
            Key::Flock(..) | Key::Plock(..) => return self.set_lock(values, key, None),
            Key::Writer(..) => {
                if let Some(lane) = self.lane(values, &self.volume.keys.raw(key))? {
                    self.fold_into_totals(values, lane)?;
                }
            }
            _ => {}
        }
        self.volume.keys.of(key).for_each(|raw| self.remove(values, raw));
        Ok(())
    }

    /// Deletes a collection. This comes before all writes to it.
    fn clear(&mut self, values: &Values, list: List) -> Result<()> {
        let keys = &self.volume.keys;
        if let List::LocksOf(_) | List::Sustained(_) = list {
            return Err(self.volume.refused(format!("{list:?} is not to be cleared")));
        }
        if self.is_emptied(list) {
            self.cleared.extend(keys.spans(list));
            return Ok(());
        }
        if let List::Lanes(writer) = list {
            for (_, lane) in values.lanes(self.volume, &keys.lanes(writer))? {
                self.fold_into_totals(values, lane)?;
            }
        }
        for (key, _) in keys.spans(list).iter().flat_map(|span| values.rows(span)) {
            self.set(key.clone(), Change::Delete);
        }
        keys.locks(list).into_iter().for_each(|key| self.remove(values, key));
        Ok(())
    }

    /// Sets a lock in the value with all locks of its file, or removes it.
    fn set_lock(&mut self, values: &Values, key: &Key, lock: Option<Row>) -> Result<()> {
        let Some(list) = locks::collection(key) else { return Ok(()) };
        let raw = self.volume.keys.raw(key);
        let stored = self.now(values, &raw).map_or(Ok(Vec::new()), |value| locks::decode(list, value));
        let mut all = stored.map_err(|damage| self.volume.damaged(&raw, damage))?;
        match (all.iter().position(|row| row.key() == *key), lock) {
            (Some(at), Some(lock)) => all[at] = lock,
            (Some(at), None) => drop(all.remove(at)),
            (None, lock) => all.extend(lock),
        }
        self.set(raw, if all.is_empty() { Change::Delete } else { Change::Put(locks::encode(&all)) });
        Ok(())
    }

    /// Adds to a stored counter.
    fn count(&mut self, values: &Values, counter: Counter, by: i64) -> Result<()> {
        let key = self.volume.keys.raw(&Key::Counter(counter));
        let stored =
            self.now(values, &key).map_or(Ok(counter.start()), |value| decode_counter(counter, value));
        let stored = stored.map_err(|damage| self.volume.damaged(&key, damage))?;
        self.set(key, Change::Put(encode_counter(counter, stored + by)));
        Ok(())
    }

    /// Adds the parts of a writer record to the totals. The caller changes the writer record.
    pub(super) fn fold_into_totals(&mut self, values: &Values, lane: Lane) -> Result<()> {
        let mut parts = TOTALS.into_iter().zip(lane.parts).filter(|(_, part)| *part != 0);
        parts.try_for_each(|(counter, part)| self.count(values, counter, part))
    }
}
