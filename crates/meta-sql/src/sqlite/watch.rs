//! Notices commits of other processes.
//!
//! What must stay true: our own commits are not reported. SQLite's `data_version` counts, on each
//! connection, the commits of all *other* connections; asked on the connection that writes, these
//! are those of other processes.

use std::{sync::Arc, time::Duration};

use sluice_meta::engine::{EngineError, Watch};

use super::{connect::Db, unchanged::data_version};
use crate::polled::{Polled, Version};

impl Version for Arc<Db> {
    const PERIOD: Duration = Duration::from_millis(10);

    /// This does not wait for a commit under way, because it is read again soon.
    fn version(&self) -> Result<Option<i64>, EngineError> {
        look(self, Self::PERIOD)
    }
}

pub(super) fn watch(db: Arc<Db>) -> Result<Box<dyn Watch>, EngineError> {
    let last = look(&db, db.options.timeout)?.unwrap_or_default();
    Ok(Box::new(Polled::new(db, last)))
}

fn look(db: &Db, patience: Duration) -> Result<Option<i64>, EngineError> {
    let Some(writer) = db.writer_within(patience)? else { return Ok(None) };
    data_version(&writer).map(Some).map_err(|error| db.options.failed(&error))
}
