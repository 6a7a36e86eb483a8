//! A commit: one transaction that holds the database's write lock.
//!
//! What must stay true: every expectation is checked under the lock and before the first write.
//! Whatever fails, nothing is committed.

use rusqlite::Connection;
use sluice_meta::{
    engine::{Commit, Condition, EngineError, Expect, Moment},
    schema::Row,
};

use super::{
    connect::{Db, Writer},
    read::Reader,
    statements::Statements,
    unchanged::Seen,
    write::Writing,
};

/// Commits after the reads of `moment`. One trip.
pub(super) fn commit(db: &Db, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
    let transaction = Transaction::begin(db)?;
    let seen = Seen::unchanged(moment, &db.version, &transaction.0);
    let statements = Statements::new(&transaction.0, db);
    let reader = Reader::new(&statements);
    let mut broken = Vec::new();
    let is_shown = |expect: &&Expect| seen.as_ref().is_some_and(|seen| seen.shows(expect));
    let expects = commit.expects.iter().filter(|expect| !is_shown(expect));
    for condition in expects.filter_map(|expect| Condition::of(expect, commit)) {
        if !condition.holds(&reader.answer(&condition.read)?) {
            broken.push(condition.key);
        }
    }
    if !broken.is_empty() {
        return Err(EngineError::Conflict(broken));
    }
    let writing = Writing::new(reader);
    if let Some(step) = commit.step {
        writing.step(step)?;
    }
    writing.apply_all(&commit.writes)?;
    transaction.commit(db)
}

/// Stores new rows. One trip.
pub(super) fn load(db: &Db, rows: &[Row]) -> Result<(), EngineError> {
    let transaction = Transaction::begin(db)?;
    let statements = Statements::new(&transaction.0, db);
    Writing::new(Reader::new(&statements)).load(rows)?;
    transaction.commit(db)
}

/// The connection with the write lock held. Dropped before its end it undoes everything.
pub(super) struct Transaction<'d>(Writer<'d>);

impl<'d> Transaction<'d> {
    pub(super) fn begin(db: &'d Db) -> Result<Self, EngineError> {
        let writer = db.writer()?;
        run(&writer, "BEGIN IMMEDIATE").map_err(|error| db.options.failed(&error))?;
        Ok(Self(writer))
    }

    fn commit(&self, db: &Db) -> Result<(), EngineError> {
        let committed = run(&self.0, "COMMIT").map_err(|error| db.options.commit_failed(&error));
        db.version.committed(&self.0);
        committed
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        if !self.0.is_autocommit()
            && let Err(error) = run(&self.0, "ROLLBACK")
        {
            tracing::error!(%error, "SQLite could not undo a transaction");
        }
    }
}

/// Runs a statement that has no parameters and answers nothing.
pub(super) fn run(connection: &Connection, sql: &str) -> rusqlite::Result<()> {
    connection.prepare_cached(sql)?.execute([]).map(drop)
}
