//! Makes tables, columns and indexes that are missing.
//!
//! What must stay true: nothing that exists is altered but for columns and indexes that it lacks,
//! so that it is harmless on a volume that others use.

use std::collections::{BTreeMap, BTreeSet};

use sluice_meta::engine::EngineError;

use super::pool::Pool;
use crate::{
    codec::Columns,
    schema::{Dialect, OWN, TABLES, Table},
};

/// Whatever the server's defaults: transactions, and names of attributes that differ if any byte
/// does.
const KIND: &str = " ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=";
/// For which spaces at the end make no difference; what a server has that knows neither of the
/// others.
const PADDED: &str = "utf8mb4_bin";
const DIALECT: Dialect = Dialect::Mysql;

/// Brings the database up to the schema.
pub(super) fn prepare(pool: &Pool) -> Result<(), EngineError> {
    let naming = &pool.options.naming;
    let wanted: Vec<(String, &Table)> = TABLES
        .iter()
        .map(|table| (naming.prefix(), table))
        .chain(OWN.iter().map(|table| (naming.own_prefix(), table)))
        .collect();
    for statement in missing(pool, &wanted)? {
        if let Err(error) = run(pool, &statement) {
            // Somebody else may have been faster.
            if missing(pool, &wanted)?.contains(&statement) {
                return Err(error);
            }
        }
    }
    Ok(())
}

fn run(pool: &Pool, statement: &str) -> Result<(), EngineError> {
    pool.ask(statement).map(drop).map_err(|failed| match pool.options.unanswered(failed) {
        EngineError::Refused { reason, .. } => {
            pool.options.refused(format!("cannot bring the tables up to date: {reason}: {statement}"))
        }
        error => error,
    })
}

/// The statements that make what is missing.
fn missing(pool: &Pool, wanted: &[(String, &Table)]) -> Result<Vec<String>, EngineError> {
    let texts = "SELECT table_name,column_name FROM information_schema.columns WHERE table_schema=DATABASE();\
                 SELECT DISTINCT table_name,index_name FROM information_schema.statistics \
                 WHERE table_schema=DATABASE();\
                 SELECT collation_name FROM information_schema.collations \
                 WHERE collation_name IN ('utf8mb4_nopad_bin','utf8mb4_0900_bin')";
    let mut answers = pool.ask(texts).map_err(|failed| pool.options.unanswered(failed))?;
    let exact = answers.pop().unwrap_or_default();
    let exact = exact.first().and_then(|row| row.bytes(0).ok()).map(String::from_utf8_lossy);
    let collation = exact.as_deref().unwrap_or(PADDED);
    let mut sets = answers.into_iter().map(|rows| {
        let mut names: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in rows {
            let text = |at| String::from_utf8_lossy(row.bytes(at).unwrap_or_default()).into_owned();
            names.entry(text(0)).or_default().insert(text(1));
        }
        names
    });
    let (columns, indexes) = (sets.next().unwrap_or_default(), sets.next().unwrap_or_default());
    let mut statements = Vec::new();
    for (prefix, table) in wanted {
        let name = format!("{prefix}{}", table.name);
        if let Some(columns) = columns.get(&name) {
            let lacking = table.columns.iter().filter(|column| !columns.contains(column.name));
            statements.extend(
                lacking.map(|column| format!("ALTER TABLE `{name}` ADD {}", table.column(DIALECT, column))),
            );
        } else {
            statements.push(table.create(DIALECT, prefix) + KIND + collation);
        }
        let has = |index: &String| indexes.get(&name).is_some_and(|indexes| indexes.contains(index));
        let lacking = table.indexes(DIALECT, prefix).into_iter().filter(|(index, _)| !has(index));
        statements.extend(lacking.map(|(_, text)| text));
    }
    Ok(statements)
}
