//! Changes as statements, many rows in each.
//!
//! What must stay true: a replaced row keeps the columns that others added to the table, so rows
//! are updated in place; and each statement takes its rows in the order of their keys.

use std::{collections::BTreeMap, fmt::Write as _};

use sluice_meta::{
    engine::{Commit, Write},
    schema::Key,
};
use sluice_types::{Ino, Slice};

use super::{
    super::tables::{Place, commas},
    flight::Builder,
};
use crate::{
    codec::Record,
    log::appended,
    plan::{Action, Change, Span},
    values::Value,
};

/// Rows in one statement.
pub(super) const MANY: usize = 400;
/// Rows in one statement that gives each a number of its own.
pub(super) const FEW: usize = 32;
/// Bytes of slices in one chunk's record, or of a line of the change log: what a BLOB or a TEXT
/// holds. JuiceFS made the columns.
const MOST: usize = 65_535;
/// Bytes after which a statement takes no more rows.
const LONG: usize = 1 << 18;

/// The values of a row, or those that change it.
type Values<'v> = &'v [Value<'v>];

impl Builder<'_> {
    /// Does the same with many rows.
    pub(super) fn write(&mut self, record: Record, action: Action, changes: &[Change<'_>]) {
        let rows: Vec<Values<'_>> = changes.iter().map(|change| &change.values[..]).collect();
        match (action, record) {
            (Action::Step, _) => rows.iter().for_each(|step| self.step(step)),
            (Action::Delete | Action::Discard, _) => self.delete(record, &rows),
            (Action::Insert, _) => self.insert(record, &rows, &self.tables.of(record).refusing()),
            (Action::Put, _) => self.insert(record, &rows, &self.tables.of(record).replacing()),
            (Action::Add, Record::Node) => self.bump(&rows),
            (Action::Add, Record::DirStat | Record::DirQuota) => self.add_to(record, &rows),
            (Action::Add, _) => self.insert(record, &rows, &adding(record)),
        }
    }

    /// Takes the writer record from one number to the next.
    fn step(&mut self, step: Values<'_>) {
        let table = &self.tables.of(Record::Writer).table;
        let [writer, lane, from, to] = [0, 1, 2, 3].map(|at| step[at].number());
        self.flight
            .number(format!("UPDATE {table} SET n={to} WHERE writer={writer} AND lane={lane} AND n={from}"));
    }

    /// Inserts rows; `suffix` says what becomes of those that exist.
    pub(super) fn insert<'v>(&mut self, record: Record, rows: &[impl AsRef<[Value<'v>]>], suffix: &str) {
        let place = self.tables.of(record);
        let mut rows = rows.iter().peekable();
        while rows.peek().is_some() {
            let mut statement = format!("INSERT INTO {}({}) VALUES ", place.table, place.columns);
            for (at, row) in rows.by_ref().take(MANY).enumerate() {
                statement.push_str(if at > 0 { "," } else { "" });
                place.row(&mut statement, row.as_ref());
                if statement.len() > LONG {
                    break;
                }
            }
            self.flight.push(statement + suffix);
        }
    }

    fn delete(&mut self, record: Record, rows: &[Values<'_>]) {
        let place = self.tables.of(record);
        for rows in rows.chunks(MANY) {
            let mut statement = format!("DELETE FROM {} WHERE ", place.table);
            place.among_keys(&mut statement, rows);
            if place.named > place.unique {
                statement.push_str(" AND ");
                place.among_named(&mut statement, rows);
            }
            self.flight.push(statement);
        }
    }

    /// Removes what these have in that part of the table.
    pub(super) fn clear(&mut self, record: Record, ids: &[Value<'_>], span: &Span<'_>) {
        let place = self.tables.of(record);
        for ids in ids.chunks(MANY) {
            let mut statement = format!("DELETE FROM {} WHERE {} IN ", place.table, place.name(0));
            list(&mut statement, place, ids.iter());
            for (sign, bound) in [('>', &span.after), ('<', &span.before)] {
                if let Some(bound) = bound {
                    statement.push_str(" AND ");
                    place.beside(&mut statement, sign, bound);
                }
            }
            self.flight.push(statement);
        }
    }

    /// Adds to links and raises times, those with one time together.
    fn bump(&mut self, rows: &[Values<'_>]) {
        let mut by_time: BTreeMap<Values<'_>, Vec<Values<'_>>> = BTreeMap::new();
        for row in rows {
            by_time.entry(&row[2..]).or_default().push(row);
        }
        for rows in by_time.values().flat_map(|rows| rows.chunks(FEW)) {
            let changes = raised(self.tables.of(Record::Node), rows.iter().copied());
            self.update(Record::Node, &changes, rows);
        }
    }

    fn update(&mut self, record: Record, changes: &str, rows: &[Values<'_>]) {
        let place = self.tables.of(record);
        if !changes.is_empty() {
            let mut statement = format!("UPDATE {} SET {changes} WHERE inode IN ", place.indexed);
            list(&mut statement, place, rows.iter().map(|row| &row[0]));
            self.flight.push(statement);
        }
    }

    /// Adds to the last columns of rows that may exist.
    fn add_to(&mut self, record: Record, rows: &[Values<'_>]) {
        let place = self.tables.of(record);
        for rows in rows.chunks(FEW) {
            let mut changes = String::new();
            let limits = place.all().len() - rows[0].len();
            for at in (1..rows[0].len()).filter(|at| rows.iter().any(|row| row[*at].number() != 0)) {
                let (comma, name) = (if changes.is_empty() { "" } else { "," }, place.name(limits + at));
                let _ = write!(changes, "{comma}{name}={name}+");
                place.each(
                    &mut changes,
                    limits + at,
                    rows.iter().map(|row| (row[0].number(), row[at].number())),
                );
            }
            self.update(record, &changes, rows);
        }
    }
}

/// How to add values to a row that exists. A slice without a row has one reference. Nothing is
/// added to a chunk that would become too long, or whose records are damaged, because it is unknown
/// what the new slices would hide.
fn adding(record: Record) -> String {
    let change = match record {
        Record::SliceRef => "refs=refs+VALUES(refs)-1".into(),
        Record::Quota => {
            "used_space=used_space+VALUES(used_space),used_inodes=used_inodes+VALUES(used_inodes)".into()
        }
        Record::Chunk => format!(
            "slices=IF(LENGTH(slices)%{0}=0 AND LENGTH(slices)+LENGTH(VALUES(slices))<={MOST},\
             CONCAT(slices,VALUES(slices)),NULL)",
            Slice::BYTES
        ),
        _ => "value=value+VALUES(value)".into(),
    };
    format!(" ON DUPLICATE KEY UPDATE {change}")
}

/// The chunks whose records, which hold so many slices now, have no room for what the commit
/// appends.
pub(crate) fn overflowing(commit: &Commit, slices: impl Fn(Ino, u32) -> usize) -> Vec<Key> {
    let full = commit.writes.iter().filter_map(|write| match write {
        Write::Append(ino, index, more) => {
            let bytes = (slices(*ino, *index) + more.len()) * Slice::BYTES;
            (bytes > MOST).then_some(Key::Chunk(*ino, *index))
        }
        _ => None,
    });
    full.collect()
}

/// The rows that append the lines of a commit.
pub(super) fn lines(commit: &Commit) -> Vec<[Value<'_>; 2]> {
    let fits = |line: &&[u8]| {
        if line.len() > MOST {
            let about = String::from_utf8_lossy(&line[..80]);
            tracing::warn!(%about, "a line of the change log is longer than MySQL takes; it is left out");
        }
        line.len() <= MOST
    };
    appended(commit).filter(fits).map(|line| [Value::Null, Value::Text(line.into())]).collect()
}

/// What raises the times of nodes, all to the same, and adds to their links.
pub(super) fn raised<'v>(place: &Place, rows: impl Iterator<Item = Values<'v>> + Clone) -> String {
    let mut changes = String::new();
    if let Some([_, _, Value::Int(micros), Value::Int(nanos)]) = rows.clone().next() {
        // From left to right: the nanoseconds see the old microseconds.
        for name in ["mtime", "ctime"] {
            let comma = if changes.is_empty() { "" } else { "," };
            let _ = write!(
                changes,
                "{comma}{name}nsec=IF(({name},{name}nsec)<({micros},{nanos}),{nanos},{name}nsec),\
                 {name}=GREATEST({name},{micros})"
            );
        }
    }
    if rows.clone().any(|row| row[1].number() != 0) {
        changes.push_str(if changes.is_empty() { "nlink=GREATEST(nlink+" } else { ",nlink=GREATEST(nlink+" });
        place.each(&mut changes, 0, rows.map(|row| (row[0].number(), row[1].number())));
        changes.push_str(",0)");
    }
    changes
}

/// Values of the first column, in parentheses.
fn list<'v>(out: &mut String, place: &Place, values: impl Iterator<Item = &'v Value<'v>>) {
    out.push('(');
    commas(out, values, |out, value| place.push(out, 0, value));
    out.push(')');
}
