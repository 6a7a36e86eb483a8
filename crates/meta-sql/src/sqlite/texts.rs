//! The texts of all statements, made from the shapes of the records.
//!
//! What must stay true: a replaced row keeps the columns that others added to its table, so rows
//! are updated in place and never deleted and made again.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::{
    codec::Record,
    schema::Dialect,
    text::{Look, equal, first, look, replacing},
    volume::Volume,
};

/// Rows that one [`What::InsertMany`] inserts.
pub(super) const MANY: usize = 16;

/// What a statement does with the rows of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum What {
    Look(Look),
    /// Whether there is any row.
    Any,
    Insert,
    InsertMany,
    /// Inserts a row, or replaces what there is in place: others may have added columns.
    Put,
    /// Removes a row by the columns that name it.
    Delete,
    /// Removes all rows whose first column is given.
    Clear,
    /// Removes chunks of a file from one index up to, not including, another.
    ClearRange,
    /// Takes the record of a lane from one number to the next.
    Step,
    /// Adds to a row.
    Add,
    /// As [`What::Add`], of [`MANY`] rows.
    AddMany,
}

impl What {
    /// The statement, as written for the usual names of tables.
    fn text(self, record: Record) -> String {
        let shape = record.shape();
        let table = shape.table;
        let delete = |count| format!("DELETE FROM {table} WHERE {}", equal(shape.columns, count));
        match self {
            Self::Look(what) => look(what, record, Dialect::Sqlite),
            Self::Any => format!("SELECT 1 FROM {table} LIMIT 1"),
            Self::Insert => insert(record, 1),
            Self::InsertMany => insert(record, MANY),
            Self::Put => format!("{} ON CONFLICT{}", insert(record, 1), replacing(record)),
            Self::Delete => delete(shape.named),
            Self::Clear => delete(1),
            Self::ClearRange => format!("{} AND indx>=$2 AND indx<$3", delete(1)),
            Self::Step => format!("UPDATE {table} SET n=$4 WHERE writer=$1 AND lane=$2 AND n=$3"),
            Self::Add => add(record, 1),
            Self::AddMany => add(record, MANY),
        }
    }
}

fn insert(record: Record, rows: usize) -> String {
    let shape = record.shape();
    let row = vec!["?"; shape.columns.split(',').count()].join(",");
    format!(
        "INSERT INTO {}({}) VALUES {}",
        shape.table,
        shape.columns,
        vec![format!("({row})"); rows].join(",")
    )
}

/// The writes that add to what is there.
fn add(record: Record, rows: usize) -> String {
    let merge = |sum: &str| {
        let shape = record.shape();
        let key = first(shape.columns, shape.unique).join(",");
        format!("{} ON CONFLICT({key}) DO UPDATE SET {sum}", insert(record, rows))
    };
    match record {
        // One whose times stay has none.
        Record::Node => "UPDATE jfs_node SET nlink=max(nlink+$2,0),\
             mtimensec=CASE WHEN (mtime,mtimensec)<($3,$4) THEN $4 ELSE mtimensec END,\
             mtime=max(mtime,coalesce($3,mtime)),\
             ctimensec=CASE WHEN (ctime,ctimensec)<($3,$4) THEN $4 ELSE ctimensec END,\
             ctime=max(ctime,coalesce($3,ctime)) WHERE inode=$1"
            .into(),
        Record::DirStat => "UPDATE jfs_dir_stats SET data_length=data_length+$2,used_space=used_space+$3,\
             used_inodes=used_inodes+$4 WHERE inode=$1"
            .into(),
        Record::DirQuota => "UPDATE jfs_dir_quota SET used_space=used_space+$2,used_inodes=used_inodes+$3 \
             WHERE inode=$1"
            .into(),
        Record::Quota => {
            merge("used_space=used_space+excluded.used_space,used_inodes=used_inodes+excluded.used_inodes")
        }
        Record::SliceRef => merge("refs=refs+excluded.refs-1"),
        // Concatenation makes text of two blobs; the bytes are the same, but the column holds
        // blobs. A damaged record stays, because it is unknown what the new slices would hide.
        Record::Chunk => {
            merge("slices=CAST(slices||excluded.slices AS BLOB) WHERE octet_length(slices)%24=0")
        }
        _ => merge("value=value+excluded.value"),
    }
}

/// The texts of all statements, each made when it is first needed.
#[derive(Default)]
pub(super) struct Texts(Mutex<FxHashMap<Kind, Arc<str>>>);

impl Texts {
    pub(super) fn get(&self, kind: Kind, volume: &Volume) -> Arc<str> {
        let (what, record) = kind;
        let text = || volume.sql(&what.text(record)).replace('$', "?").into();
        self.0.lock().entry(kind).or_insert_with(text).clone()
    }
}

/// What a statement does, and with the rows of which record.
pub(super) type Kind = (What, Record);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rusqlite::Connection;

    use super::*;
    use crate::schema::lacking;

    #[test]
    fn statements_are_understood_and_find_their_rows_by_an_index() {
        let database = Connection::open_in_memory().expect("a database");
        for statement in lacking(Dialect::Sqlite, &Volume::new(""), &BTreeSet::new(), "") {
            database.execute_batch(&statement).expect("a table");
        }
        let texts = Texts::default();
        let check = |what: What, record: Record| {
            let text = &*texts.get((what, record), &Volume::new(""));
            let mut explained = database.prepare(&format!("EXPLAIN QUERY PLAN {text}")).expect(text);
            let steps = explained.raw_query().mapped(|row| row.get(3)).collect::<Result<Vec<String>, _>>();
            let steps = steps.expect("a plan");
            let is_found = |step: &String| !step.starts_with("SCAN") || step.ends_with("VALUES CLAUSE");
            assert!(steps.iter().all(is_found), "{text}: {steps:?}");
        };
        for record in Record::ALL.iter().copied().filter(|record| *record != Record::Parents) {
            for what in [Look::Get, Look::Page].map(What::Look) {
                check(what, record);
            }
            for what in [What::Insert, What::InsertMany, What::Put, What::Delete] {
                check(what, record);
            }
        }
        for what in [Look::Get, Look::List] {
            check(What::Look(what), Record::Parents);
        }
        for record in [Record::Xattr, Record::Flock, Record::Plock, Record::Sustained, Record::Writer] {
            check(What::Look(Look::List), record);
            check(What::Clear, record);
        }
        for record in [Record::Quota, Record::Writer] {
            check(What::Look(Look::Behind), record);
        }
        for what in [Look::Follow, Look::Names, Look::Entries, Look::EntriesNodes] {
            check(What::Look(what), Record::Entry);
        }
        check(What::Look(Look::Range), Record::Chunk);
        check(What::Look(Look::Last), Record::Acl);
        check(What::ClearRange, Record::Chunk);
        check(What::Step, Record::Writer);
        for record in [Record::Node, Record::DirStat, Record::DirQuota, Record::Counter, Record::Chunk] {
            check(What::Add, record);
        }
        for record in [Record::Quota, Record::SliceRef] {
            check(What::AddMany, record);
        }
    }
}
