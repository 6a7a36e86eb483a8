//! Creates missing tables, columns and indexes.

use mysql_async::Row;
use sluice_meta::engine::EngineError;

use super::pool::Pool;
use crate::{
    codec::Columns,
    schema::{Dialect, lacking, removals},
};

/// Whatever the server's defaults: transactions, and names of attributes that differ if any byte
/// does.
const KIND: &str = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=";
/// For which spaces at the end make no difference; what a server has that knows neither of the
/// others.
const PADDED: &str = "utf8mb4_bin";

/// Tables, `table.column`s and indexes; and the collations of which one is wanted.
const EXISTING: &str = "SELECT table_name FROM information_schema.tables WHERE table_schema=DATABASE() \
     UNION ALL SELECT CONCAT(table_name,'.',column_name) FROM information_schema.columns \
     WHERE table_schema=DATABASE() \
     UNION ALL SELECT index_name FROM information_schema.statistics WHERE table_schema=DATABASE();\
     SELECT collation_name FROM information_schema.collations \
     WHERE collation_name IN ('utf8mb4_nopad_bin','utf8mb4_0900_bin')";

/// Brings the database up to the schema.
pub(super) fn prepare(pool: &Pool) -> Result<(), EngineError> {
    for statement in missing(pool)? {
        if let Err(error) = run(pool, &statement) {
            // Somebody else may have been faster.
            if missing(pool)?.contains(&statement) {
                return Err(error);
            }
        }
    }
    Ok(())
}

/// Removes the tables of the volume, the settings last.
pub(super) fn remove(pool: &Pool) -> Result<(), EngineError> {
    let removals = removals(Dialect::Mysql, &pool.options.volume);
    removals.iter().try_for_each(|statement| pool.answers(statement).map(drop))
}

fn run(pool: &Pool, statement: &str) -> Result<(), EngineError> {
    pool.answers(statement).map(drop).map_err(|error| match error {
        EngineError::Refused { reason, .. } => {
            pool.options.volume.refused(format!("cannot bring the tables up to date: {reason}: {statement}"))
        }
        error => error,
    })
}

/// The statements that make what is missing.
fn missing(pool: &Pool) -> Result<Vec<String>, EngineError> {
    let answers = pool.answers(EXISTING)?;
    let text = |row: &Row| String::from_utf8_lossy(row.bytes(0).unwrap_or_default()).into_owned();
    let mut answers = answers.iter().map(|rows| rows.iter().map(text));
    let existing = answers.next().into_iter().flatten().collect();
    let collation = answers.next().and_then(|mut exact| exact.next());
    let kind = format!("{KIND}{}", collation.as_deref().unwrap_or(PADDED));
    Ok(lacking(Dialect::Mysql, &pool.options.volume, &existing, &kind))
}
