//! The table of the change log.

use sluice_meta::engine::EngineError;

use super::{SqliteEngine, connect::Db};
use crate::log::{TRIM, keep_log};

keep_log!(SqliteEngine);

impl Db {
    /// Removes the lines up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        let trimmed = self.writer()?.execute(&self.options.naming.sql(TRIM), [to as i64]);
        trimmed.map(drop).map_err(|error| self.options.failed(&error))
    }
}
