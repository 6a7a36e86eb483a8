//! Runs reads: one statement each.
//!
//! What must stay true: a result is exactly what the tables hold. Parents are not stored in SQL;
//! they are counted from the entries that name the inode.

use rusqlite::{CachedStatement, types::ValueRef};
use sluice_meta::engine::{EngineError, Found, List, Read};

use super::{
    error::is_missing_table,
    options::Options,
    statements::{Statements, bind},
    texts::{Kind, What},
};
use crate::{
    codec::{Columns, Damage, Record},
    questions::{asked, may_lack_tables, take},
    values::Value,
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
            self.each((What::Any, Record::Xattr), &[], |_| {
                any = true;
                Ok(())
            })?;
        }
        Ok(!any)
    }

    /// The answer to one read.
    pub(super) fn answer(self, read: &Read) -> Result<Found, EngineError> {
        let mut found = Found::nothing(read);
        let (what, records, values) = asked(read);
        for record in records {
            let kind = (What::Look(what), *record);
            if may_lack_tables(std::slice::from_ref(read))
                && let Err(error) = self.statements.with(kind, |_| ())
                && is_missing_table(&error)
            {
                break;
            }
            self.each(kind, &values, |row| take(what, *record, row, &mut found))?;
        }
        Ok(found)
    }

    /// Passes each row of a result to `take`.
    pub(super) fn each(
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
                take(row).map_err(|damage| self.options.volume.damaged(damage))?;
            }
            Ok(())
        };
        self.statements.with(kind, read).map_err(failed)?
    }
}
