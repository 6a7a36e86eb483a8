//! The state that all parts of the engine share.

use super::{pool::Pool, tables::Tables};

/// The connections, and what the tables are called.
pub(super) struct Store {
    pub(super) pool: Pool,
    pub(super) tables: Tables,
}
