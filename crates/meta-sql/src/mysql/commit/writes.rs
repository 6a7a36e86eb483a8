//! Changes as statements, many rows in each.
//!
//! What must stay true: a replaced row keeps the columns that others added to the table, so rows
//! are updated in place; and each statement takes its rows in the order of their keys.

use std::{collections::BTreeMap, fmt::Write as _};

use sluice_meta::{
    engine::{Commit, List, Write},
    schema::{DirStat, Key, QuotaKey, Row},
};
use sluice_types::{Ino, Slice, Time};

use super::{
    super::tables::{push_bytes, push_int, push_text},
    builder::Builder,
    sorted::Sorted,
};
use crate::{
    codec::Record,
    plan::cleared,
    values::{key_values, quota_columns, row_values, time_columns},
};

/// Rows in one statement.
const MANY: usize = 400;
/// Rows in one statement that gives each a number of its own.
pub(super) const FEW: usize = 32;
/// Bytes of slices in one chunk's record: what a BLOB holds. JuiceFS made the column.
const MOST_SLICES: usize = 65_535;
/// Bytes after which a statement takes no more rows.
const LONG: usize = 1 << 18;

pub(super) type Rows<'r> = BTreeMap<Key, &'r Row>;

impl Builder<'_> {
    pub(super) fn insert(&mut self, record: Record, sorted: &Sorted<'_>) {
        self.store(record, sorted.inserts.get(&record), false);
    }

    pub(super) fn put(&mut self, record: Record, rows: Option<&Rows<'_>>) {
        self.store(record, rows, true);
    }

    fn store(&mut self, record: Record, rows: Option<&Rows<'_>>, replace: bool) {
        let place = self.tables.of(record);
        let mut suffix = String::new();
        if replace {
            suffix.push_str(" ON DUPLICATE KEY UPDATE ");
            place.replacing(&mut suffix);
        }
        let rows = rows.into_iter().flatten().filter_map(|(_, row)| row_values(row));
        self.insert_rows(record, &suffix, rows, |out, (_, values)| place.row(out, &values));
    }

    /// Inserts rows, each of which `push` writes in parentheses.
    fn insert_rows<R>(
        &mut self,
        record: Record,
        suffix: &str,
        rows: impl Iterator<Item = R>,
        push: impl Fn(&mut String, R),
    ) {
        let place = self.tables.of(record);
        let mut statement = String::new();
        let mut count = 0;
        for row in rows {
            if statement.is_empty() {
                let _ = write!(statement, "INSERT INTO {}({}) VALUES ", place.table, place.columns);
            } else {
                statement.push(',');
            }
            push(&mut statement, row);
            count += 1;
            if count == MANY || statement.len() > LONG {
                self.flight.push(std::mem::take(&mut statement) + suffix);
                count = 0;
            }
        }
        if !statement.is_empty() {
            self.flight.push(statement + suffix);
        }
    }

    pub(super) fn delete(&mut self, record: Record, keys: Option<&Vec<&Key>>) {
        let place = self.tables.of(record);
        let keys = keys.into_iter().flatten().filter_map(|key| key_values(key));
        let mut keys: Vec<_> = keys.map(|(_, values)| values).collect();
        keys.sort_unstable();
        for keys in keys.chunks(MANY) {
            let mut statement = format!("DELETE FROM {} WHERE ", place.table);
            place.among_keys(&mut statement, keys);
            if place.named > place.unique {
                statement.push_str(" AND ");
                place.among_named(&mut statement, keys);
            }
            self.flight.push(statement);
        }
    }

    /// Removes whole collections of this record, those that are alike together.
    pub(super) fn clear(&mut self, record: Record, lists: &[List]) {
        let mut alike: BTreeMap<Option<(u32, u32)>, Vec<i64>> = BTreeMap::new();
        for list in lists {
            if let Some((of, owner, range)) = cleared(*list)
                && of == record
            {
                alike.entry(range).or_default().push(owner as i64);
            }
        }
        let place = self.tables.of(record);
        let owner = place.columns.split(',').next().unwrap_or_default();
        for (range, mut owners) in alike {
            owners.sort_unstable();
            let rest = range.map(|(from, to)| format!(" AND indx>={from} AND indx<{to}")).unwrap_or_default();
            for owners in owners.chunks(MANY) {
                let mut statement = format!("DELETE FROM {} WHERE {owner} IN (", place.table);
                for (at, owner) in owners.iter().enumerate() {
                    if at > 0 {
                        statement.push(',');
                    }
                    push_int(&mut statement, *owner);
                }
                self.flight.push(statement + ")" + &rest);
            }
        }
    }

    /// Adds to links and raises times, those with one time together.
    pub(super) fn bump<'b>(&mut self, bumps: impl Iterator<Item = (&'b Ino, &'b (i32, Option<Time>))>) {
        let mut by_time: BTreeMap<Option<Time>, Vec<(i64, i64)>> = BTreeMap::new();
        for (ino, (nlink, time)) in bumps {
            by_time.entry(*time).or_default().push((ino.0 as i64, i64::from(*nlink)));
        }
        for (time, nodes) in by_time {
            for nodes in nodes.chunks(FEW) {
                let changes = raised(time, nodes);
                self.update(Record::Node, &changes, nodes.iter().map(|(ino, _)| *ino));
            }
        }
    }

    fn update(&mut self, record: Record, changes: &[String], keys: impl Iterator<Item = i64>) {
        if changes.is_empty() {
            return;
        }
        let place = self.tables.of(record);
        let mut statement = format!("UPDATE {} SET {} WHERE inode IN (", place.indexed, changes.join(","));
        for (at, key) in keys.enumerate() {
            if at > 0 {
                statement.push(',');
            }
            push_int(&mut statement, key);
        }
        statement.push(')');
        self.flight.push(statement);
    }

    /// Adds to the usage of directories, then of those who own.
    pub(super) fn add_usage(
        &mut self,
        uses: &BTreeMap<Ino, DirStat>,
        charges: &BTreeMap<QuotaKey, (i64, i64)>,
    ) {
        let uses: Vec<(i64, [i64; 3])> =
            uses.iter().map(|(ino, by)| (ino.0 as i64, [by.length, by.space, by.inodes])).collect();
        self.add_to(Record::DirStat, ["data_length", "used_space", "used_inodes"], &uses);
        let (dirs, owners): (Vec<_>, Vec<_>) =
            charges.iter().partition(|(key, _)| matches!(key, QuotaKey::Dir(_)));
        let dirs: Vec<(i64, [i64; 2])> = dirs
            .into_iter()
            .map(|(key, (space, inodes))| (quota_columns(*key).1, [*space, *inodes]))
            .collect();
        self.add_to(Record::DirQuota, ["used_space", "used_inodes"], &dirs);
        let adding = " ON DUPLICATE KEY UPDATE used_space=used_space+VALUES(used_space),\
                      used_inodes=used_inodes+VALUES(used_inodes)";
        self.insert_rows(Record::Quota, adding, owners.into_iter(), |out, (key, (space, inodes))| {
            let (kind, of) = quota_columns(*key);
            let _ = write!(out, "({kind},{of},-1,-1,{space},{inodes})");
        });
    }

    /// Adds to numbers of rows that may exist.
    fn add_to<const N: usize>(&mut self, record: Record, columns: [&str; N], rows: &[(i64, [i64; N])]) {
        for rows in rows.chunks(FEW) {
            let mut changes = Vec::new();
            for (at, column) in columns.iter().enumerate() {
                if rows.iter().any(|(_, by)| by[at] != 0) {
                    let mut change = format!("{column}={column}+");
                    each(&mut change, rows.iter().map(|(key, by)| (*key, by[at])));
                    changes.push(change);
                }
            }
            self.update(record, &changes, rows.iter().map(|(key, _)| *key));
        }
    }

    pub(super) fn count(&mut self, counts: &BTreeMap<&'static str, i64>) {
        let adding = " ON DUPLICATE KEY UPDATE value=value+VALUES(value)";
        self.insert_rows(Record::Counter, adding, counts.iter(), |out, (name, by)| {
            out.push('(');
            push_text(out, name.as_bytes());
            let _ = write!(out, ",{by})");
        });
    }

    /// Adds to references; a slice without a row has one.
    pub(super) fn refer(&mut self, refers: &BTreeMap<(u64, u32), i64>) {
        let adding = " ON DUPLICATE KEY UPDATE refs=refs+VALUES(refs)-1";
        self.insert_rows(Record::SliceRef, adding, refers.iter(), |out, ((slice, size), by)| {
            let _ = write!(out, "({},{},{})", *slice as i64, *size as i32, 1 + by);
        });
    }

    /// Appends to chunks, unless their records are damaged, for nobody could tell what the new
    /// slices lie on, or would become too long.
    pub(super) fn append(&mut self, appends: &BTreeMap<(Ino, u32), Vec<u8>>) {
        let adding = format!(
            " ON DUPLICATE KEY UPDATE slices=IF(LENGTH(slices)%24=0 AND LENGTH(slices)+LENGTH(VALUES(slices))\
             <={MOST_SLICES},CONCAT(slices,VALUES(slices)),NULL)"
        );
        self.insert_rows(Record::Chunk, &adding, appends.iter(), |out, ((ino, index), slices)| {
            let _ = write!(out, "({},{},", ino.0 as i64, *index as i32);
            push_bytes(out, slices);
            out.push(')');
        });
    }
}

