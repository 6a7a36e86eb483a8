//! The shared state of the writers of a volume.

use std::sync::{Arc, atomic::Ordering};

use sluice_types::Interrupt;
use tokio_util::task::TaskTracker;

use super::{
    ids::{MissingIds, SliceIds},
    pressure::Pressure,
};
use crate::{blocks::BlockStore, compact::Compactor, pool::Pool};

/// What all writers of a volume share.
#[derive(Debug)]
pub(crate) struct WriteContext {
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) index: crate::IndexRef,
    pub(crate) ids: SliceIds,
    pub(crate) pool: Pool,
    pub(crate) compactor: Arc<Compactor>,
    /// Deletions of the blocks of refused writes.
    pub(crate) discards: TaskTracker,
    pub(crate) pressure: Arc<Pressure>,
}

/// Makes a thread of the pool fetch ids, unless one does so already.
pub(super) fn fill_later(context: &Arc<WriteContext>, MissingIds(count): MissingIds) {
    if context.ids.filling.swap(true, Ordering::AcqRel) {
        return;
    }
    let filling = Filling(Arc::clone(context));
    context.pool.run(move || {
        let WriteContext { ids, index, .. } = &*filling.0;
        if let Err(error) = ids.fill(count, index, &Interrupt::never()) {
            tracing::warn!(%error, "there are no numbers for new slices; written data waits for them");
        }
    });
}

/// Marks that a thread fetches ids, until this is dropped.
struct Filling(Arc<WriteContext>);

impl Drop for Filling {
    fn drop(&mut self) {
        self.0.ids.filling.store(false, Ordering::Release);
    }
}
