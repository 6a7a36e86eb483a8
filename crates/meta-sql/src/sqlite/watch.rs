//! Detects commits of other processes.
//!
//! What must stay true: our own commits are not reported. SQLite's `data_version` counts, on each
//! connection, the commits of all *other* connections; on the connection that writes, these are the
//! commits of other processes.

use std::time::Duration;

use sluice_meta::engine::{EngineError, Version};

use super::{connect::Db, unchanged::data_version};

impl Version for Db {
    type Version = i64;

    const PERIOD: Duration = Duration::from_millis(10);

    /// This does not wait for a commit under way, because it is read again soon.
    fn version(&self) -> Result<Option<i64>, EngineError> {
        let Some(writer) = self.writer_within(Self::PERIOD)? else { return Ok(None) };
        data_version(&writer).map(Some).map_err(|error| self.options.failed(&error))
    }
}
