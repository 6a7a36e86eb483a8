//! The database at one moment.
//!
//! What must stay true: the connection that exported the moment keeps its transaction as long as
//! others may want to join it.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_meta::engine::{Cursor, EngineError, Found, Page, Read, Scan, Snapshot};
use sluice_net::Kind;

use super::{Store, pool::Pool, statement::Catalog, wire::Wire};
use crate::scan::page;

const EXPORT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\
     SET LOCAL idle_in_transaction_session_timeout=0;SELECT pg_export_snapshot()";

/// Connections whose transactions all see the same.
struct Moment {
    store: Store,
    /// It says nothing any more.
    _exporter: Mutex<Wire>,
}

impl Store {
    /// The database as it is now.
    pub(super) fn snapshot(&self, readers: usize) -> Result<Arc<dyn Snapshot>, EngineError> {
        let options = &self.pool.options;
        let mut exporter = self.pool.connect()?;
        let exported = self.pool.query(&mut exporter, EXPORT, Kind::Read)?;
        let moment = exported.into_iter().next().ok_or_else(|| options.refused("it exports no snapshot"))?;
        let store = Self {
            pool: Arc::new(Pool::at(options.clone(), moment, readers)),
            catalog: Catalog::new(options.naming.clone()),
            channel: self.channel.clone(),
        };
        Ok(Arc::new(Moment { store, _exporter: Mutex::new(exporter) }))
    }
}

impl Snapshot for Moment {
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.store.answers(reads)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        page(&self.store, scan, from, limit)
    }
}
