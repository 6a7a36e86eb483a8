//! A commit that is being put together.

use super::flight::Flight;
use crate::mysql::tables::Tables;

/// The tables, and the statements so far.
pub(super) struct Builder<'b> {
    pub(super) tables: &'b Tables,
    pub(super) flight: Flight,
}
