//! Encodes a commit as one flight: BEGIN, checks and writes in the order of the plan, COMMIT.
//!
//! The reads took no locks. So the commit compares all expected records, under locks that last
//! until COMMIT. What must stay true: a check that fails is an error, and the server runs no
//! statement after an error: COMMIT is never reached.

mod changes;
mod checks;
mod flight;
mod writes;

use sluice_meta::{
    engine::{Commit, EngineError},
    schema::Row,
};

use super::{connection::Connection, store::Store, watch::NOTICES};
use crate::{
    codec::Record,
    plan::{Locking, Work, plan},
    query_runner::QueryRunner as _,
    values::by_record,
};
pub(super) use flight::Packet;
use flight::{Builder, Flight};
use writes::lines;
pub(super) use writes::overflowing;

/// How the server locks: it knows no lock of a key alone, and looks that lock wait for what others
/// have not committed.
const LOCKING: Locking =
    Locking { keys: false, inserts_first: |_| true, placeholder: None, notices: Some(NOTICES) };

/// The packets of a transaction that `fill` builds, as the connection takes them.
///
/// # Errors
/// That of `fill`; or if a value is larger than the server takes.
pub(super) fn packets(
    store: &Store,
    connection: &Connection,
    fill: impl FnOnce(&mut Builder<'_>) -> Result<(), EngineError>,
) -> Result<Vec<Packet>, EngineError> {
    let mut builder = Builder { tables: &store.tables, flight: Flight::new(connection.style) };
    fill(&mut builder)?;
    builder.flight.packets(connection.max_packet).ok_or_else(|| {
        store.volume().refused("a value is larger than its max_allowed_packet; raise that on the server")
    })
}

impl Builder<'_> {
    /// Adds all of a commit.
    ///
    /// # Errors
    /// If two rows are expected that cannot both be there, or more is to be appended to a chunk
    /// than any holds.
    pub(super) fn commit(&mut self, commit: &Commit) -> Result<(), EngineError> {
        let full = overflowing(commit, |_, _| 0);
        if !full.is_empty() {
            return Err(EngineError::Full(full));
        }
        plan(commit, &LOCKING)?.into_iter().for_each(|work| self.work(work));
        // No other client waits for a line.
        self.insert(Record::Line, &lines(commit), "");
        Ok(())
    }

    /// Stores new rows.
    pub(super) fn load(&mut self, rows: &[Row]) {
        for (record, rows) in by_record(rows) {
            self.insert(record, &rows, "");
        }
    }

    fn work(&mut self, work: Work<'_>) {
        match work {
            Work::Hold(record, rows) => self.hold(record, &rows),
            Work::Change(record, action, rows) => self.change(record, action, rows),
            Work::Write(record, action, changes) => self.write(record, action, &changes),
            Work::Clear(record, ids, span) => self.clear(record, &ids, &span),
            Work::Absent(record, absent) => self.absent(record, &absent),
            Work::QuotaAllows(record, rows) => self.room(record, &rows),
            Work::Parents(rows) => rows.into_iter().for_each(|row| self.parents(row)),
            Work::LastAcl(last) => self.last_acl(last),
            Work::FileLocks(record, ino, rows) => self.locks(record, ino, rows),
            Work::Empty(dirs) => dirs.into_iter().for_each(|dir| self.empty_dirs(dir)),
        }
    }
}
