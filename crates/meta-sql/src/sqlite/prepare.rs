//! Creates missing tables, columns and indexes.

use std::collections::BTreeSet;

use rusqlite::{Connection, TransactionBehavior};
use sluice_meta::engine::EngineError;

use super::options::Options;
use crate::schema::{Dialect, lacking, removals};

/// Tables, indexes and `table.column`s.
const EXISTING: &str = "SELECT name FROM sqlite_master WHERE type IN ('table','index') \
     UNION ALL SELECT t.name||'.'||c.name FROM sqlite_master t,pragma_table_info(t.name) c WHERE t.type='table'";

/// Brings the database up to the schema.
pub(super) fn prepare(connection: &mut Connection, options: &Options) -> Result<(), EngineError> {
    let failed = |error| options.failed(&error);
    // Most volumes lack nothing, and then the write lock is not needed.
    if missing(connection, options).map_err(failed)?.is_empty() {
        return Ok(());
    }
    let txn = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for statement in missing(&txn, options).map_err(failed)? {
        txn.execute_batch(&statement).map_err(|error| {
            options.volume.refused(format!("cannot bring the tables up to date: {error}: {statement}"))
        })?;
    }
    txn.commit().map_err(|error| options.commit_failed(&error))
}

/// Removes the tables of the volume, all or none.
pub(super) fn remove(connection: &mut Connection, options: &Options) -> Result<(), EngineError> {
    let failed = |error| options.failed(&error);
    let txn = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for statement in removals(Dialect::Sqlite, &options.volume) {
        txn.execute_batch(&statement).map_err(failed)?;
    }
    txn.commit().map_err(|error| options.commit_failed(&error))
}

/// The statements that make what is missing.
fn missing(connection: &Connection, options: &Options) -> rusqlite::Result<Vec<String>> {
    let mut statement = connection.prepare(EXISTING)?;
    let existing: BTreeSet<String> =
        statement.query_map([], |row| row.get(0))?.collect::<rusqlite::Result<_>>()?;
    Ok(lacking(Dialect::Sqlite, &options.volume, &existing, ""))
}
