//! What a commit expects and writes, sorted by table and by unique key.
//!
//! What must stay true: each row occurs once, with the strongest lock that the commit needs.

use std::collections::{BTreeMap, BTreeSet};

use rustc_hash::FxHashSet;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Hold, Step, Write},
    schema::{Key, QuotaKey, Row},
};

use super::{
    rows::{Action, Change, Compare, Held, Lock, RowPlan, Span, TablePlan},
    span::cleared,
};
use crate::{
    codec::Record,
    values::{Value, key_values, push_added, quota_columns, row_values},
};

/// The work in each table.
#[derive(Default)]
pub(super) struct Prepared<'c> {
    pub(super) tables: BTreeMap<Record, TablePlan<'c>>,
    /// What is expected to be absent.
    absent: FxHashSet<&'c Key>,
    /// Those of them that are inserted, so that the unique key decides.
    made: BTreeSet<Key>,
}

type Done = Result<(), EngineError>;

impl<'c> Prepared<'c> {
    /// Sorts a commit.
    ///
    /// # Errors
    /// [`EngineError::Conflict`] if two rows are expected that cannot both be there.
    pub(super) fn new(commit: &'c Commit) -> Result<Self, EngineError> {
        let mut prepared = Self::default();
        for expect in &commit.expects {
            match expect {
                Expect::Absent(key) => drop(prepared.absent.insert(key)),
                Expect::Row(row, hold) if *hold > Hold::None => prepared.expect_row(row, *hold)?,
                _ => {}
            }
        }
        if let Some(step) = commit.step {
            prepared.step(step)?;
        }
        for write in &commit.writes {
            match write {
                Write::Insert(row) => prepared.put(row, true)?,
                Write::Put(row) => prepared.put(row, false)?,
                Write::Delete(key) => prepared.remove(key, Action::Delete)?,
                // There must be none, which is checked.
                Write::Discard(key) if prepared.absent.contains(key) => {}
                Write::Discard(key) => prepared.remove(key, Action::Discard)?,
                Write::Clear(list) => {
                    if let Some((record, id, range)) = cleared(*list) {
                        prepared.table(record).clears.push(Span::new(id, range));
                    }
                }
                adding => prepared.add(adding)?,
            }
        }
        for expect in &commit.expects {
            if let Expect::QuotaAllows(quota, space, inodes) = expect {
                prepared.room(commit, *quota, [*space, *inodes]);
            } else if let Expect::Absent(key) = expect
                && !prepared.made.contains(key)
                && let Some((record, values)) = key_values(key)
            {
                prepared.table(record).absent.push((key.clone(), values));
            }
        }
        Ok(prepared)
    }

    fn table(&mut self, record: Record) -> &mut TablePlan<'c> {
        self.tables.entry(record).or_default()
    }

    fn row(&mut self, record: Record, values: &[Value<'c>]) -> &mut RowPlan<'c> {
        let unique = values[..record.shape().unique].to_vec();
        self.table(record).rows.entry(unique).or_default()
    }

    /// Changes a row under that lock. What is removed or bumped must be there.
    fn change(&mut self, record: Record, lock: Lock, change: Change<'c>) -> Done {
        let bumped = record == Record::Node && change.action == Action::Add;
        let must_exist = change.key.as_ref().filter(|_| bumped || change.action == Action::Delete);
        let row = self.row(record, &change.values);
        match (&mut row.expected, must_exist) {
            (Some(known), Some(key)) if known.key != *key => {
                return Err(EngineError::Conflict(vec![key.clone()]));
            }
            (Some(known), _) => known.lock = known.lock.max(lock),
            (expected, Some(key)) => {
                let row = change.values[..record.shape().named].to_vec();
                *expected = Some(Held { compare: Compare::Exists, lock, row, key: key.clone() });
            }
            _ => {}
        }
        row.changes.push(change);
        Ok(())
    }

    fn expect_row(&mut self, row: &'c Row, hold: Hold) -> Done {
        let Some((record, values)) = row_values(row) else { return Ok(()) };
        let (compare, lock) = match (record, hold) {
            (Record::Node, Hold::Guard) => (Compare::Guard, Lock::Key),
            (Record::Node, _) => (Compare::Exact, Lock::Update),
            _ => (Compare::Exact, Lock::Share),
        };
        let held = Held { compare, lock, row: values, key: row.key() };
        match &mut self.row(record, &held.row).expected {
            // Two rows with one unique key cannot both exist.
            Some(known) if known.key != held.key => return Err(EngineError::Conflict(vec![held.key])),
            Some(known) if known.compare >= compare => {}
            expected => *expected = Some(held),
        }
        Ok(())
    }

    fn step(&mut self, step: Step) -> Done {
        let numbers = [step.writer as i64, step.lane.into(), step.from as i64, step.to as i64];
        let (key, values) = (Some(Key::Writer(step.writer, step.lane)), numbers.map(Value::Int).into());
        self.change(Record::Writer, Lock::Add, Change { action: Action::Step, key, values })
    }

    /// Room is looked for when the quota is charged, and so locked: what must be left then is less.
    fn room(&mut self, commit: &Commit, quota: QuotaKey, room: [i64; 2]) {
        let charged = commit.writes.iter().find_map(|write| match write {
            Write::Charge(key, space, inodes) if *key == quota => Some([*space, *inodes]),
            _ => None,
        });
        let Some(charged) = charged.filter(|_| room.iter().any(|room| *room > 0)) else { return };
        let (kind, of) = quota_columns(quota);
        let (record, mut values) = match quota {
            QuotaKey::Dir(_) => (Record::DirQuota, vec![Value::Int(of)]),
            _ => (Record::Quota, vec![Value::Int(kind), Value::Int(of)]),
        };
        let left = room.into_iter().zip(charged);
        values.extend(
            left.map(|(room, by)| if room > 0 { Value::Int(room.saturating_sub(by)) } else { Value::Null }),
        );
        self.table(record).rooms.push((Key::Quota(quota), values));
    }

    fn put(&mut self, row: &'c Row, new: bool) -> Done {
        let Some((record, values)) = row_values(row) else { return Ok(()) };
        // A row that is absent cannot be locked. Only an insert detects that another client
        // inserted it.
        if new || self.absent.contains(&row.key()) {
            return self.insert(row.key(), record, values);
        }
        self.change(record, Lock::Update, Change { action: Action::Put, key: None, values })
    }

    fn insert(&mut self, key: Key, record: Record, values: Vec<Value<'c>>) -> Done {
        if self.absent.contains(&key) {
            self.made.insert(key.clone());
        }
        self.change(record, Lock::Update, Change { action: Action::Insert, key: Some(key), values })
    }

    fn remove(&mut self, key: &'c Key, action: Action) -> Done {
        let Some((record, values)) = key_values(key) else { return Ok(()) };
        self.change(record, Lock::Update, Change { action, key: Some(key.clone()), values })
    }

    /// A write that adds to a row. What is expected to be absent is made by it.
    fn add(&mut self, write: &'c Write) -> Done {
        let mut values = Vec::new();
        let Some((record, key)) = push_added(write, &mut values) else { return Ok(()) };
        if record == Record::Node {
            return self.change(record, Lock::Key, Change { action: Action::Add, key: Some(key), values });
        }
        let makes = !matches!(record, Record::DirStat | Record::DirQuota);
        if makes && self.absent.contains(&key) {
            return self.insert(key, record, values);
        }
        self.change(record, Lock::Add, Change { action: Action::Add, key: None, values })
    }
}
