//! Notices commits of other processes.
//!
//! What must stay true: our own commits ring no bell. SQLite's `data_version` counts, on each
//! connection, the commits of all *other* connections; asked on the connection that writes, these
//! are those of other processes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Notice,
};

use super::connect::Db;

/// How often the number is looked at.
const PERIOD: Duration = Duration::from_millis(10);

pub(super) struct SqliteWatch {
    db: Arc<Db>,
    version: i64,
}

impl SqliteWatch {
    pub(super) fn new(db: Arc<Db>) -> Result<Self, EngineError> {
        let version = version(&db, db.options.timeout)?.unwrap_or_default();
        Ok(Self { db, version })
    }
}

impl Watch for SqliteWatch {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let until = Instant::now() + timeout;
        loop {
            // A commit under way is not waited for: there will be a next look.
            if let Some(version) = version(&self.db, PERIOD)?
                && version != self.version
            {
                self.version = version;
                return Ok(vec![Notice::anything()]);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            std::thread::sleep(left.min(PERIOD));
        }
    }
}

fn version(db: &Db, patience: Duration) -> Result<Option<i64>, EngineError> {
    let Some(writer) = db.writer_within(patience)? else { return Ok(None) };
    let asked = writer
        .prepare_cached("PRAGMA data_version")
        .and_then(|mut statement| statement.query_row([], |row| row.get(0)));
    asked.map(Some).map_err(|error| db.options.failed(&error))
}
