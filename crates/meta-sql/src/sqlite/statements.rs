//! The statements of one read or commit.
//!
//! What must stay true: a statement stays prepared until the end. So later uses of the same
//! statement need no lookup.

use std::cell::RefCell;

use rusqlite::{
    CachedStatement, Connection, ToSql,
    types::{ToSqlOutput, ValueRef},
};

use super::{
    connect::Db,
    options::Options,
    texts::{Kind, Texts},
};
use crate::values::Value;

/// Statements on one connection.
pub(super) struct Statements<'c> {
    pub(super) connection: &'c Connection,
    pub(super) options: &'c Options,
    texts: &'c Texts,
    /// By what they do. One is away while it runs.
    held: RefCell<Vec<(Kind, Option<CachedStatement<'c>>)>>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection, db: &'c Db) -> Self {
        Self { connection, options: &db.options, texts: &db.texts, held: RefCell::default() }
    }

    /// Has `work` done with a statement.
    pub(super) fn with<T>(
        &self,
        kind: Kind,
        work: impl FnOnce(&mut CachedStatement<'c>) -> T,
    ) -> rusqlite::Result<T> {
        // The record tells most apart, and costs the least.
        let is_it = |(held, _): &(Kind, _)| held.1 == kind.1 && held.0 == kind.0;
        let place = self.held.borrow().iter().position(is_it);
        let held = place.and_then(|at| self.held.borrow_mut()[at].1.take());
        let mut statement = match held {
            Some(statement) => statement,
            None => self.connection.prepare_cached(&self.texts.get(kind, &self.options.volume))?,
        };
        let done = work(&mut statement);
        let mut held = self.held.borrow_mut();
        match place {
            Some(at) => held[at].1 = Some(statement),
            None => held.push((kind, Some(statement))),
        }
        Ok(done)
    }
}

/// Binds values to the parameters of a statement, one after another.
pub(super) struct Binding<'s, 'c> {
    statement: &'s mut CachedStatement<'c>,
    bound: usize,
    done: rusqlite::Result<()>,
}

impl<'s, 'c> Binding<'s, 'c> {
    pub(super) const fn new(statement: &'s mut CachedStatement<'c>) -> Self {
        Self { statement, bound: 0, done: Ok(()) }
    }

    /// The statement, with everything bound.
    pub(super) fn done(self) -> rusqlite::Result<&'s mut CachedStatement<'c>> {
        self.done.map(|()| self.statement)
    }
}

impl<'v> Extend<Value<'v>> for Binding<'_, '_> {
    fn extend<I: IntoIterator<Item = Value<'v>>>(&mut self, values: I) {
        for value in values {
            self.bound += 1;
            if let Err(error) = self.statement.raw_bind_parameter(self.bound, value) {
                self.done = Err(error);
            }
        }
    }
}

/// Binds values to the parameters of a statement.
pub(super) fn bind(statement: &mut CachedStatement<'_>, values: &[Value<'_>]) -> rusqlite::Result<()> {
    values.iter().zip(1..).try_for_each(|(value, at)| statement.raw_bind_parameter(at, value))
}

impl ToSql for Value<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Null => ValueRef::Null,
            Self::Int(number) => ValueRef::Integer(*number),
            // The name of an attribute is text, which JuiceFS can read, unless it is none.
            Self::Text(text) if std::str::from_utf8(text).is_ok() => ValueRef::Text(text),
            Self::Text(bytes) | Self::Bytes(bytes) => ValueRef::Blob(bytes),
        }))
    }
}
