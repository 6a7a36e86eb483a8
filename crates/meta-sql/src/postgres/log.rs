//! The table of the change log.

use sluice_meta::engine::EngineError;

use super::{PostgresEngine, Store, statement::Template};
use crate::{codec::Record, log::keep_log, values::id};

keep_log!(PostgresEngine);

impl Store {
    /// Removes the lines up to a number.
    fn trim(&self, to: u64) -> Result<(), EngineError> {
        self.one(Template::LogTrim, Record::Line, [id(to)]).map(drop)
    }
}
