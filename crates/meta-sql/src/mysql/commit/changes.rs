//! Rows that are compared and changed by one statement, which must meet all of them.
//!
//! What must stay true: rows are locked in the order of the plan. So the fallback is one statement
//! that locks and compares all, and one that changes them.

use super::{
    flight::Builder,
    writes::{FEW, MANY, int, raised},
};
use crate::{
    codec::Record,
    plan::{Action, Change, Compare, Held},
};

/// Rows that are updated by a statement each. From then on one that compares them and one that
/// stores them cost less.
const EACH: usize = 4;
/// Bytes of a statement whose rows are counted: the count goes into the same packet, which a large
/// one may fill. A longer one is parted into one that compares and one that changes.
const SHORT: usize = 1 << 15;
/// Rows in one statement that gives each values of its own: the server looks for each among all of
/// them.
const WIDE: usize = 64;

type Changed<'c> = (Held<'c>, Change<'c>);

impl Builder<'_> {
    /// Compares rows and changes all of them alike.
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

    /// Statements of so many rows each, and how many each must meet. `change` says what one does
    /// with its rows; there are none if it says nothing or one is too long.
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
                    let numbers =
                        rows.iter().map(|(_, change)| (int(&change.values, 0), int(&change.values, at)));
                    place.each(&mut text, at, numbers);
                }
            }
            (text.len() > start).then(|| text + " WHERE ")
        })
    }
}