/// The chunks whose records, which hold so many slices now, have no room for what the commit
/// appends.
pub(crate) fn overflowing(commit: &Commit, slices: impl Fn(Ino, u32) -> usize) -> Vec<Key> {
    let full = commit.writes.iter().filter_map(|write| match write {
        Write::Append(ino, index, more) => {
            let bytes = (slices(*ino, *index) + more.len()) * Slice::BYTES;
            (bytes > MOST_SLICES).then_some(Key::Chunk(*ino, *index))
        }
        _ => None,
    });
    full.collect()
}

/// What raises the times of nodes and adds to their links.
pub(super) fn raised(time: Option<Time>, nodes: &[(i64, i64)]) -> Vec<String> {
    let mut changes = Vec::new();
    if let Some(time) = time {
        let (micros, nanos) = time_columns(time);
        // From left to right: the nanoseconds see the old microseconds.
        for name in ["mtime", "ctime"] {
            changes.push(format!(
                "{name}nsec=IF(({name},{name}nsec)<({micros},{nanos}),{nanos},{name}nsec),\
                 {name}=GREATEST({name},{micros})"
            ));
        }
    }
    if nodes.iter().any(|(_, nlink)| *nlink != 0) {
        let mut change = "nlink=GREATEST(nlink+".to_owned();
        each(&mut change, nodes.iter().copied());
        changes.push(change + ",0)");
    }
    changes
}

/// The number that belongs to each inode.
fn each(out: &mut String, numbers: impl Iterator<Item = (i64, i64)> + Clone) {
    let mut values = numbers.clone().map(|(_, value)| value);
    let first = values.next().unwrap_or_default();
    if values.all(|value| value == first) {
        let _ = write!(out, "({first})");
        return;
    }
    out.push_str("CASE inode");
    for (ino, value) in numbers {
        let _ = write!(out, " WHEN {ino} THEN {value}");
    }
    out.push_str(" END");
}
