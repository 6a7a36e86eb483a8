//! The table of the change log.

use rusqlite::params_from_iter;
use sluice_meta::engine::EngineError;

use super::SqliteEngine;
use crate::log::{Ask, Rows, keep_log};

keep_log!(SqliteEngine);

impl SqliteEngine {
    fn ask_log(&self, ask: Ask) -> Result<Rows, EngineError> {
        let options = &self.0.options;
        let text = options.naming.sql(ask.text());
        if let Ask::Trim(to) = ask {
            let writer = self.0.writer()?;
            let trimmed = writer.execute(&text, [to as i64]);
            return trimmed.map(|_| Rows::new()).map_err(|error| options.failed(&error));
        }
        self.0.with_reader(|connection| {
            let look = || {
                let mut statement = connection.prepare_cached(&text)?;
                let columns = statement.column_count();
                let rows = statement.query_map(params_from_iter(ask.values()), |row| {
                    let text = if columns > 1 { row.get::<_, String>(1)? } else { String::new() };
                    Ok((row.get::<_, Option<i64>>(0)?.unwrap_or(0), text.into_bytes()))
                })?;
                rows.collect::<rusqlite::Result<Rows>>()
            };
            look().map_err(|error| options.failed(&error))
        })
    }
}
