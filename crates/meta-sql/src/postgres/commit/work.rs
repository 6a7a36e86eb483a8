//! A piece of the work of a commit as statements.
//!
//! What must stay true: a statement locks the rows in the order in which the piece of work lists
//! them.

use sluice_meta::schema::{Counter, Key};
use sluice_types::Ino;

use super::super::{
    Store,
    flight::{Arg, Flight},
    read::columns,
    statement::Template,
};
use crate::{
    codec::Record,
    plan::{Action, Change, Compare, Held, Span, Work},
    values::{Value, row_values},
};

/// The meaning of the failure of a statement.
pub(super) enum Diagnosis {
    /// No expectation failed.
    None,
    /// The message names the places of the keys at fault.
    Named(Vec<Key>),
    /// The message names the places of all other keys.
    Spared(Vec<Key>),
    /// Some of these records exist already.
    Existing(Vec<Key>),
    /// The message names all chunks that are sound.
    Chunks(Vec<(i64, i64)>),
}

/// Builds the flight of a commit.
pub(super) struct Draft<'c> {
    pub(super) store: &'c Store,
    pub(super) flight: Flight<'c>,
    /// Of each statement.
    pub(super) diagnoses: Vec<Diagnosis>,
}

impl<'c> Draft<'c> {
    pub(super) fn add(
        &mut self,
        template: Template,
        record: Record,
        args: Vec<Arg<'c>>,
        diagnosis: Diagnosis,
    ) {
        self.flight.add(self.store.catalog.get(template, record), args);
        self.diagnoses.push(diagnosis);
    }

    /// Adds the statements for a piece of work.
    pub(super) fn work(&mut self, work: Work<'c>) {
        match work {
            Work::Hold(record, rows) => self.hold(record, rows),
            Work::Change(record, action, mut rows) => match rows.pop() {
                Some((held, change)) if rows.is_empty() && is_one_statement(record, action, &held) => {
                    self.replace(record, held, change);
                }
                last => {
                    let (held, changes) = rows.into_iter().chain(last).unzip();
                    self.hold(record, held);
                    self.write(record, action, changes);
                }
            },
            Work::Write(record, action, changes) => self.write(record, action, changes),
            Work::Clear(record, ids, span) => self.clear(record, ids, span),
            Work::Absent(record, rows) => self.named(Template::Absent, record, rows),
            Work::QuotaAllows(record, rows) => self.named(Template::QuotaAllows, record, rows),
            Work::Parents(rows) => {
                let rows = rows.into_iter().map(|row| {
                    let [ino, of, _] = row.map(|of| of as u64);
                    (Key::Parents(Ino(ino), Ino(of)), row.map(Value::Int).into())
                });
                self.named(Template::Counted, Record::Parents, rows.collect());
            }
            Work::LastAcl(last) => {
                let last = last.map_or(Value::Null, Value::Int);
                let key = Key::Counter(Counter::AclMaxId);
                self.named(Template::Counted, Record::Acl, vec![(key, vec![last])]);
            }
            Work::FileLocks(record, ino, rows) => {
                let known = [ino.0 as i64, rows.len() as i64].map(Arg::int);
                let mut rows = columns(rows.iter().filter_map(row_values).map(|(_, values)| values));
                rows.resize_with(record.shape().columns.split(',').count(), || Arg::Many(Vec::new()));
                let args = known.into_iter().chain(rows).collect();
                self.add(Template::SameLocks, record, args, Diagnosis::Named(vec![Key::Node(ino)]));
            }
            Work::Empty(dirs) => {
                let rows = dirs.into_iter().map(|dir| (Key::Node(dir), vec![Value::Int(dir.0 as i64)]));
                self.named(Template::Empty, Record::Entry, rows.collect());
            }
        }
    }

