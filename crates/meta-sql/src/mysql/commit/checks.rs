//! Expectations as statements that lock and count rows, and fail if the count differs.
//!
//! What must stay true: rows are found by the index that begins with their key, and in the order of
//! their keys. So no other rows are locked.

use std::fmt::Write as _;

use sluice_meta::schema::{Key, Row};
use sluice_types::Ino;

use super::{flight::Builder, writes::MANY};
use crate::{
    codec::Record,
    plan::{Compare, Held, Lock},
    values::{Value, row_values},
};

impl Builder<'_> {
    /// Locks rows and compares them.
    pub(super) fn hold(&mut self, record: Record, rows: &[Held<'_>]) {
        let is_shared = |held: &Held<'_>| held.lock <= Lock::Share;
        let alike = rows.chunk_by(|a, b| is_shared(a) == is_shared(b));
        for run in alike.flat_map(|run| run.chunks(MANY)) {
            let mut wrong = format!("(SELECT COUNT(*) FROM {} WHERE ", self.tables.of(record).indexed);
            self.condition(&mut wrong, record, &run.iter());
            let mode = if is_shared(&run[0]) { "LOCK IN SHARE MODE" } else { "FOR UPDATE" };
            let _ = write!(wrong, " {mode})<>{}", run.len());
            self.flight.check(&wrong);
        }
    }

    /// The condition that a row is one of these and unchanged.
    pub(super) fn condition<'h>(
        &self,
        out: &mut String,
        record: Record,
        rows: &(impl Iterator<Item = &'h Held<'h>> + Clone),
    ) {
        let place = self.tables.of(record);
        let of = |compare: Compare| -> Vec<&[Value<'_>]> {
            let rows = rows.clone().filter(|held| held.compare == compare);
            rows.map(|held| &held.row[..]).collect()
        };
        place.among_keys(out, &rows.clone().map(|held| &held.row[..]).collect::<Vec<_>>());
        let all = place.all();
        let guarded: Vec<usize> =
            all.iter().copied().filter(|at| Compare::Guard.takes(*at, place.unique)).collect();
        let mut conditions: Vec<String> = Vec::new();
        conditions.extend(self.among(record, &guarded, &of(Compare::Guard)));
        conditions.extend(self.among(record, &all, &of(Compare::Exact)));
        // Rows of which only the key is known.
        let bare = of(Compare::Exists);
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
    fn among(&self, record: Record, columns: &[usize], rows: &[&[Value<'_>]]) -> Option<String> {
        let place = self.tables.of(record);
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

    /// Records that must be absent and are not inserted. This comes after the inserts: of two
    /// commits that each insert what the other expects to be absent, one waits for the other.
    pub(super) fn absent(&mut self, record: Record, absent: &[(Key, Vec<Value<'_>>)]) {
        let place = self.tables.of(record);
        for (_, values) in absent {
            let mut wrong = format!("(SELECT COUNT(*) FROM {} WHERE ", place.indexed);
            let key = std::slice::from_ref(values);
            place.among_keys(&mut wrong, key);
            wrong.push_str(" AND ");
            place.among_named(&mut wrong, key);
            wrong.push_str(" LOCK IN SHARE MODE)<>0");
            self.flight.check(&wrong);
        }
    }

    /// Quotas, which this transaction has charged, must admit so much more.
    pub(super) fn room(&mut self, record: Record, rooms: &[(Key, Vec<Value<'_>>)]) {
        let place = self.tables.of(record);
        let full = rooms.iter().map(|(_, values)| {
            let (key, room) = values.split_at(place.unique);
            let mut full = "(".to_owned();
            place.among_keys(&mut full, &[key]);
            let sums = ["space", "inodes"].into_iter().zip(room).filter_map(|(sum, room)| match room {
                Value::Int(room) => Some(format!("max_{sum}>0 AND used_{sum}+{room}>max_{sum}")),
                _ => None,
            });
            let _ = write!(full, " AND ({}))", sums.collect::<Vec<_>>().join(" OR "));
            full
        });
        let full = full.collect::<Vec<_>>().join(" OR ");
        self.look(&format!("EXISTS(SELECT 1 FROM {} WHERE {full})", place.indexed));
    }

    pub(super) fn last_acl(&mut self, last: Option<i64>) {
        let acl = &self.tables.of(Record::Acl).table;
        self.flight.check(&format!("IFNULL((SELECT MAX(id) FROM {acl}),0)<>{}", last.unwrap_or_default()));
    }

    pub(super) fn parents(&mut self, [ino, parent, count]: [i64; 3]) {
        let edge = &self.tables.of(Record::Entry).table;
        self.flight
            .check(&format!("(SELECT COUNT(*) FROM {edge} WHERE inode={ino} AND parent={parent})<>{count}"));
    }

    /// A directory, which is locked by now, must have no entries.
    pub(super) fn empty_dirs(&mut self, dir: Ino) {
        let edge = &self.tables.of(Record::Entry).table;
        self.look(&format!("EXISTS(SELECT 1 FROM {edge} WHERE parent={})", dir.0 as i64));
    }

    /// Checks without locks: a condition of a statement that does not select would lock what it
    /// reads, and so wait for entries of clients that wait for the directory. What they have not
    /// committed does not count: they lock the same row as this transaction, and come later.
    fn look(&mut self, wrong: &str) {
        self.flight.push(format!("SELECT {wrong} INTO @sluice"));
        self.flight.check("@sluice");
    }

    /// A file that must have these locks and no others. Its node is locked already.
    pub(super) fn locks(&mut self, record: Record, ino: Ino, rows: &[Row]) {
        let (place, count) = (self.tables.of(record), rows.len());
        let all = format!("SELECT COUNT(*) FROM {} WHERE inode={}", place.table, ino.0 as i64);
        let mut wrong = format!("({all})<>{count}");
        let rows: Vec<Vec<Value<'_>>> =
            rows.iter().filter_map(row_values).map(|(_, values)| values).collect();
        let rows: Vec<&[Value<'_>]> = rows.iter().map(|row| &row[..]).collect();
        if let Some(condition) = self.among(record, &place.all(), &rows) {
            let _ = write!(wrong, " OR ({all} AND {condition})<>{count}");
        }
        self.flight.check(&wrong);
    }
}
