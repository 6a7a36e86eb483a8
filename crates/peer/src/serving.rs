//! What the connections of a member share.

use std::sync::Arc;

use tokio::sync::Semaphore;

use crate::{blocks::Blocks, group::Group};

/// Bytes of a permit for memory.
pub(crate) const UNIT: usize = 4 << 10;

/// A member's blocks, and what may be in memory of them at once.
pub(crate) struct Serving {
    pub(crate) group: Arc<Group>,
    pub(crate) blocks: Box<dyn Blocks>,
    /// Permits of [`UNIT`] bytes each.
    pub(crate) memory: Arc<Semaphore>,
}

impl Serving {
    /// With so many bytes of memory.
    pub(crate) fn new(group: Arc<Group>, blocks: impl Blocks, memory: usize) -> Arc<Self> {
        let memory = Arc::new(Semaphore::new((memory / UNIT).max(1)));
        Arc::new(Self { group, blocks: Box::new(blocks), memory })
    }
}
