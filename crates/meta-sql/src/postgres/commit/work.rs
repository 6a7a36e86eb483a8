//! The work of a commit on one table, as statements.
//!
//! What must stay true: rows that are there are locked before the first of them is written, unless a single statement
//! writes them all; each statement takes them in ascending order.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{Commit, Write},
    schema::{Counter, Key, encode_slices},
};

use super::{
    super::{
        flight::Arg,
        read::columns,
        statement::{Do, Lock, Same},
    },
    Blame, Plan, quota_key,
};
use crate::{
    codec::Record,
    values::{Value, time_columns},
};

/// Columns of a node that a guard compares.
const GUARDED: [usize; 9] = [1, 2, 3, 4, 5, 15, 16, 17, 18];

/// A row that is there already.
pub(super) struct Touch<'c> {
    /// How much of it must be as expected.
    pub(super) same: Same,
    pub(super) lock: Lock,
    /// What is expected, if anything.
    pub(super) row: Vec<Value<'c>>,
    /// Its key, if anything is expected.
    pub(super) key: Key,
}

/// What is to be done in one table.
#[derive(Default)]
pub(super) struct Work<'c> {
    /// Rows that are there already, by their unique key.
    pub(super) touches: BTreeMap<Vec<Value<'c>>, Touch<'c>>,
    pub(super) absent: Vec<(Key, Vec<Value<'c>>)>,
    pub(super) clears: Vec<Value<'c>>,
    /// File, first index and the one behind the last.
    pub(super) ranges: Vec<[i64; 3]>,
    pub(super) deletes: Vec<(Key, Vec<Value<'c>>)>,
    pub(super) discards: Vec<Vec<Value<'c>>>,
    pub(super) puts: Vec<Vec<Value<'c>>>,
    pub(super) inserts: Vec<(Key, Vec<Value<'c>>)>,
    /// Whether something is added to rows.
    pub(super) adds: bool,
}

impl<'c> Work<'c> {
    /// Adds its statements to the plan, but for those that add to rows.
    pub(super) fn plan(mut self, record: Record, plan: &mut Plan<'c>) {
        let writers = [!self.deletes.is_empty(), !self.discards.is_empty(), !self.puts.is_empty(), self.adds];
        let expecting = self.touches.values().any(|touch| touch.same != Same::Nothing);
        if expecting || writers.into_iter().filter(|writes| *writes).count() > 1 {
            hold(record, std::mem::take(&mut self.touches), plan);
        }
        if !self.absent.is_empty() {
            let (keys, values): (Vec<Key>, Vec<_>) = self.absent.into_iter().unzip();
            plan.add(Do::Absent, record, given(values), Blame::Named(keys));
        }
        if !self.clears.is_empty() {
            self.clears.sort();
            plan.add(Do::Clear, record, vec![Arg::Many(self.clears)], Blame::None);
        }
        self.ranges.sort_unstable();
        for range in self.ranges {
            plan.add(Do::ClearRange, record, range.map(Arg::int).into(), Blame::None);
        }
        if !self.deletes.is_empty() {
            self.deletes.sort_by(|(_, a), (_, b)| a.cmp(b));
            let count = self.deletes.len() as i64;
            let (keys, values): (Vec<Key>, Vec<_>) = self.deletes.into_iter().unzip();
            let mut args = given(values);
            args.push(Arg::int(count));
            plan.add(Do::Delete, record, args, Blame::Spared(keys));
        }
        if !self.discards.is_empty() {
            self.discards.sort();
            plan.add(Do::Discard, record, given(self.discards), Blame::None);
        }
        let numbered = record == Record::Acl && !(self.puts.is_empty() && self.inserts.is_empty());
        if !self.puts.is_empty() {
            self.puts.sort();
            plan.add(Do::Put, record, columns(self.puts.into_iter()), Blame::None);
        }
        if !self.inserts.is_empty() {
            insert(record, self.inserts, plan);
        }
        if numbered {
            plan.add(Do::Renumber, record, Vec::new(), Blame::None);
        }
    }
}

fn insert<'c>(record: Record, mut rows: Vec<(Key, Vec<Value<'c>>)>, plan: &mut Plan<'c>) {
    rows.sort_by(|(_, a), (_, b)| a.cmp(b));
    let (keys, mut values): (Vec<Key>, Vec<_>) = rows.into_iter().unzip();
    let (what, args) = match values.pop() {
        Some(only) if values.is_empty() => (Do::Insert, only.into_iter().map(Arg::One).collect()),
        last => (Do::InsertMany, columns(values.into_iter().chain(last))),
    };
    plan.add(what, record, args, Blame::Existing(keys));
}

