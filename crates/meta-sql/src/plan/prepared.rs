//! What a commit expects and writes, sorted by table and by unique key.
//!
//! What must stay true: each row stands there once, with the firmest lock that anything in the
//! commit needs of it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Step, Write},
    schema::{Counter, Key, QuotaKey, Row, encode_slices},
};

use super::{
    rows::{Action, Change, Compare, Expected, Lock, RowPlan, Span, TablePlan},
    span::cleared,
};
use crate::{
    codec::Record,
    values::{Value, key_values, quota_columns, row_values, time_columns},
};

/// What is to be done in each table.
#[derive(Default)]
pub(crate) struct Prepared<'c> {
    pub(crate) tables: BTreeMap<Record, TablePlan<'c>>,
    /// What is expected to be absent.
    absent: FxHashSet<&'c Key>,
    /// What of that is made, so that the unique key decides.
    made: BTreeSet<Key>,
}

impl<'c> Prepared<'c> {
    /// Sorts a commit.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] if two rows are expected that cannot both be there.
    pub(crate) fn new(commit: &'c Commit) -> Result<Self, EngineError> {
        let absent = commit
            .expects
            .iter()
            .filter_map(|expect| if let Expect::Absent(key) = expect { Some(key) } else { None });
        let mut prepared = Self { absent: absent.collect(), ..Self::default() };
        if let Some(step) = commit.step {
            prepared.step(step);
        }
        for write in &commit.writes {
            match write {
                Write::Insert(row) => prepared.insert(row),
                // What is not there cannot be locked: only an insert finds out whether somebody
                // else made it.
                Write::Put(row) if prepared.absent.contains(&row.key()) => prepared.insert(row),
                Write::Put(row) => prepared.put(row),
                Write::Delete(key) => prepared.remove(key, Action::Delete),
                // There must be none, which is checked.
                Write::Discard(key) if prepared.absent.contains(key) => {}
                Write::Discard(key) => prepared.remove(key, Action::Discard),
                Write::Clear(list) => prepared.clear(*list),
                adding => prepared.add(adding),
            }
        }
        for expect in &commit.expects {
            match expect {
                Expect::Absent(key) if prepared.made.contains(key) => {}
                Expect::Absent(key) => prepared.expect_absent(key),
                Expect::Row(row, hold) if *hold > Hold::None => prepared.expect_row(row, *hold)?,
                _ => {}
            }
        }
        Ok(prepared)
    }

