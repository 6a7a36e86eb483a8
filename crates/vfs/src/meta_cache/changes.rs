//! The time of this client's last change of each inode.
//!
//! What must stay true: an inode whose last change is no longer kept counts as changed after every
//! read that is still under way.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::Ino;

/// Inodes whose last change here is remembered.
const MAX_CHANGES: usize = 1 << 16;

/// The last change of each inode.
#[derive(Default)]
pub(super) struct Changes {
    clock: AtomicU64,
    last: Mutex<Last>,
}

#[derive(Default)]
struct Last {
    by_ino: FxHashMap<Ino, u64>,
    /// Inodes that are not in `by_ino` may have changed up to here.
    floor: u64,
}

impl Changes {
    /// A number for the present moment. No two are equal.
    pub(super) fn now(&self) -> u64 {
        self.clock.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Whether `ino` changed after number `then`, or may have.
    pub(super) fn since(&self, ino: Ino, then: u64) -> bool {
        let last = self.last.lock();
        last.by_ino.get(&ino).copied().unwrap_or(last.floor) > then
    }

    /// `ino` changed now. Returns the number of the change.
    pub(super) fn mark(&self, ino: Ino) -> u64 {
        let mut last = self.last.lock();
        let now = self.now();
        if last.by_ino.len() >= MAX_CHANGES {
            last.by_ino.clear();
            last.floor = now;
        }
        last.by_ino.insert(ino, now);
        now
    }

    /// Every inode may have changed now.
    pub(super) fn mark_all(&self) {
        let mut last = self.last.lock();
        last.floor = self.now();
        last.by_ino.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forgotten_changes_count_as_changes() {
        let changes = Changes::default();
        let then = changes.now();
        (0..=MAX_CHANGES as u64).for_each(|ino| {
            changes.mark(Ino(ino));
        });
        assert!(changes.since(Ino(1), then));
        assert!(!changes.since(Ino(1), changes.now()));
    }

    #[test]
    fn a_change_of_everything_is_one_of_each() {
        let changes = Changes::default();
        changes.mark(Ino(1));
        let then = changes.now();
        assert!(!changes.since(Ino(1), then));
        changes.mark_all();
        assert!(changes.since(Ino(1), then) && changes.since(Ino(2), then));
        assert!(!changes.since(Ino(1), changes.now()));
    }
}
