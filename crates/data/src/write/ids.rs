//! Slice ids that were fetched ahead.
//!
//! What must stay true: no thread requests ids from the metadata while it holds the lock of a file,
//! because readers of the file would wait, too. A thread that has too few ids releases the lock,
//! fetches more, and begins again.

use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use sluice_types::{FsResult, Interrupt};

/// Ids fetched at once. Ids that are left when the client stops are lost.
const IDS_AT_ONCE: usize = 64;

/// Ids that no slice ever had, for all files of a volume.
#[derive(Debug, Default)]
pub(crate) struct SliceIds {
    stock: Mutex<Vec<u64>>,
    /// Whether a thread of the pool fetches ids.
    pub(super) filling: AtomicBool,
}

/// This many ids must be available first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MissingIds(pub(super) usize);

impl SliceIds {
    pub(super) fn has(&self, count: usize) -> bool {
        self.stock.lock().len() >= count
    }

    /// Takes this many ids, if they are available.
    pub(super) fn take(&self, count: usize) -> Result<Vec<u64>, MissingIds> {
        let mut stock = self.stock.lock();
        match stock.len().checked_sub(count) {
            Some(rest) => Ok(stock.split_off(rest)),
            None => Err(MissingIds(count)),
        }
    }

    pub(super) fn take_one(&self) -> Result<u64, MissingIds> {
        self.stock.lock().pop().ok_or(MissingIds(1))
    }

    /// Fetches ids until there are at least `count`. The caller must hold no lock.
    pub(super) fn fill(&self, count: usize, index: &crate::IndexRef, interrupt: &Interrupt) -> FsResult<()> {
        while !self.has(count.max(IDS_AT_ONCE)) {
            match index.new_slice_id(interrupt) {
                Ok(id) => self.stock.lock().push(id),
                Err(_) if self.has(count) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}
