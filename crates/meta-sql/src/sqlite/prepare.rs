//! Makes tables, columns and indexes that are missing.
//!
//! What must stay true: nothing that exists is altered, so that it is harmless on a volume that
//! others use.

use std::collections::BTreeSet;

use rusqlite::{Connection, TransactionBehavior};
use sluice_meta::engine::EngineError;

use super::options::Options;
use crate::schema::{Dialect, OWN, TABLES, Table};

/// Brings the database up to the schema.
pub(super) fn prepare(connection: &mut Connection, options: &Options) -> Result<(), EngineError> {
    let wanted: Vec<(String, &Table)> = TABLES
        .iter()
        .map(|table| (options.naming.prefix(), table))
        .chain(OWN.iter().map(|table| (options.naming.own_prefix(), table)))
        .collect();
    let failed = |error| options.failed(&error);
    // Most volumes lack nothing, and then the write lock is not needed.
    if missing(connection, &wanted).map_err(failed)?.is_empty() {
        return Ok(());
    }
    let txn = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    for statement in missing(&txn, &wanted).map_err(failed)? {
        txn.execute_batch(&statement).map_err(|error| {
            options.refused(format!("cannot bring the tables up to date: {error}: {statement}"))
        })?;
    }
    txn.commit().map_err(|error| options.commit_failed(&error))
}

/// The statements that make what is missing.
fn missing(connection: &Connection, wanted: &[(String, &Table)]) -> rusqlite::Result<Vec<String>> {
    let existing = names(connection, "SELECT name FROM sqlite_master WHERE type IN ('table','index')")?;
    let mut statements = Vec::new();
    for (prefix, table) in wanted {
        let name = format!("{prefix}{}", table.name);
        if existing.contains(&name) {
            let columns = names(connection, &format!("SELECT name FROM pragma_table_info('{name}')"))?;
            let lacking = table.columns.iter().filter(|column| !columns.contains(column.name));
            statements.extend(
                lacking.map(|column| {
                    format!("ALTER TABLE `{name}` ADD {}", table.column(Dialect::Sqlite, column))
                }),
            );
        } else {
            statements.push(table.create(Dialect::Sqlite, prefix));
        }
        let indexes = table.indexes(Dialect::Sqlite, prefix).into_iter();
        statements.extend(indexes.filter(|(name, _)| !existing.contains(name)).map(|(_, text)| text));
    }
    Ok(statements)
}

fn names(connection: &Connection, sql: &str) -> rusqlite::Result<BTreeSet<String>> {
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}
