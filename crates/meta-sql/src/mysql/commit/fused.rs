//! Rows that are compared and changed by one statement.
//!
//! What must stay true: rows of a record are locked in the order of their keys, so this is done
//! only where all of them are changed alike, and the statement must meet all of them.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::Hold,
    schema::{Key, Row},
};
use sluice_types::{Ino, Time};

use super::{
    builder::Builder,
    checks::MANY,
    sorted::{Held, HeldRows},
    writes::{FEW, Rows, raised},
};
use crate::{
    codec::Record,
    values::{NODE_COLUMNS, node_values, row_values},
};

/// The columns of a node.
type NodeValues = [i64; NODE_COLUMNS];

/// Rows that are updated by a statement each. From then on one that compares them and one that
/// stores them cost less.
const EACH: usize = 4;
/// Bytes of a statement whose rows are counted: the count goes into the same packet, which a large
/// one may fill. A longer one is parted into one that compares and one that changes.
const SHORT: usize = 1 << 15;
/// Rows in one statement that gives each values of its own: the server looks for each among all of
/// them.
const WIDE: usize = 64;

/// What becomes of rows of one record.
#[derive(Clone, Copy, Default)]
pub(super) struct Changes<'s, 'c> {
    pub(super) puts: Option<&'s Rows<'c>>,
    pub(super) deletes: Option<&'s Vec<&'c Key>>,
    pub(super) bumps: &'s [(&'s Ino, &'s (i32, Option<Time>))],
}

impl Changes<'_, '_> {
    fn puts(&self) -> usize {
        self.puts.map_or(0, BTreeMap::len)
    }

    fn deletes(&self) -> usize {
        self.deletes.map_or(0, Vec::len)
    }
}

