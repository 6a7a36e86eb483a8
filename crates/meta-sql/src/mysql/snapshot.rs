//! The database at one moment: one connection with a transaction that only reads.
//!
//! What must stay true: that connection is never replaced, for another would see another moment.

use std::sync::Arc;

use sluice_meta::engine::{Cursor, EngineError, Found, Page, Read, Scan, Snapshot};

use super::{pool::Pool, read::Plan, store::Store, tables::Tables};
use crate::scan::page;

struct Moment(Store);

impl Store {
    /// The database as it is now.
    pub(super) fn snapshot(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        let options = self.pool.options.clone();
        let tables = Tables::new(&options.naming);
        let moment = Self { pool: Pool::at_a_moment(options), tables };
        moment.pool.answers("DO 1")?;
        Ok(Arc::new(Moment(moment)))
    }
}

impl Snapshot for Moment {
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        Plan::new(&self.0.tables, reads).run(&self.0.pool)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        page(&self.0, scan, from, limit)
    }
}
