//! What a commit expects and writes, sorted by table and by unique key.
//!
//! What must stay true: each row stands there once, with the firmest lock that anything in the
//! commit needs of it.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, List, Step, Write},
    schema::{Counter, Key, Row, encode_slices},
};

use super::{
    super::statement::{Do, Lock, Same},
    quota_key,
    span::Span,
    work::{Change, Held, Touch, Work},
};
use crate::{
    codec::Record,
    values::{Value, key_values, row_values, time_columns},
};

/// The work on each table.
#[derive(Default)]
pub(super) struct Gathered<'c> {
    pub(super) work: BTreeMap<Record, Work<'c>>,
    /// What is expected to be absent.
    absent: FxHashSet<&'c Key>,
    /// What of that is made, so that the unique key decides.
    made: BTreeSet<Key>,
}

impl<'c> Gathered<'c> {
    /// Sorts a commit.
    pub(super) fn new(commit: &'c Commit) -> Result<Self, EngineError> {
        let absent = commit
            .expects
            .iter()
            .filter_map(|expect| if let Expect::Absent(key) = expect { Some(key) } else { None });
        let mut gathered = Self { absent: absent.collect(), ..Self::default() };
        if let Some(step) = commit.step {
            gathered.step(step);
        }
        for write in &commit.writes {
            match write {
                Write::Insert(row) => gathered.insert(row),
                // What is not there cannot be locked: only an insert finds out whether somebody
                // else made it.
                Write::Put(row) if gathered.absent.contains(&row.key()) => gathered.insert(row),
                Write::Put(row) => gathered.put(row),
                Write::Delete(key) => gathered.remove(key, Do::Delete),
                // There must be none, which is checked.
                Write::Discard(key) if gathered.absent.contains(key) => {}
                Write::Discard(key) => gathered.remove(key, Do::Discard),
                Write::Clear(list) => gathered.clear(*list),
                adding => gathered.add(adding),
            }
        }
        for expect in &commit.expects {
            match expect {
                Expect::Absent(key) if gathered.made.contains(key) => {}
                Expect::Absent(key) => gathered.expect_absent(key),
                Expect::Row(row, hold) if *hold > Hold::None => gathered.expect_row(row, *hold)?,
                _ => {}
            }
        }
        Ok(gathered)
    }

    fn of(&mut self, record: Record) -> &mut Work<'c> {
        self.work.entry(record).or_default()
    }

    fn touch(&mut self, record: Record, unique: Vec<Value<'c>>, lock: Lock) -> &mut Touch<'c> {
        let touch = self.of(record).rows.entry(unique).or_insert(Touch::new(lock));
        touch.lock = touch.lock.max(lock);
        touch
    }

    fn step(&mut self, step: Step) {
        let unique = vec![Value::Int(step.writer as i64), Value::Int(step.lane.into())];
        let values = unique.iter().cloned().chain([step.from, step.to].map(|n| Value::Int(n as i64)));
        let key = Some(Key::Writer(step.writer, step.lane));
        let change = Change { what: Do::Step, key, values: values.collect() };
        self.touch(Record::Writer, unique, Lock::Add).changes.push(change);
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
        let change = Change { what: Do::Insert, key: Some(key), values };
        self.touch(record, unique, Lock::Update).changes.push(change);
    }

    fn put(&mut self, row: &'c Row) {
        if let Some((record, values)) = row_values(row) {
            let unique = values[..record.shape().unique].to_vec();
            let change = Change { what: Do::Put, key: None, values };
            self.touch(record, unique, Lock::Update).changes.push(change);
        }
    }

    fn remove(&mut self, key: &'c Key, what: Do) {
        if let Some((record, values)) = key_values(key) {
            let unique = values[..record.shape().unique].to_vec();
            let touch = self.touch(record, unique, Lock::Update);
            touch.changes.push(Change { what, key: Some(key.clone()), values });
            if what == Do::Delete {
                touch.must_exist(key);
            }
        }
    }

    fn clear(&mut self, list: List) {
        let (record, span) = match list {
            List::Chunks(ino, from, to) => (Record::Chunk, Span::between(ino.0, from, to)),
            List::Xattrs(ino) => (Record::Xattr, Span::all(ino.0)),
            List::Flocks(ino) => (Record::Flock, Span::all(ino.0)),
            List::Plocks(ino) => (Record::Plock, Span::all(ino.0)),
            List::Lanes(writer) => (Record::Writer, Span::all(writer)),
            List::Changes(writer) => (Record::Changes, Span::all(writer)),
            // Parents are counted from the entries; the others are never cleared.
            _ => return,
        };
        self.of(record).clears.push(span);
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
                let touch = self.touch(Record::Node, vec![id.clone()], Lock::Key);
                touch.must_exist(&key);
                let values = vec![id, int((*nlink).into()), micros, nanos];
                touch.changes.push(Change { what: Do::Add, key: Some(key), values });
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
                let (record, values) = match quota_key(*key) {
                    (record @ Record::DirQuota, _, of) => (record, [of, *space, *inodes].map(int).into()),
                    (record, kind, of) => (record, [kind, of, -1, -1, *space, *inodes].map(int).into()),
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
        let change = Change { what: Do::Add, key: None, values };
        self.touch(record, unique, Lock::Add).changes.push(change);
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

    fn expect_row(&mut self, row: &'c Row, hold: Hold) -> Result<(), EngineError> {
        let Some((record, values)) = row_values(row) else { return Ok(()) };
        let key = row.key();
        let (same, lock) = match (record, hold) {
            (Record::Node, Hold::Guard) => (Same::Guarded, Lock::Key),
            (Record::Node, _) => (Same::All, Lock::Update),
            _ => (Same::All, Lock::Share),
        };
        let unique = values[..record.shape().unique].to_vec();
        let touch = self.touch(record, unique, lock);
        if touch.held.as_ref().is_some_and(|held| held.same != Same::There && held.key != key) {
            // Two rows with one unique key cannot both be there.
            return Err(EngineError::Conflict(vec![key]));
        }
        let same = touch.held.as_ref().map_or(same, |held| held.same.max(same));
        touch.held = Some(Held { same, row: values, key });
        Ok(())
    }
}
