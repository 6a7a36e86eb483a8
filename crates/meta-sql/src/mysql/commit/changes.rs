//! Rows that are compared and changed by one statement, which must match all of them.
//!
//! What must stay true: rows are locked in the order of the plan. If one statement cannot do this,
//! the fallback is two statements: one locks and compares all rows, the other changes them.

use super::{
    flight::Builder,
    writes::{FEW, MANY, raised},
};
use crate::{
    codec::Record,
    plan::{Action, Change, Compare, Held},
};

/// Up to this many rows are updated by one statement each. For more, one statement that compares
/// all and one that stores all cost less.
const EACH: usize = 4;
/// Longest statement in bytes whose matched rows are counted, because the count must be in the same
/// packet. A longer one is split into one that compares and one that changes.
const SHORT: usize = 1 << 15;
/// Most rows in one statement that gives each row its own values, because the server searches all
/// of them for each row.
const WIDE: usize = 64;

type Changed<'c> = (Held<'c>, Change<'c>);

impl Builder<'_> {
    /// Compares rows and changes all of them in the same way.
    pub(super) fn change(&mut self, record: Record, action: Action, rows: Vec<Changed<'_>>) {
        let statements = match action {
            Action::Delete | Action::Discard => {
                let delete = format!("DELETE FROM {} WHERE ", self.tables.of(record).table);
                self.statements(record, &rows, MANY, |_| Some(delete.clone()))
            }
            Action::Put => self.replace(record, &rows),
            Action::Add if record == Record::Node && rows.len() <= FEW => self.bump_held(&rows),
            _ => None,
        };
        if let Some(statements) = statements {
            for (statement, rows) in statements {
                self.flight.push_met(statement, rows);
            }
        } else {
            let (held, changes): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
            self.hold(record, &held);
            self.write(record, action, &changes);
        }
    }

    /// Statements of this many rows each, and how many rows each must match. `change` makes the
    /// text for some rows. `None` if it returns `None`, or a statement is too long.
    fn statements<'c>(
        &self,
        record: Record,
        rows: &[Changed<'c>],
        most: usize,
        change: impl Fn(&[Changed<'c>]) -> Option<String>,
    ) -> Option<Vec<(String, usize)>> {
        let each = rows.chunks(most).map(|rows| {
            let mut statement = change(rows)?;
            self.condition(&mut statement, record, &rows.iter().map(|(held, _)| held));
            (statement.len() <= SHORT).then_some((statement, rows.len()))
        });
        each.collect()
    }

    /// Nodes get links, or later times, the same for all.
    fn bump_held(&self, rows: &[Changed<'_>]) -> Option<Vec<(String, usize)>> {
        let (_, first) = rows.first()?;
        let alike = rows.iter().all(|(_, change)| change.values[2..] == first.values[2..]);
        let place = self.tables.of(Record::Node);
        let changed = raised(place, rows.iter().map(|(_, change)| &change.values[..]));
        let update = format!("UPDATE {} SET {changed} WHERE ", place.indexed);
        let update = Some(update).filter(|_| alike && !changed.is_empty());
        self.statements(Record::Node, rows, FEW, |_| update.clone())
    }

    /// Rows are replaced, if they are few, or nodes: only columns that change are written.
    fn replace(&self, record: Record, rows: &[Changed<'_>]) -> Option<Vec<(String, usize)>> {
        let nodes = record == Record::Node && rows.iter().all(|(held, _)| held.compare == Compare::Exact);
        let most = if nodes { WIDE } else { 1 };
        if !nodes && rows.len() > EACH {
            return None;
        }
        let place = self.tables.of(record);
        self.statements(record, rows, most, |rows| {
            let mut text = format!("UPDATE {} SET ", place.indexed);
            let start = text.len();
            for at in place.unique..rows[0].1.values.len() {
                let stays = |(held, change): &Changed<'_>| {
                    held.compare == Compare::Exact && held.row[at] == change.values[at]
                };
                if rows.iter().all(stays) {
                    continue;
                }
                text.push_str(if text.len() > start { "," } else { "" });
                text.push_str(place.name(at));
                text.push('=');
                if let [(_, only)] = rows {
                    place.push(&mut text, at, &only.values[at]);
                } else {
                    let numbers = rows
                        .iter()
                        .map(|(_, change)| (change.values[0].number(), change.values[at].number()));
                    place.each(&mut text, at, numbers);
                }
            }
            (text.len() > start).then(|| text + " WHERE ")
        })
    }
}
