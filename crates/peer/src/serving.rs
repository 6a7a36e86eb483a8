//! The state that all connections of a member share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{blocks::Blocks, frame::MAX_BLOCK, group::Group};

/// Bytes of a permit for memory.
pub(crate) const UNIT: usize = 4 << 10;

/// A member's blocks, and what may be in memory of them at once.
pub(crate) struct Serving {
    pub(crate) group: Arc<Group>,
    pub(crate) blocks: Box<dyn Blocks>,
    /// Permits of [`UNIT`] bytes each.
    pub(crate) memory: Arc<Semaphore>,
    units: usize,
}

/// Connections among which the memory is shared, if each takes all that it may.
const SHARES: usize = 16;
/// Permits of the largest block, and one.
const LEAST: usize = MAX_BLOCK as usize / UNIT + 1;

impl Serving {
    /// How many permits one connection may have.
    pub(crate) fn share(&self) -> usize {
        (self.units / SHARES).max(LEAST)
    }

    /// With so many bytes of memory.
    pub(crate) fn new(group: Arc<Group>, blocks: impl Blocks, memory: usize) -> Arc<Self> {
        let units = (memory / UNIT).max(LEAST);
        Arc::new(Self { group, blocks: Box::new(blocks), memory: Arc::new(Semaphore::new(units)), units })
    }
}