    fn table(&mut self, record: Record) -> &mut TablePlan<'c> {
        self.tables.entry(record).or_default()
    }

    fn row(&mut self, record: Record, unique: Vec<Value<'c>>, lock: Lock) -> &mut RowPlan<'c> {
        let row = self.table(record).rows.entry(unique).or_insert(RowPlan::new(lock));
        row.lock = row.lock.max(lock);
        row
    }

    fn step(&mut self, step: Step) {
        let unique = vec![Value::Int(step.writer as i64), Value::Int(step.lane.into())];
        let values = unique.iter().cloned().chain([step.from, step.to].map(|n| Value::Int(n as i64)));
        let key = Some(Key::Writer(step.writer, step.lane));
        let change = Change { action: Action::Step, key, values: values.collect() };
        self.row(Record::Writer, unique, Lock::Add).changes.push(change);
    }

    fn insert(&mut self, row: &'c Row) {
        if let Some((record, values)) = row_values(row) {
            self.inserted(record, row.key(), values);
        }
    }

    fn inserted(&mut self, record: Record, key: Key, values: Vec<Value<'c>>) {
        if self.absent.contains(&key) {
            self.made.insert(key.clone());
        }
        let unique = values[..record.shape().unique].to_vec();
        let change = Change { action: Action::Insert, key: Some(key), values };
        self.row(record, unique, Lock::Update).changes.push(change);
    }

    fn put(&mut self, row: &'c Row) {
        if let Some((record, values)) = row_values(row) {
            let unique = values[..record.shape().unique].to_vec();
            let change = Change { action: Action::Put, key: None, values };
            self.row(record, unique, Lock::Update).changes.push(change);
        }
    }

    fn remove(&mut self, key: &'c Key, action: Action) {
        if let Some((record, values)) = key_values(key) {
            let unique = values[..record.shape().unique].to_vec();
            let planned = self.row(record, unique, Lock::Update);
            planned.changes.push(Change { action, key: Some(key.clone()), values });
            if action == Action::Delete {
                planned.must_exist(key);
            }
        }
    }

    fn clear(&mut self, list: List) {
        if let Some((record, id, range)) = cleared(list) {
            self.table(record).clears.push(Span::new(id, range));
        }
    }

    /// A write that adds to a row. What is expected to be absent is made by it.
    fn add(&mut self, write: &'c Write) {
        let int = Value::Int;
        match write {
            Write::Bump { ino, nlink, time } => {
                let id = int(ino.0 as i64);
                let [micros, nanos] = time.map_or([Value::Null, Value::Null], |time| {
                    let (micros, nanos) = time_columns(time);
                    [int(micros), int(nanos)]
                });
                let key = Key::Node(*ino);
                let planned = self.row(Record::Node, vec![id.clone()], Lock::Key);
                planned.must_exist(&key);
                let values = vec![id, int((*nlink).into()), micros, nanos];
                planned.changes.push(Change { action: Action::Add, key: Some(key), values });
            }
            Write::Count(counter, by) if *counter != Counter::AclMaxId => {
                let values = vec![Value::Text(counter.name().as_bytes().into()), int(*by)];
                self.added(Record::Counter, &Key::Counter(*counter), values);
            }
            Write::Refer(slice, size, by) => {
                let values = [*slice as i64, (*size).into(), 1 + by].map(int).into();
                self.added(Record::SliceRef, &Key::SliceRef(*slice, *size), values);
            }
            Write::Use(ino, by) => {
                let values = [ino.0 as i64, by.length, by.space, by.inodes].map(int).into();
                self.added(Record::DirStat, &Key::DirStat(*ino), values);
            }
            Write::Charge(key, space, inodes) => {
                let (kind, of) = quota_columns(*key);
                let (record, values) = match key {
                    QuotaKey::Dir(_) => (Record::DirQuota, [of, *space, *inodes].map(int).into()),
                    _ => (Record::Quota, [kind, of, -1, -1, *space, *inodes].map(int).into()),
                };
                self.added(record, &Key::Quota(*key), values);
            }
            Write::Append(ino, index, slices) => {
                let slices = Value::Bytes(encode_slices(slices).into());
                let values = vec![int(ino.0 as i64), int((*index).into()), slices];
                self.added(Record::Chunk, &Key::Chunk(*ino, *index), values);
            }
            _ => {}
        }
    }

    fn added(&mut self, record: Record, key: &Key, values: Vec<Value<'c>>) {
        let makes = !matches!(record, Record::DirStat | Record::DirQuota);
        if makes && self.absent.contains(key) {
            return self.inserted(record, key.clone(), values);
        }
        let unique = values[..record.shape().unique].to_vec();
        let change = Change { action: Action::Add, key: None, values };
        self.row(record, unique, Lock::Add).changes.push(change);
    }

    fn expect_absent(&mut self, key: &'c Key) {
        let found = match key {
            Key::Parents(ino, parent) => {
                Some((Record::Parents, vec![Value::Int(ino.0 as i64), Value::Int(parent.0 as i64)]))
            }
            _ => key_values(key),
        };
        if let Some((record, values)) = found {
            self.table(record).absent.push((key.clone(), values));
        }
    }

    fn expect_row(&mut self, row: &'c Row, hold: Hold) -> Result<(), EngineError> {
        let Some((record, values)) = row_values(row) else { return Ok(()) };
        let key = row.key();
        let (compare, lock) = match (record, hold) {
            (Record::Node, Hold::Guard) => (Compare::Guard, Lock::Key),
            (Record::Node, _) => (Compare::Exact, Lock::Update),
            _ => (Compare::Exact, Lock::Share),
        };
        let unique = values[..record.shape().unique].to_vec();
        let planned = self.row(record, unique, lock);
        let known = planned.expected.as_ref();
        if known.is_some_and(|known| known.compare != Compare::Exists && known.key != key) {
            // Two rows with one unique key cannot both be there.
            return Err(EngineError::Conflict(vec![key]));
        }
        let compare = known.map_or(compare, |known| known.compare.max(compare));
        planned.expected = Some(Expected { compare, row: values, key });
        Ok(())
    }
}
