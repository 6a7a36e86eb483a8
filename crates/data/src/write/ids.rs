//! Slice ids in stock.
//!
//! What must stay true: nobody asks the metadata for an id while he holds the lock of a file, since
//! who looks at the file would wait with him. Who finds the stock short lets go of the lock, fills
//! it and comes back.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use sluice_types::{FsResult, Interrupt};

/// Ids drawn at once. Those left over when the client stops are lost.
const STOCK: usize = 64;

/// Ids that no slice ever had, for all files of a volume.
#[derive(Debug, Default)]
pub(crate) struct SliceIds {
    stock: Mutex<Vec<u64>>,
    /// Whether a thread of the pool fills it.
    pub(super) filling: AtomicBool,
}

/// So many ids have to be in stock first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Short(pub(super) usize);

impl SliceIds {
    pub(super) fn has(&self, count: usize) -> bool {
        self.stock.lock().len() >= count
    }

    /// So many ids, if they are there.
    pub(super) fn take(&self, count: usize) -> Result<Vec<u64>, Short> {
        let mut stock = self.stock.lock();
        match stock.len().checked_sub(count) {
            Some(rest) => Ok(stock.split_off(rest)),
            None => Err(Short(count)),
        }
    }

    pub(super) fn take_one(&self) -> Result<u64, Short> {
        self.stock.lock().pop().ok_or(Short(1))
    }

    /// Waits until there are at least `count`. No lock may be held.
    pub(super) fn fill(&self, count: usize, index: &crate::IndexRef, interrupt: &Interrupt) -> FsResult<()> {
        while !self.has(count.max(STOCK)) {
            match index.new_slice_id(interrupt) {
                Ok(id) => self.stock.lock().push(id),
                Err(_) if self.has(count) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
