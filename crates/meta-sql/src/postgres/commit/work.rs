//! The work of a commit on one table, as statements.
//!
//! What must stay true: the statements that touch rows first take them in ascending order of their
//! unique keys, each within itself and all of them together; what comes after them writes rows that
//! this flight has locked already.

use std::{
    collections::{BTreeMap, btree_map::OccupiedEntry},
    mem::take,
};

use sluice_meta::schema::Key;
use smallvec::SmallVec;

use super::{
    super::{
        flight::Arg,
        read::columns,
        statement::{Do, Lock, Same, placeholder},
    },
    Blame, Plan,
    span::{Span, around},
};
use crate::{codec::Record, values::Value};

/// Columns of a node that a guard compares.
const GUARDED: [usize; 9] = [1, 2, 3, 4, 5, 15, 16, 17, 18];

/// The order of the changes of one row.
const CHANGES: [Do; 6] = [Do::Step, Do::Delete, Do::Discard, Do::Put, Do::Insert, Do::Add];

/// What a statement takes of each row, and who is to blame if it fails.
pub(super) type Rows<'c> = Vec<(Option<Key>, Vec<Value<'c>>)>;

/// What is done with a row.
pub(super) struct Touch<'c> {
    /// What must be there, if anything must.
    pub(super) held: Option<Held<'c>>,
    /// How firmly it is locked then.
    pub(super) lock: Lock,
    pub(super) changes: SmallVec<[Change<'c>; 1]>,
    /// Whether it is made only so that nobody else makes it, and is removed again.
    pub(super) placeholder: bool,
}

/// A row that must be there.
pub(super) struct Held<'c> {
    /// How much of it must be as expected.
    pub(super) same: Same,
    pub(super) row: Vec<Value<'c>>,
    pub(super) key: Key,
}

/// A change of a row.
pub(super) struct Change<'c> {
    pub(super) what: Do,
    /// Who is to blame if it fails.
    pub(super) key: Option<Key>,
    pub(super) values: Vec<Value<'c>>,
}

impl Touch<'_> {
    pub(super) fn new(lock: Lock) -> Self {
        Self { held: None, lock, changes: SmallVec::new(), placeholder: false }
    }

    pub(super) fn must_exist(&mut self, key: &Key) {
        self.held.get_or_insert_with(|| Held { same: Same::There, row: Vec::new(), key: key.clone() });
    }
}

/// What is to be done in one table.
#[derive(Default)]
pub(super) struct Work<'c> {
    /// Rows, by their unique key.
    pub(super) rows: BTreeMap<Vec<Value<'c>>, Touch<'c>>,
    pub(super) clears: Vec<Span<'c>>,
    /// What must not be there and is not made either; the columns that name it.
    pub(super) absent: Vec<(Key, Vec<Value<'c>>)>,
}

impl<'c> Work<'c> {
    /// Adds its statements to the plan.
    pub(super) fn plan(mut self, record: Record, plan: &mut Plan<'c>) {
        self.hold_places(record);
        self.at_once(record, plan);
        let mut spans = around(take(&mut self.clears), &mut self.rows).into_iter().peekable();
        let is_made = |change: &Change<'_>| matches!(change.what, Do::Put | Do::Insert);
        let numbered = record == Record::Acl && self.rows.values().any(|row| row.changes.iter().any(is_made));
        // What is cleared would be absent in any case; what else is absent is looked for when all
        // rows are locked.
        let (before, after) =
            if spans.peek().is_some() { (self.absent, Vec::new()) } else { (Vec::new(), self.absent) };
        plan.absent(record, before);
        let mut run = Run { record, what: None, rows: Vec::new(), plan };
        let mut late: BTreeMap<usize, Rows<'c>> = BTreeMap::new();
        for (unique, mut touch) in self.rows {
            while let Some(span) = spans.next_if(|span| span.is_before(&unique)) {
                run.clear(span);
            }
            touch.changes.sort_by_key(|change| rank(change.what));
            if touch.placeholder {
                late.entry(rank(Do::Discard)).or_default().push((None, unique.clone()));
            }
            let Some(held) = touch.held else {
                // What need not be there is touched first by what changes it: it could be made
                // meanwhile.
                touch.changes.into_iter().for_each(|change| run.push(change.what, change.key, change.values));
                continue;
            };
            let row = compared(held.same, unique, held.row);
            run.push(Do::Hold(held.same, touch.lock), Some(held.key), row);
            for change in touch.changes {
                late.entry(rank(change.what)).or_default().push((change.key, change.values));
            }
        }
        spans.for_each(|span| run.clear(span));
        run.end();
        if record == Record::Node {
            plan.bumps = late.remove(&rank(Do::Add)).unwrap_or_default();
        }
        for (rank, rows) in late {
            plan.write(record, CHANGES[rank], rows);
        }
        plan.absent(record, after);
        if numbered {
            plan.add(Do::Renumber, record, Vec::new(), Blame::None);
        }
    }
}

