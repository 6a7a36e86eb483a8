//! Locks that are held through one handle, and whether they are still valid.
//!
//! What must stay true: a lock that was acquired before this client was fenced never becomes valid
//! again. Calls through the handle fail until the handle is closed.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{FsError, FsResult};

/// A lock by its kind and owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Lock {
    /// Of `flock(2)`.
    Flock(u64),
    /// All record locks of an owner.
    Plocks(u64),
}

/// Locks of a handle.
#[derive(Default)]
pub(crate) struct HandleLocks {
    /// Whether there was ever one: a fast check, because most handles have none.
    any: AtomicBool,
    locks: Mutex<Locks>,
}

#[derive(Default)]
struct Locks {
    /// The fence count (how often this client was fenced) at which a lost lock was
    /// acquired.
    lost: Option<i64>,
    /// The fence count at which each lock was first acquired.
    since: FxHashMap<Lock, i64>,
}

impl HandleLocks {
    /// Fails if a lock was lost. `fences` returns the current fence count.
    pub(crate) fn check(&self, fences: impl FnOnce() -> i64) -> FsResult<()> {
        if !self.any.load(Ordering::Acquire) {
            return Ok(());
        }
        let fences = fences();
        let mut locks = self.locks.lock();
        if locks.lost.is_none() {
            locks.lost = locks.since.values().copied().filter(|since| *since < fences).min();
        }
        if locks.lost.is_some() {
            return Err(FsError::io(
                "a lock on the file was lost: other clients took this one for dead; close the file and begin again",
            ));
        }
        Ok(())
    }

    /// The fence count at which the oldest lock was acquired, even if it is lost by now. `None`
    /// without locks.
    pub(crate) fn since(&self) -> Option<i64> {
        if !self.any.load(Ordering::Acquire) {
            return None;
        }
        let locks = self.locks.lock();
        locks.lost.or_else(|| locks.since.values().min().copied())
    }

    /// A lock was acquired at fence count `fences`, or is held for longer. Returns whether it is
    /// new.
    pub(crate) fn acquired(&self, lock: Lock, fences: i64) -> bool {
        let mut locks = self.locks.lock();
        let new = !locks.since.contains_key(&lock);
        locks.since.entry(lock).or_insert(fences);
        drop(locks);
        self.any.store(true, Ordering::Release);
        new
    }

    /// All locks that are held.
    pub(crate) fn all(&self) -> Vec<Lock> {
        if !self.any.load(Ordering::Acquire) {
            return Vec::new();
        }
        self.locks.lock().since.keys().copied().collect()
    }

    /// It was released.
    pub(crate) fn released(&self, lock: Lock) {
        if self.any.load(Ordering::Acquire) {
            self.locks.lock().since.remove(&lock);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_lock_stays_lost() {
        let locks = HandleLocks::default();
        assert_eq!(locks.check(|| 5), Ok(()));
        locks.acquired(Lock::Flock(1), 5);
        locks.acquired(Lock::Plocks(1), 5);
        locks.acquired(Lock::Flock(1), 6);
        assert_eq!(locks.check(|| 5), Ok(()));
        locks.released(Lock::Plocks(1));
        assert_eq!(locks.check(|| 6), Err(FsError::io("")), "the oldest counts");
        assert_eq!(locks.since(), Some(5));
        locks.released(Lock::Flock(1));
        assert_eq!(locks.check(|| 6), Err(FsError::io("")), "until it is closed");
        assert_eq!(locks.since(), Some(5));
    }

    #[test]
    fn a_lock_that_was_released_in_time_is_not_lost() {
        let locks = HandleLocks::default();
        locks.acquired(Lock::Plocks(1), 0);
        locks.released(Lock::Plocks(1));
        assert_eq!(locks.check(|| 1), Ok(()));
        assert_eq!(locks.since(), None);
        locks.acquired(Lock::Plocks(1), 1);
        locks.acquired(Lock::Flock(1), 2);
        assert_eq!((locks.check(|| 1), locks.since()), (Ok(()), Some(1)));
    }
}
