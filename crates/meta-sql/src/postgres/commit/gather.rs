//! What a commit expects and writes, sorted by record.
//!
//! What must stay true: each row that is there already is touched once, with the firmest lock that anything in the
//! commit needs of it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Write},
    schema::{Counter, Key, Row},
};

use super::{
    super::statement::{Lock, Same},
    quota_key,
    work::{Touch, Work},
};
use crate::{
    codec::Record,
    values::{Value, key_values, row_values},
};

/// The work on each table.
#[derive(Default)]
pub(super) struct Gathered<'c> {
    pub(super) work: BTreeMap<Record, Work<'c>>,
}

impl<'c> Gathered<'c> {
    /// Sorts a commit. `stored` are the texts of expected rows that nobody else spells as they are.
    pub(super) fn new(
        commit: &'c Commit,
        stored: &'c FxHashMap<Key, Value<'static>>,
    ) -> Result<Self, EngineError> {
        let mut gathered = Self::default();
        let absent: FxHashSet<&Key> = commit
            .expects
            .iter()
            .filter_map(|expect| if let Expect::Absent(key) = expect { Some(key) } else { None })
            .collect();
        let mut made = BTreeSet::new();
        for write in &commit.writes {
            match write {
                Write::Insert(row) => gathered.insert(row, &mut made),
                // What is not there cannot be locked: only an insert finds out whether somebody else made it.
                Write::Put(row) if absent.contains(&row.key()) => gathered.insert(row, &mut made),
                Write::Put(row) => gathered.put(row),
                Write::Delete(key) => gathered.remove(key, true),
                Write::Discard(key) => gathered.remove(key, false),
                Write::Clear(list) => gathered.clear(*list),
                adding => gathered.add(adding),
            }
        }
        for expect in &commit.expects {
            match expect {
                // The unique key decides.
                Expect::Absent(key) if made.contains(key) => {}
                Expect::Absent(key) => gathered.expect_absent(key),
                Expect::Row(row, hold) if *hold > Hold::None => gathered.expect_row(row, *hold, stored)?,
                _ => {}
            }
        }
        Ok(gathered)
    }

    fn of(&mut self, record: Record) -> &mut Work<'c> {
        self.work.entry(record).or_default()
    }

    fn insert(&mut self, row: &'c Row, made: &mut BTreeSet<Key>) {
        if let Some((record, values)) = row_values(row) {
            made.insert(row.key());
            self.of(record).inserts.push((row.key(), values));
        }
    }

    fn put(&mut self, row: &'c Row) {
        if let Some((record, values)) = row_values(row) {
            self.touch(record, values[..record.shape().unique].to_vec(), Lock::Update);
            self.of(record).puts.push(values);
        }
    }

    fn remove(&mut self, key: &'c Key, must: bool) {
        if let Some((record, values)) = key_values(key) {
            self.touch(record, values[..record.shape().unique].to_vec(), Lock::Update);
            let work = self.of(record);
            if must {
                work.deletes.push((key.clone(), values));
            } else {
                work.discards.push(values);
            }
        }
    }

    fn clear(&mut self, list: List) {
        let (record, first) = match list {
            List::Chunks(ino, from, to) => {
                self.of(Record::Chunk).ranges.push([ino.0 as i64, from.into(), to.into()]);
                return;
            }
            List::Xattrs(ino) => (Record::Xattr, ino.0),
            List::Flocks(ino) => (Record::Flock, ino.0),
            List::Plocks(ino) => (Record::Plock, ino.0),
            List::Lanes(writer) => (Record::Writer, writer),
            // Parents are counted from the entries; the others are never cleared.
            _ => return,
        };
        self.of(record).clears.push(Value::Int(first as i64));
    }

    fn add(&mut self, write: &'c Write) {
        let (record, unique) = match write {
            Write::Bump { ino, .. } => (Record::Node, vec![ino.0 as i64]),
            Write::Refer(slice, ..) => (Record::SliceRef, vec![*slice as i64]),
            Write::Use(ino, _) => (Record::DirStat, vec![ino.0 as i64]),
            Write::Append(ino, index, _) => (Record::Chunk, vec![ino.0 as i64, i64::from(*index)]),
            Write::Charge(key, ..) => match quota_key(*key) {
                (record @ Record::DirQuota, _, of) => (record, vec![of]),
                (record, kind, of) => (record, vec![kind, of]),
            },
            Write::Count(counter, _) if *counter != Counter::AclMaxId => {
                self.touch(Record::Counter, vec![Value::Text(counter.name().as_bytes().into())], Lock::Add);
                self.of(Record::Counter).adds = true;
                return;
            }
            _ => return,
        };
        self.touch(record, unique.into_iter().map(Value::Int).collect(), Lock::Add);
        self.of(record).adds = true;
    }

    fn touch(&mut self, record: Record, unique: Vec<Value<'c>>, lock: Lock) -> &mut Touch<'c> {
        let untouched = Touch { same: Same::Nothing, lock, row: Vec::new(), key: Key::Setting };
        let touch = self.of(record).touches.entry(unique).or_insert(untouched);
        touch.lock = touch.lock.max(lock);
        touch
    }

    fn expect_absent(&mut self, key: &'c Key) {
        let found = match key {
            Key::Parents(ino, parent) => {
                Some((Record::Parents, vec![Value::Int(ino.0 as i64), Value::Int(parent.0 as i64)]))
            }
            _ => key_values(key),
        };
        if let Some((record, values)) = found {
            self.of(record).absent.push((key.clone(), values));
        }
    }

    fn expect_row(
        &mut self,
        row: &'c Row,
        hold: Hold,
        stored: &'c FxHashMap<Key, Value<'static>>,
    ) -> Result<(), EngineError> {
        let Some((record, mut values)) = row_values(row) else { return Ok(()) };
        let key = row.key();
        if let (Some(text), Some(last)) = (stored.get(&key), values.last_mut()) {
            *last = text.clone();
        }
        let (same, lock) = match (record, hold) {
            (Record::Node, Hold::Guard) => (Same::Guarded, Lock::Key),
            (Record::Node, _) => (Same::All, Lock::Update),
            _ => (Same::All, Lock::Share),
        };
        let unique = values[..record.shape().unique].to_vec();
        let touch = self.touch(record, unique, lock);
        if touch.same != Same::Nothing && touch.key != key {
            // Two rows with one unique key cannot both be there.
            return Err(EngineError::Conflict(vec![key]));
        }
        touch.same = same;
        touch.row = values;
        touch.key = key;
        Ok(())
    }
}
