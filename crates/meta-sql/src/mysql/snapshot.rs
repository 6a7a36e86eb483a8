//! A snapshot of the database: one connection with a transaction that only reads.
//!
//! What must stay true: the connection is never replaced, because another connection would see
//! another snapshot.

use std::sync::Arc;

use sluice_meta::engine::{EngineError, Frozen, Snapshot};

use super::{MysqlEngine, pool::Pool, store::Store, tables::Tables};

impl MysqlEngine {
    /// The database as it is now.
    pub(super) fn at_now(&self) -> Result<Arc<dyn Snapshot>, EngineError> {
        let options = self.0.pool.options.clone();
        let tables = Tables::new(&options.volume);
        let moment = Store { pool: Pool::at_a_moment(options), tables };
        moment.pool.answers("DO 1")?;
        Ok(Arc::new(Frozen(Self(Arc::new(moment)))))
    }
}
