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

use super::{
    super::{
        flight::Arg,
        read::columns,
        statement::{Template, placeholder},
    },
    draft::{Diagnosis, Draft, Rows},
};
use crate::{
    codec::Record,
    plan::{Action, Change, Compare, Expected, Lock, RowPlan, Span, TablePlan, around},
    values::{Value, is_guarded},
};

impl<'c> Draft<'c> {
    /// Adds the statements for one table.
    pub(super) fn table(&mut self, record: Record, mut table: TablePlan<'c>) {
        hold_places(record, &mut table);
        self.at_once(record, &mut table);
        let mut spans = around(take(&mut table.clears), &mut table.rows).into_iter().peekable();
        let is_made = |change: &Change<'_>| matches!(change.action, Action::Put | Action::Insert);
        let numbered =
            record == Record::Acl && table.rows.values().any(|row| row.changes.iter().any(is_made));
        // What is cleared would be absent in any case; what else is absent is looked for when all
        // rows are locked.
        let (before, after) =
            if spans.peek().is_some() { (table.absent, Vec::new()) } else { (Vec::new(), table.absent) };
        self.absent(record, before);
        let mut run = Neighbours { record, template: None, rows: Vec::new(), draft: self };
        let mut late: BTreeMap<Action, Rows<'c>> = BTreeMap::new();
        for (unique, mut row) in table.rows {
            while let Some(span) = spans.next_if(|span| span.is_before(&unique)) {
                run.clear(span);
            }
            row.changes.sort_by_key(|change| change.action);
            if row.placeholder {
                late.entry(Action::Discard).or_default().push((None, unique.clone()));
            }
            let Some(expected) = row.expected else {
                // What need not be there is touched first by what changes it: it could be made
                // meanwhile.
                for change in row.changes {
                    run.push(change.action.into(), change.key, change.values);
                }
                continue;
            };
            let hold = Template::Hold(expected.compare, row.lock);
            run.push(hold, Some(expected.key), compared(expected.compare, unique, expected.row));
            for change in row.changes {
                late.entry(change.action).or_default().push((change.key, change.values));
            }
        }
        spans.for_each(|span| run.clear(span));
        run.end();
        if record == Record::Node {
            self.bumps = late.remove(&Action::Add).unwrap_or_default();
        }
        for (action, rows) in late {
            self.write(record, action.into(), rows);
        }
        self.absent(record, after);
        if numbered {
            self.add(Template::Renumber, record, Vec::new(), Diagnosis::None);
        }
    }

    /// The only row of a table, which must be as expected and is then replaced or removed: as one
    /// statement.
    fn at_once(&mut self, record: Record, table: &mut TablePlan<'c>) {
        if !table.clears.is_empty() || table.rows.len() != 1 || record == Record::Acl {
            return;
        }
        let replaced = record.shape().columns.split(',').count() > record.shape().unique;
        let whole = table.rows.first_entry().filter(|row| {
            let RowPlan { expected, changes, .. } = row.get();
            let exact = expected.as_ref().is_some_and(|expected| expected.compare == Compare::Exact);
            let [change] = &changes[..] else { return false };
            exact && (change.action == Action::Delete || change.action == Action::Put && replaced)
        });
        let Some(RowPlan { expected: Some(expected), changes, .. }) = whole.map(OccupiedEntry::remove) else {
            return;
        };
        let Expected { row, key, .. } = expected;
        let mut args: Vec<Arg<'c>> = row.into_iter().map(Arg::One).collect();
        let mut template = Template::Take;
        for change in changes.into_iter().filter(|change| change.action == Action::Put) {
            template = Template::Swap;
            args.extend(change.values.into_iter().map(Arg::One));
        }
        self.add(template, record, args, Diagnosis::Named(vec![key]));
    }
}

/// What must not be there is made and removed again: so who wants to make it waits, and a look
/// would not see what others have not committed yet. Where rows are cleared, or have no unique key
/// of their own, a look must do.
fn hold_places(record: Record, table: &mut TablePlan<'_>) {
    let shape = record.shape();
    if !table.clears.is_empty()
        || shape.unique != shape.named
        || matches!(record, Record::Acl | Record::Parents)
    {
        return;
    }
    for (key, unique) in take(&mut table.absent) {
        if table.rows.contains_key(&unique) {
            table.absent.push((key, unique));
            continue;
        }
        let mut row = RowPlan { placeholder: true, ..RowPlan::new(Lock::Update) };
        let values = placeholder(record, unique.clone());
        row.changes.push(Change { action: Action::Insert, key: Some(key), values });
        table.rows.insert(unique, row);
    }
}

