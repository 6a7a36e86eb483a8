//! A snapshot of the database, for several connections.

use std::sync::Arc;

use sluice_meta::engine::{EngineError, Frozen, Snapshot};
use sluice_net::Kind;

use super::{PostgresEngine, Store, pool::Pool, statement::Catalog};

const EXPORT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\
     SET LOCAL idle_in_transaction_session_timeout=0;SELECT pg_export_snapshot()";

impl PostgresEngine {
    /// The database as it is now.
    pub(super) fn at_now(&self, readers: usize) -> Result<Arc<dyn Snapshot>, EngineError> {
        let Store { pool, channel, .. } = &self.0;
        let mut exporter = pool.connect()?;
        let exported = pool.query(&mut exporter, EXPORT, Kind::Read)?.pop_first();
        let moment = exported.ok_or_else(|| pool.options.volume.refused("it exports no snapshot"))?;
        let catalog = Catalog::new(pool.options.volume.clone());
        let pool = Arc::new(Pool::at(pool.options.clone(), (moment, exporter), readers));
        Ok(Arc::new(Frozen(Self(Store { pool, catalog, channel: channel.clone() }))))
    }
}