    /// Adds a statement whose error names the positions of the failed rows.
    fn named(&mut self, template: Template, record: Record, rows: Vec<(Key, Vec<Value<'c>>)>) {
        let (keys, values): (Vec<Key>, Vec<_>) = rows.into_iter().unzip();
        self.add(template, record, placed(values), Diagnosis::Named(keys));
    }

    fn hold(&mut self, record: Record, rows: Vec<Held<'c>>) {
        let mut rows = rows.into_iter().peekable();
        while let Some(first) = rows.next() {
            let (compare, lock) = (first.compare, first.lock);
            let mut alike = vec![compared(record, first)];
            while let Some(next) = rows.next_if(|next| (next.compare, next.lock) == (compare, lock)) {
                alike.push(compared(record, next));
            }
            self.named(Template::Hold(compare, lock), record, alike);
        }
    }

    /// The only row of a table, which must be as expected and is then replaced or removed, as one
    /// statement instead of two of 60 us.
    fn replace(&mut self, record: Record, held: Held<'c>, change: Change<'c>) {
        let mut args: Vec<Arg<'c>> = held.row.into_iter().map(Arg::One).collect();
        let mut template = Template::Take;
        if change.action == Action::Put {
            template = Template::Swap;
            args.extend(change.values.into_iter().map(Arg::One));
        }
        self.add(template, record, args, Diagnosis::Named(vec![held.key]));
    }

    fn clear(&mut self, record: Record, ids: Vec<Value<'c>>, span: Span<'c>) {
        let nothing = || vec![Value::Null; record.shape().unique - 1];
        let bounds = [span.after, span.before].map(|bound| bound.unwrap_or_else(nothing));
        let bounds = bounds.into_iter().flatten().map(Arg::One);
        let args = std::iter::once(Arg::Many(ids)).chain(bounds).collect();
        self.add(Template::Clear, record, args, Diagnosis::None);
    }

    /// One statement that does the same with many rows, which are in order.
    fn write(&mut self, record: Record, action: Action, changes: Vec<Change<'c>>) {
        let count = Arg::int(changes.len() as i64);
        let (keys, mut rows): (Vec<Option<Key>>, Vec<_>) =
            changes.into_iter().map(|change| (change.key, change.values)).unzip();
        let keys: Vec<Key> = keys.into_iter().flatten().collect();
        let counted = |mut args: Vec<Arg<'c>>| {
            args.push(count);
            args
        };
        let (template, args, diagnosis) = match (action, record) {
            (Action::Step, _) => {
                (Template::Step, rows.into_iter().flatten().map(Arg::One).collect(), Diagnosis::Named(keys))
            }
            (Action::Delete, _) => (Template::Delete, counted(placed(rows)), Diagnosis::Spared(keys)),
            (Action::Discard, _) => (Template::Discard, placed(rows), Diagnosis::None),
            (Action::Put, _) => (Template::Put, columns(rows.into_iter()), Diagnosis::None),
            (Action::Insert, _) if rows.len() == 1 => {
                let only = rows.pop().unwrap_or_default();
                (Template::Insert, only.into_iter().map(Arg::One).collect(), Diagnosis::Existing(keys))
            }
            (Action::Insert, _) => {
                (Template::InsertMany, columns(rows.into_iter()), Diagnosis::Existing(keys))
            }
            (Action::Add, Record::Node) => (Template::Add, counted(placed(rows)), Diagnosis::Spared(keys)),
            (Action::Add, Record::Chunk) => {
                let chunks = rows.iter().map(|row| (row[0].number(), row[1].number())).collect();
                (Template::Add, counted(columns(rows.into_iter())), Diagnosis::Chunks(chunks))
            }
            (Action::Add, _) => (Template::Add, columns(rows.into_iter()), Diagnosis::None),
        };
        self.add(template, record, args, diagnosis);
        if record == Record::Acl && matches!(action, Action::Put | Action::Insert) {
            self.add(Template::Renumber, record, Vec::new(), Diagnosis::None);
        }
    }
}

/// Whether a row that is compared and changed takes one statement.
fn is_one_statement(record: Record, action: Action, held: &Held<'_>) -> bool {
    let shape = record.shape();
    let replaced = action == Action::Put && held.row.len() > shape.unique;
    held.compare == Compare::Exact && (replaced || action == Action::Delete)
}

/// The key of a row, its unique columns, and those to be compared.
fn compared(record: Record, held: Held<'_>) -> (Key, Vec<Value<'_>>) {
    let unique = record.shape().unique;
    let wanted = held.row.into_iter().enumerate().filter(|(at, _)| held.compare.takes(*at, unique));
    (held.key, wanted.map(|(_, value)| value).collect())
}

/// Rows with their places, as parameters.
fn placed(rows: Vec<Vec<Value<'_>>>) -> Vec<Arg<'_>> {
    let places = Arg::places(rows.len());
    std::iter::once(places).chain(columns(rows.into_iter())).collect()
}
