//! What must hold, as statements that lock it, count it, and fail if the count is another.
//!
//! What must stay true: rows are found by the index that their key leads, so that no others are
//! locked, and in the order of their keys.

use std::fmt::Write as _;

use sluice_meta::{
    engine::{Hold, List},
    schema::{Counter, Key, Row},
};

use super::{
    builder::Builder,
    sorted::{Held, HeldRows, Sorted},
};
use crate::{
    codec::Record,
    values::{Value, is_guarded, key_values, row_values},
};

/// Rows in one statement.
pub(super) const MANY: usize = 400;

impl Builder<'_> {
    /// Locks rows and compares them.
    pub(super) fn hold(&mut self, record: Record, rows: Option<&HeldRows<'_>>) {
        let Some(rows) = rows else { return };
        if record == Record::Parents {
            return rows.values().filter_map(|held| held.expect).for_each(|(row, _)| self.counted(row));
        }
        let rows: Vec<(&Key, &Held<'_>)> = rows.iter().collect();
        for run in rows.chunk_by(|(_, a), (_, b)| a.written == b.written) {
            for run in run.chunks(MANY) {
                self.hold_run(record, run);
            }
        }
    }

    /// Rows that are locked alike.
    fn hold_run(&mut self, record: Record, run: &[(&Key, &Held<'_>)]) {
        let place = self.tables.of(record);
        let mut wrong = format!("(SELECT COUNT(*) FROM {} WHERE ", place.indexed);
        self.condition(&mut wrong, record, run);
        let mode = if run[0].1.written { "FOR UPDATE" } else { "LOCK IN SHARE MODE" };
        let _ = write!(wrong, " {mode})<>{}", run.len());
        self.flight.check(&wrong);
    }

    /// The condition that a row is one of these and as it was.
    pub(super) fn condition(&self, out: &mut String, record: Record, run: &[(&Key, &Held<'_>)]) {
        let place = self.tables.of(record);
        let mut keys: Vec<Vec<Value<'_>>> = run.iter().filter_map(|(key, _)| values_of(key)).collect();
        keys.sort_unstable();
        place.among_keys(out, &keys);
        let mut conditions: Vec<String> = Vec::new();
        let guarded = |held: &Held<'_>| matches!(held.expect, Some((Row::Node(..), Hold::Guard)));
        let all = place.all();
        let named: Vec<usize> =
            all.iter().copied().filter(|at| *at < place.unique || is_guarded(*at)).collect();
        for (columns, wanted) in [(&named, true), (&all, false)] {
            let rows = run.iter().filter(|(_, held)| guarded(held) == wanted);
            let rows = rows.filter_map(|(_, held)| held.expect);
            conditions.extend(self.among(record, columns, rows.map(|(row, _)| row)));
        }
        // Those of which no more is known than their key.
        let bare = run.iter().filter(|(_, held)| held.expect.is_none());
        let bare: Vec<Vec<Value<'_>>> = bare.filter_map(|(key, _)| values_of(key)).collect();
        if !bare.is_empty() && (!conditions.is_empty() || place.named > place.unique) {
            let mut condition = String::new();
            place.among_named(&mut condition, &bare);
            conditions.push(condition);
        }
        if !conditions.is_empty() {
            let _ = write!(out, " AND ({})", conditions.join(" OR "));
        }
    }

    /// The condition that a row is one of these, in these columns. Columns that hold the same in
    /// all of them, as most do, are compared once.
    fn among<'r>(
        &self,
        record: Record,
        columns: &[usize],
        rows: impl Iterator<Item = &'r Row>,
    ) -> Option<String> {
        let place = self.tables.of(record);
        let rows: Vec<Vec<Value<'_>>> = rows.filter_map(row_values).map(|(_, values)| values).collect();
        let (first, others) = rows.split_first()?;
        let (alike, apart): (Vec<usize>, Vec<usize>) =
            columns.iter().partition(|at| others.iter().all(|row| row[**at] == first[**at]));
        let mut condition = "(".to_owned();
        if !alike.is_empty() {
            place.exact_columns(&mut condition, &alike);
            condition.push('=');
            place.exact(&mut condition, &alike, first);
        }
        for (number, row) in rows.iter().enumerate().filter(|_| !apart.is_empty()) {
            if number > 0 {
                condition.push(',');
            } else {
                condition.push_str(if alike.is_empty() { "" } else { " AND " });
                place.exact_columns(&mut condition, &apart);
                condition.push_str(" IN (");
            }
            place.exact(&mut condition, &apart, row);
        }
        condition.push_str(if apart.is_empty() { ")" } else { "))" });
        Some(condition)
    }

    /// A record that is counted from others.
    fn counted(&mut self, row: &Row) {
        match row {
            Row::Parents(ino, parent, count) => self.parents(*ino, *parent, *count),
            Row::Counter(_, value) => {
                let acl = &self.tables.of(Record::Acl).table;
                self.flight.check(&format!("IFNULL((SELECT MAX(id) FROM {acl}),0)<>{value}"));
            }
            _ => {}
        }
    }

    fn parents(&mut self, ino: sluice_types::Ino, parent: sluice_types::Ino, count: i64) {
        let edge = &self.tables.edge;
        let (ino, parent) = (ino.0 as i64, parent.0 as i64);
        self.flight
            .check(&format!("(SELECT COUNT(*) FROM {edge} WHERE inode={ino} AND parent={parent})<>{count}"));
    }

    /// Records that must not be there and are not made. Behind the inserts: of two commits that
    /// each make what the other one expects to be absent, one waits for the other.
    pub(super) fn absent(&mut self, record: Record, sorted: &Sorted<'_>) {
        for key in sorted.absent.get(&record).into_iter().flatten() {
            match (key, key_values(key)) {
                (Key::Parents(ino, parent), _) => self.parents(*ino, *parent, 0),
                (Key::Counter(Counter::AclMaxId), _) => {
                    let acl = &self.tables.of(Record::Acl).table;
                    self.flight.check(&format!("EXISTS(SELECT 1 FROM {acl})"));
                }
                (_, Some((_, values))) => {
                    let place = self.tables.of(record);
                    let mut wrong = format!("(SELECT COUNT(*) FROM {} WHERE ", place.indexed);
                    let key = [values];
                    place.among_keys(&mut wrong, &key);
                    wrong.push_str(" AND ");
                    place.among_named(&mut wrong, &key);
                    wrong.push_str(" LOCK IN SHARE MODE)<>0");
                    self.flight.check(&wrong);
                }
                _ => {}
            }
        }
    }

    /// A collection that must hold these records and no others. Its node is locked already.
    pub(super) fn same(&mut self, list: List, rows: &[Row]) -> Result<(), String> {
        let (record, ino) = match list {
            List::Flocks(ino) => (Record::Flock, ino),
            List::Plocks(ino) => (Record::Plock, ino),
            List::Xattrs(ino) => (Record::Xattr, ino),
            _ => return Err(format!("{list:?} cannot be compared")),
        };
        let (place, count) = (self.tables.of(record), rows.len());
        let all = format!("SELECT COUNT(*) FROM {} WHERE inode={}", place.table, ino.0 as i64);
        let mut wrong = format!("({all})<>{count}");
        if let Some(condition) = self.among(record, &place.all(), rows.iter()) {
            let _ = write!(wrong, " OR ({all} AND {condition})<>{count}");
        }
        self.flight.check(&wrong);
        Ok(())
    }
}

fn values_of(key: &Key) -> Option<Vec<Value<'_>>> {
    key_values(key).map(|(_, values)| values)
}