impl<'c> Work<'c> {
    /// What must not be there is made and removed again: so who wants to make it waits, and a look
    /// would not see what others have not committed yet. Where rows are cleared, or have no unique
    /// key of their own, a look must do.
    fn hold_places(&mut self, record: Record) {
        let shape = record.shape();
        if !self.clears.is_empty()
            || shape.unique != shape.named
            || matches!(record, Record::Acl | Record::Parents)
        {
            return;
        }
        for (key, unique) in take(&mut self.absent) {
            if self.rows.contains_key(&unique) {
                self.absent.push((key, unique));
                continue;
            }
            let mut touch = Touch { placeholder: true, ..Touch::new(Lock::Update) };
            let values = placeholder(record, unique.clone());
            touch.changes.push(Change { what: Do::Insert, key: Some(key), values });
            self.rows.insert(unique, touch);
        }
    }

    /// The only row of a table, which must be as expected and is then replaced or removed: as one
    /// statement.
    fn at_once(&mut self, record: Record, plan: &mut Plan<'c>) {
        if !self.clears.is_empty() || self.rows.len() != 1 || record == Record::Acl {
            return;
        }
        let replaced = record.shape().columns.split(',').count() > record.shape().unique;
        let whole = self.rows.first_entry().filter(|row| {
            let Touch { held, changes, .. } = row.get();
            let expected = held.as_ref().is_some_and(|held| held.same == Same::All);
            let [change] = &changes[..] else { return false };
            expected && (change.what == Do::Delete || change.what == Do::Put && replaced)
        });
        let Some(Touch { held: Some(held), changes, .. }) = whole.map(OccupiedEntry::remove) else { return };
        let mut args: Vec<Arg<'c>> = held.row.into_iter().map(Arg::One).collect();
        let mut what = Do::Take;
        for change in changes.into_iter().filter(|change| change.what == Do::Put) {
            what = Do::Swap;
            args.extend(change.values.into_iter().map(Arg::One));
        }
        plan.add(what, record, args, Blame::Named(vec![held.key]));
    }
}

fn rank(what: Do) -> usize {
    CHANGES.iter().position(|change| *change == what).unwrap_or_default()
}

/// Neighbours with which the same is done, for one statement.
struct Run<'p, 'c> {
    record: Record,
    what: Option<Do>,
    rows: Rows<'c>,
    plan: &'p mut Plan<'c>,
}

impl<'c> Run<'_, 'c> {
    fn push(&mut self, what: Do, key: Option<Key>, values: Vec<Value<'c>>) {
        if self.what != Some(what) {
            self.end();
            self.what = Some(what);
        }
        self.rows.push((key, values));
    }

    fn clear(&mut self, span: Span<'c>) {
        let id = Value::Int(span.id);
        if span.is_all() {
            return self.push(Do::Clear, None, vec![id]);
        }
        self.end();
        let bound = |bound: Option<Vec<Value<'c>>>| {
            bound.unwrap_or_else(|| vec![Value::Null; self.record.shape().unique - 1])
        };
        let args = std::iter::once(id).chain(bound(span.after)).chain(bound(span.before)).map(Arg::One);
        self.plan.add(Do::ClearPart, self.record, args.collect(), Blame::None);
    }

    fn end(&mut self) {
        if let Some(what) = self.what.take() {
            self.plan.write(self.record, what, take(&mut self.rows));
        }
    }
}

/// The unique key, and what is to be compared.
fn compared<'c>(same: Same, unique: Vec<Value<'c>>, row: Vec<Value<'c>>) -> Vec<Value<'c>> {
    match same {
        Same::There => unique,
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
    /// One statement that does the same with many rows, which are in order.
    pub(super) fn write(&mut self, record: Record, what: Do, rows: Rows<'c>) {
        let count = Arg::int(rows.len() as i64);
        let (keys, mut rows): (Vec<Option<Key>>, Vec<_>) = rows.into_iter().unzip();
        let keys: Vec<Key> = keys.into_iter().flatten().collect();
        let counted = |mut args: Vec<Arg<'c>>| {
            args.push(count);
            args
        };
        let (what, args, blame) = match (what, record) {
            (Do::Hold(..), _) => (what, given(rows), Blame::Named(keys)),
            (Do::Step, _) => (what, rows.into_iter().flatten().map(Arg::One).collect(), Blame::Named(keys)),
            (Do::Delete, _) | (Do::Add, Record::Node) => (what, counted(given(rows)), Blame::Spared(keys)),
            (Do::Discard, _) => (what, given(rows), Blame::None),
            (Do::Insert, _) if rows.len() == 1 => {
                let only = rows.pop().unwrap_or_default();
                (what, only.into_iter().map(Arg::One).collect(), Blame::Existing(keys))
            }
            (Do::Insert, _) => (Do::InsertMany, columns(rows.into_iter()), Blame::Existing(keys)),
            (Do::Add, Record::Chunk) => {
                let chunks = rows.iter().map(|row| (number(row.first()), number(row.get(1)))).collect();
                (what, counted(columns(rows.into_iter())), Blame::Chunks(chunks))
            }
            _ => (what, columns(rows.into_iter()), Blame::None),
        };
        self.add(what, record, args, blame);
    }

    /// Checks that there are no such rows.
    pub(super) fn absent(&mut self, record: Record, absent: Vec<(Key, Vec<Value<'c>>)>) {
        if !absent.is_empty() {
            let (keys, values): (Vec<Key>, Vec<_>) = absent.into_iter().unzip();
            self.add(Do::Absent, record, given(values), Blame::Named(keys));
        }
    }
}

fn number(value: Option<&Value<'_>>) -> i64 {
    if let Some(Value::Int(number)) = value { *number } else { 0 }
}
