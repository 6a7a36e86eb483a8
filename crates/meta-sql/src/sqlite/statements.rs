//! The statements of one trip or commit.
//!
//! What must stay true: a statement stays prepared until the end, so that the thousandth of a kind
//! costs no look-up.

use std::cell::RefCell;

use rusqlite::{CachedStatement, Connection};

use super::options::Options;

/// A statement at hand, and the text that it was asked for by. It is away while it runs.
type Held<'c> = (&'static str, Option<CachedStatement<'c>>);

/// Statements on one connection.
pub(super) struct Statements<'c> {
    pub(super) connection: &'c Connection,
    pub(super) options: &'c Options,
    held: RefCell<Vec<Held<'c>>>,
}

impl<'c> Statements<'c> {
    pub(super) fn new(connection: &'c Connection, options: &'c Options) -> Self {
        Self { connection, options, held: RefCell::default() }
    }

    /// Has `work` done with a statement.
    pub(super) fn with<T>(
        &self,
        sql: &'static str,
        work: impl FnOnce(&mut CachedStatement<'c>) -> T,
    ) -> rusqlite::Result<T> {
        let place = self.held.borrow().iter().position(|(text, _)| std::ptr::eq(*text, sql));
        let held = place.and_then(|at| self.held.borrow_mut()[at].1.take());
        let mut statement = match held {
            Some(statement) => statement,
            None => self.connection.prepare_cached(&self.options.naming.sql(sql))?,
        };
        let done = work(&mut statement);
        let mut held = self.held.borrow_mut();
        match place {
            Some(at) => held[at].1 = Some(statement),
            None => held.push((sql, Some(statement))),
        }
        Ok(done)
    }
}
