//! Lines of the change log, inside a transaction.

use rusqlite::Connection;
use sluice_meta::engine::EngineError;

use super::options::Options;

/// Appends a line.
const APPEND: &str = "INSERT INTO jfs_change_log(entry) VALUES(?1)";

/// Appends a line, inside a transaction.
pub(super) fn append(connection: &Connection, options: &Options, line: &str) -> Result<(), EngineError> {
    let appended =
        connection.prepare_cached(&options.naming.sql(APPEND)).and_then(|mut insert| insert.execute([line]));
    appended.map(drop).map_err(|error| options.failed(&error))
}
