//! The progress of emptying the trash.

use std::sync::atomic::{AtomicU64, Ordering};

/// How much of the trash this client still has to remove, and how much it has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrashExpiry {
    /// Hours of the trash that are due and not empty yet. 0 if another client empties it.
    pub hours: u64,
    /// Entries removed since the volume was opened.
    pub removed: u64,
}

/// The counters of [`TrashExpiry`].
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    hours: AtomicU64,
    removed: AtomicU64,
}

impl Expiry {
    pub(crate) fn due(&self, hours: usize) {
        self.hours.store(hours as u64, Ordering::Relaxed);
    }

    pub(crate) fn hour_done(&self) {
        self.hours.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn removed(&self, entries: u64) {
        self.removed.fetch_add(entries, Ordering::Relaxed);
    }

    pub(crate) fn progress(&self) -> TrashExpiry {
        TrashExpiry {
            hours: self.hours.load(Ordering::Relaxed),
            removed: self.removed.load(Ordering::Relaxed),
        }
    }
}