/// Neighbours with which the same is done, for one statement.
struct Neighbours<'p, 'c> {
    record: Record,
    template: Option<Template>,
    rows: Rows<'c>,
    draft: &'p mut Draft<'c>,
}

impl<'c> Neighbours<'_, 'c> {
    fn push(&mut self, template: Template, key: Option<Key>, values: Vec<Value<'c>>) {
        if self.template != Some(template) {
            self.end();
            self.template = Some(template);
        }
        self.rows.push((key, values));
    }

    fn clear(&mut self, span: Span<'c>) {
        let id = Value::Int(span.id);
        if span.is_all() {
            return self.push(Template::Clear, None, vec![id]);
        }
        self.end();
        let bound = |bound: Option<Vec<Value<'c>>>| {
            bound.unwrap_or_else(|| vec![Value::Null; self.record.shape().unique - 1])
        };
        let args = std::iter::once(id).chain(bound(span.after)).chain(bound(span.before)).map(Arg::One);
        self.draft.add(Template::ClearPart, self.record, args.collect(), Diagnosis::None);
    }

    fn end(&mut self) {
        if let Some(template) = self.template.take() {
            self.draft.write(self.record, template, take(&mut self.rows));
        }
    }
}

/// The unique key, and what is to be compared.
fn compared<'c>(compare: Compare, unique: Vec<Value<'c>>, row: Vec<Value<'c>>) -> Vec<Value<'c>> {
    match compare {
        Compare::Exists => unique,
        Compare::Exact => row,
        Compare::Guard => {
            let guarded = row.into_iter().enumerate().filter(|(at, _)| is_guarded(*at));
            unique.into_iter().chain(guarded.map(|(_, value)| value)).collect()
        }
    }
}

/// Rows with their places, as parameters.
fn placed(rows: Vec<Vec<Value<'_>>>) -> Vec<Arg<'_>> {
    let places = Arg::places(rows.len());
    std::iter::once(places).chain(columns(rows.into_iter())).collect()
}

impl<'c> Draft<'c> {
    /// One statement that does the same with many rows, which are in order.
    pub(super) fn write(&mut self, record: Record, template: Template, rows: Rows<'c>) {
        let count = Arg::int(rows.len() as i64);
        let (keys, mut rows): (Vec<Option<Key>>, Vec<_>) = rows.into_iter().unzip();
        let keys: Vec<Key> = keys.into_iter().flatten().collect();
        let counted = |mut args: Vec<Arg<'c>>| {
            args.push(count);
            args
        };
        let (template, args, diagnosis) = match (template, record) {
            (Template::Hold(..), _) => (template, placed(rows), Diagnosis::Named(keys)),
            (Template::Step, _) => {
                (template, rows.into_iter().flatten().map(Arg::One).collect(), Diagnosis::Named(keys))
            }
            (Template::Delete, _) | (Template::Add, Record::Node) => {
                (template, counted(placed(rows)), Diagnosis::Spared(keys))
            }
            (Template::Discard, _) => (template, placed(rows), Diagnosis::None),
            (Template::Insert, _) if rows.len() == 1 => {
                let only = rows.pop().unwrap_or_default();
                (template, only.into_iter().map(Arg::One).collect(), Diagnosis::Existing(keys))
            }
            (Template::Insert, _) => {
                (Template::InsertMany, columns(rows.into_iter()), Diagnosis::Existing(keys))
            }
            (Template::Add, Record::Chunk) => {
                let chunks = rows.iter().map(|row| (number(row.first()), number(row.get(1)))).collect();
                (template, counted(columns(rows.into_iter())), Diagnosis::Chunks(chunks))
            }
            _ => (template, columns(rows.into_iter()), Diagnosis::None),
        };
        self.add(template, record, args, diagnosis);
    }

    /// Checks that there are no such rows.
    pub(super) fn absent(&mut self, record: Record, absent: Vec<(Key, Vec<Value<'c>>)>) {
        if !absent.is_empty() {
            let (keys, values): (Vec<Key>, Vec<_>) = absent.into_iter().unzip();
            self.add(Template::Absent, record, placed(values), Diagnosis::Named(keys));
        }
    }
}

fn number(value: Option<&Value<'_>>) -> i64 {
    if let Some(Value::Int(number)) = value { *number } else { 0 }
}
