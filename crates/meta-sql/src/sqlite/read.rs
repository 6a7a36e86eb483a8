//! Answers to reads: one statement each.
//!
//! What must stay true: an answer says what the tables hold and decides nothing. Parents are not
//! stored in SQL; they are counted from the entries that name the inode.

use rusqlite::{CachedStatement, types::ValueRef};
use sluice_meta::{
    engine::{EngineError, Found, List, Read},
    schema::{Counter, Key, Row},
};
use sluice_types::{Ino, Name};
use smallvec::SmallVec;

use super::{
    error::is_missing_table,
    options::Options,
    statements::{Statements, bind},
    texts::{Kind, What},
};
use crate::{
    codec::{Columns, Damage, Record, decode, decode_joined},
    text::{Look, listed},
    values::{Value, id, int, push_key},
};

impl Columns for rusqlite::Row<'_> {
    fn int(&self, at: usize) -> Result<i64, String> {
        match self.get_ref(at) {
            Ok(ValueRef::Integer(number)) => Ok(number),
            Ok(ValueRef::Null) => Ok(0),
            Ok(other) => Err(format!("column {at} holds {}, not a number", other.data_type())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn bytes(&self, at: usize) -> Result<&[u8], String> {
        match self.get_ref(at) {
            Ok(ValueRef::Blob(bytes) | ValueRef::Text(bytes)) => Ok(bytes),
            Ok(ValueRef::Null) => Ok(&[]),
            Ok(other) => Err(format!("column {at} holds {}, not bytes", other.data_type())),
            Err(error) => Err(error.to_string()),
        }
    }

    fn is_null(&self, at: usize) -> bool {
        matches!(self.get_ref(at), Ok(ValueRef::Null))
    }
}

/// Reads on one connection.
#[derive(Clone, Copy)]
pub(super) struct Reader<'s, 'c> {
    pub(super) statements: &'s Statements<'c>,
    pub(super) options: &'c Options,
}

impl<'s, 'c> Reader<'s, 'c> {
    pub(super) fn new(statements: &'s Statements<'c>) -> Self {
        Self { statements, options: statements.options }
    }

    /// Answers to several reads.
    pub(super) fn answers(self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        let xattrs = |read: &Read| matches!(read, Read::All(List::Xattrs(_)));
        let none = self.without_xattrs(reads.iter().filter(|read| xattrs(read)).count())?;
        // Collected, it would grow and move many times.
        let mut found = Vec::with_capacity(reads.len());
        for read in reads {
            found.push(if none && xattrs(read) { Found::Rows(Vec::new()) } else { self.answer(read)? });
        }
        Ok(found)
    }

    /// Whether there are no extended attributes at all, as in most volumes. Asked only for `count`
    /// questions that it would save, if they are more than it costs.
    pub(super) fn without_xattrs(self, count: usize) -> Result<bool, EngineError> {
        let mut any = count < 4;
        if !any {
            self.rows((What::Any, Record::Xattr), &[], |_| {
                any = true;
                Ok(())
            })?;
        }
        Ok(!any)
    }

    pub(super) fn answer(self, read: &Read) -> Result<Found, EngineError> {
        Ok(match read {
            Read::Get(key) => Found::Row(self.get(key)?),
            Read::Follow(dir, name) => {
                let mut found = Vec::with_capacity(2);
                let entry = [id(dir.0), Value::Bytes(name[..].into())];
                self.rows((What::Look(Look::Follow), Record::Entry), &entry, |row| {
                    decode_joined(row, 0, |row| found.push(row))
                })?;
                Found::Rows(found)
            }
            Read::Names { dir, limit } => Found::Names(self.names(*dir, *limit)?),
            Read::All(list) => Found::Rows(self.all(*list)?),
        })
    }

    /// Hands each row of a result to `take`.
    pub(super) fn rows(
        self,
        kind: Kind,
        values: &[Value<'_>],
        mut take: impl FnMut(&rusqlite::Row<'_>) -> Result<(), Damage>,
    ) -> Result<(), EngineError> {
        let failed = |error| self.options.failed(&error);
        let read = |statement: &mut CachedStatement<'_>| {
            bind(statement, values).map_err(failed)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(failed)? {
                take(row).map_err(|damage| self.options.damaged(damage))?;
            }
            Ok(())
        };
        self.statements.with(kind, read).map_err(failed)?
    }

    /// One record.
    pub(super) fn get(self, key: &Key) -> Result<Option<Row>, EngineError> {
        let mut values: SmallVec<[Value<'_>; 3]> = SmallVec::new();
        let record = match (push_key(key, &mut values), key) {
            (Some(record), _) => record,
            (None, Key::Parents(ino, parent)) => {
                values.extend([id(ino.0), id(parent.0)]);
                Record::Parents
            }
            (None, _) => return self.last_acl(),
        };
        // The question whether this is a volume has an answer in any database.
        if record == Record::Setting
            && let Err(error) = self.statements.with((What::Look(Look::Get), record), |_| ())
            && is_missing_table(&error)
        {
            return Ok(None);
        }
        let mut found = None;
        self.rows((What::Look(Look::Get), record), &values, |row| {
            found = Some(decode(record, row, 0)?);
            Ok(())
        })?;
        Ok(found)
    }

    /// The number of the last ACL rule, if there is any.
    fn last_acl(self) -> Result<Option<Row>, EngineError> {
        let mut last = None;
        self.rows((What::Look(Look::Last), Record::Acl), &[], |row| {
            let damage = |reason| Damage { record: "acl".into(), reason };
            if !row.is_null(0) {
                last = Some(Row::Counter(Counter::AclMaxId, row.int(0).map_err(damage)?));
            }
            Ok(())
        })?;
        Ok(last)
    }

    pub(super) fn names(self, dir: Ino, limit: usize) -> Result<Vec<Name>, EngineError> {
        let mut found = Vec::new();
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.rows((What::Look(Look::Names), Record::Entry), &[id(dir.0), int(limit)], |row| {
            let damage = |reason| Damage { record: format!("edge {dir}"), reason };
            found.push(Name::stored(row.bytes(0).map_err(damage)?));
            Ok(())
        })?;
        Ok(found)
    }

    pub(super) fn all(self, list: List) -> Result<Vec<Row>, EngineError> {
        let mut found = Vec::new();
        let (records, what, of) = listed(list);
        let (from, to) = if let List::Chunks(_, from, to) = list { (from, to) } else { (0, 0) };
        let values = [id(of), int(from), int(to)];
        let count = if what == Look::Range { 3 } else { 1 };
        for record in records {
            self.rows((What::Look(what), *record), &values[..count], |row| {
                found.push(decode(*record, row, 0)?);
                Ok(())
            })?;
        }
        Ok(found)
    }
}