/// Locks rows, each as firmly as it will be needed, and checks them.
fn hold<'c>(record: Record, touches: BTreeMap<Vec<Value<'c>>, Touch<'c>>, plan: &mut Plan<'c>) {
    let mut touches = touches.into_iter().peekable();
    while let Some((unique, first)) = touches.next() {
        let (same, lock) = (first.same, first.lock);
        let mut keys = vec![first.key];
        let mut rows = vec![compared(same, unique, first.row)];
        // What follows and is to be held alike goes along: the order stays.
        while let Some((unique, touch)) = touches.next_if(|(_, next)| (next.same, next.lock) == (same, lock))
        {
            keys.push(touch.key);
            rows.push(compared(same, unique, touch.row));
        }
        plan.add(Do::Hold(same, lock), record, given(rows), Blame::Named(keys));
    }
}

/// The unique key, and what is to be compared.
fn compared<'c>(same: Same, unique: Vec<Value<'c>>, row: Vec<Value<'c>>) -> Vec<Value<'c>> {
    match same {
        Same::Nothing => unique,
        Same::All => row,
        Same::Guarded => {
            unique.into_iter().chain(GUARDED.iter().filter_map(|at| row.get(*at).cloned())).collect()
        }
    }
}

/// Rows with their places, as parameters.
fn given(rows: Vec<Vec<Value<'_>>>) -> Vec<Arg<'_>> {
    let places = Arg::places(rows.len());
    std::iter::once(places).chain(columns(rows.into_iter())).collect()
}

impl<'c> Plan<'c> {
    /// The writes that add to rows of that record, one statement for all.
    pub(super) fn adds(&mut self, record: Record, commit: &'c Commit) {
        if record == Record::Node {
            return self.bumps(commit);
        }
        let mut rows: Vec<Vec<Value<'c>>> =
            commit.writes.iter().filter_map(|write| added(record, write)).collect();
        if rows.is_empty() {
            return;
        }
        rows.sort();
        if record != Record::Chunk {
            return self.add(Do::Add, record, columns(rows.into_iter()), Blame::None);
        }
        let count = Arg::int(rows.len() as i64);
        let chunks = rows.iter().map(|row| (number(row.first()), number(row.get(1)))).collect();
        let mut args = columns(rows.into_iter());
        args.push(count);
        self.add(Do::Add, record, args, Blame::Chunks(chunks));
    }

    fn bumps(&mut self, commit: &'c Commit) {
        let (mut timed, mut untimed) = (Vec::new(), Vec::new());
        for write in &commit.writes {
            let Write::Bump { ino, nlink, time } = write else { continue };
            let (id, by) = (Value::Int(ino.0 as i64), Value::Int((*nlink).into()));
            if let Some(time) = time {
                let (micros, nanos) = time_columns(*time);
                timed.push((Key::Node(*ino), vec![id, by, Value::Int(micros), Value::Int(nanos)]));
            } else {
                untimed.push((Key::Node(*ino), vec![id, by]));
            }
        }
        for (what, mut rows) in [(Do::Add, timed), (Do::AddLinks, untimed)] {
            if !rows.is_empty() {
                rows.sort_by(|(_, a), (_, b)| a.cmp(b));
                let count = Arg::int(rows.len() as i64);
                let (keys, values): (Vec<Key>, Vec<_>) = rows.into_iter().unzip();
                let mut args = given(values);
                args.push(count);
                self.add(what, Record::Node, args, Blame::Spared(keys));
            }
        }
    }
}

fn number(value: Option<&Value<'_>>) -> i64 {
    if let Some(Value::Int(number)) = value { *number } else { 0 }
}

/// What a write adds to a row of that record, its unique key first.
fn added(record: Record, write: &Write) -> Option<Vec<Value<'_>>> {
    let values = match (record, write) {
        (Record::Chunk, Write::Append(ino, index, slices)) => {
            let (ino, index) = (Value::Int(ino.0 as i64), Value::Int((*index).into()));
            return Some(vec![ino, index, Value::Bytes(encode_slices(slices).into())]);
        }
        (Record::Counter, Write::Count(counter, by)) if *counter != Counter::AclMaxId => {
            return Some(vec![Value::Text(counter.name().as_bytes().into()), Value::Int(*by)]);
        }
        (Record::SliceRef, Write::Refer(slice, size, by)) => vec![*slice as i64, (*size).into(), 1 + by],
        (Record::DirStat, Write::Use(ino, by)) => vec![ino.0 as i64, by.length, by.space, by.inodes],
        (_, Write::Charge(key, space, inodes)) => match quota_key(*key) {
            (Record::DirQuota, _, of) if record == Record::DirQuota => vec![of, *space, *inodes],
            (Record::Quota, kind, of) if record == Record::Quota => vec![kind, of, *space, *inodes],
            _ => return None,
        },
        _ => return None,
    };
    Some(values.into_iter().map(Value::Int).collect())
}