impl Builder<'_> {
    /// Compares rows and changes them.
    pub(super) fn change(&mut self, record: Record, held: Option<&HeldRows<'_>>, changes: Changes<'_, '_>) {
        if let Some(held) = held
            && (self.delete_held(record, held, changes)
                || self.bump_held(record, held, changes)
                || self.put_nodes(record, held, changes)
                || self.put_held(record, held, changes))
        {
            return;
        }
        self.hold(record, held);
        self.put(record, changes.puts);
        self.delete(record, changes.deletes);
        self.bump(changes.bumps.iter().copied());
    }

    /// All are removed.
    fn delete_held(&mut self, record: Record, held: &HeldRows<'_>, changes: Changes<'_, '_>) -> bool {
        let Some(deletes) = changes.deletes else { return false };
        let alone = changes.puts() == 0 && changes.bumps.is_empty() && deletes.len() == held.len();
        if !alone || !deletes.iter().all(|key| held.contains_key(key)) {
            return false;
        }
        let rows: Vec<(&Key, &Held<'_>)> = held.iter().collect();
        let statements = rows.chunks(MANY).map(|run| {
            let mut statement = format!("DELETE FROM {} WHERE ", self.tables.of(record).table);
            self.condition(&mut statement, record, run);
            (statement, run.len())
        });
        let statements: Vec<(String, usize)> = statements.collect();
        if statements.iter().any(|(statement, _)| statement.len() > SHORT) {
            return false;
        }
        for (statement, rows) in statements {
            self.flight.push_met(statement, rows);
        }
        true
    }

    /// All get links, or later times, the same for all.
    fn bump_held(&mut self, record: Record, held: &HeldRows<'_>, changes: Changes<'_, '_>) -> bool {
        let bumps = changes.bumps;
        let Some((_, (_, time))) = bumps.first() else { return false };
        let alone = changes.puts() == 0 && changes.deletes() == 0 && bumps.len() == held.len();
        let alike = bumps.iter().all(|(ino, bump)| bump.1 == *time && held.contains_key(&Key::Node(**ino)));
        if !alone || !alike || bumps.len() > FEW {
            return false;
        }
        let nodes: Vec<(i64, i64)> =
            bumps.iter().map(|(ino, (nlink, _))| (ino.0 as i64, i64::from(*nlink))).collect();
        let changed = raised(*time, &nodes);
        if changed.is_empty() {
            return false;
        }
        let rows: Vec<(&Key, &Held<'_>)> = held.iter().collect();
        let mut statement =
            format!("UPDATE {} SET {} WHERE ", self.tables.of(record).indexed, changed.join(","));
        self.condition(&mut statement, record, &rows);
        self.flight.push_met(statement, rows.len());
        true
    }

    /// All are nodes and are replaced: only columns that change are written.
    fn put_nodes(&mut self, record: Record, held: &HeldRows<'_>, changes: Changes<'_, '_>) -> bool {
        let Some(puts) = changes.puts else { return false };
        let alone = changes.deletes() == 0 && changes.bumps.is_empty() && puts.len() == held.len();
        if record != Record::Node || !alone || puts.len() < 2 {
            return false;
        }
        let mut rows = Vec::new();
        for ((key, held), (put_key, put)) in held.iter().zip(puts) {
            let Some((old, Hold::Lock)) = held.expect else { return false };
            if let (Row::Node(_, old), Row::Node(ino, new)) = (old, *put)
                && key == put_key
            {
                rows.push(((key, held), node_values(*ino, old), node_values(*ino, new)));
            } else {
                return false;
            }
        }
        let mut statements = Vec::new();
        for rows in rows.chunks(WIDE) {
            let mut statement = format!("UPDATE {} SET ", self.tables.of(record).indexed);
            if !self.assign_each(&mut statement, &rows.iter().map(|(_, old, new)| (old, new))) {
                return false;
            }
            statement.push_str(" WHERE ");
            let run: Vec<(&Key, &Held<'_>)> = rows.iter().map(|(held, ..)| *held).collect();
            self.condition(&mut statement, record, &run);
            statements.push((statement, run.len()));
        }
        for (statement, rows) in statements {
            self.flight.push_met(statement, rows);
        }
        true
    }

    /// Gives nodes the columns in which any of them changes; whether there are any.
    fn assign_each<'v>(
        &self,
        out: &mut String,
        rows: &(impl Iterator<Item = (&'v NodeValues, &'v NodeValues)> + Clone),
    ) -> bool {
        let place = self.tables.of(Record::Node);
        let mut any = false;
        for at in place.unique..NODE_COLUMNS {
            if rows.clone().all(|(old, new)| old[at] == new[at]) {
                continue;
            }
            if any {
                out.push(',');
            }
            any = true;
            place.assign_by_key(out, at, rows.clone().map(|(_, new)| (new[0], new[at])));
        }
        any
    }

    /// All are replaced, and they are few.
    fn put_held(&mut self, record: Record, held: &HeldRows<'_>, changes: Changes<'_, '_>) -> bool {
        let Some(puts) = changes.puts else { return false };
        let alone = changes.deletes() == 0 && changes.bumps.is_empty() && puts.len() == held.len();
        if !alone || puts.len() > EACH || !puts.keys().all(|key| held.contains_key(key)) {
            return false;
        }
        let mut statements = Vec::new();
        for (key, put) in puts {
            let (Some(held), Some(changed)) = (held.get(key), self.changed(record, held.get(key), put))
            else {
                return false;
            };
            let mut statement = format!("UPDATE {} SET {changed} WHERE ", self.tables.of(record).indexed);
            self.condition(&mut statement, record, &[(key, held)]);
            if statement.len() > SHORT {
                return false;
            }
            statements.push(statement);
        }
        for statement in statements {
            self.flight.push_met(statement, 1);
        }
        true
    }

    /// The columns that a row gets; nothing if there are none.
    fn changed(&self, record: Record, held: Option<&Held<'_>>, put: &Row) -> Option<String> {
        let (_, new) = row_values(put)?;
        let old = match held?.expect {
            Some((old, Hold::Lock)) => Some(row_values(old)?.1),
            _ => None,
        };
        let place = self.tables.of(record);
        let mut changed = String::new();
        for (at, value) in new.iter().enumerate().skip(place.unique) {
            if old.as_ref().is_none_or(|old| old[at] != *value) {
                if !changed.is_empty() {
                    changed.push(',');
                }
                place.assign(&mut changed, at, value);
            }
        }
        (!changed.is_empty()).then_some(changed)
    }
}
