//! A lock that many may hold at once, or one alone.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration,
};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::wait::{attempt, attempt_until, is_scheduled, now};

/// As [`parking_lot::RwLock`], for holders that may wait for time or for others: a task that waits
/// for it leaves its thread to other tasks.
///
/// What must stay true: who waits to hold it alone gets it before those who come later. So nobody
/// may take it twice.
#[derive(Debug, Default)]
pub struct SharedLock {
    lock: RwLock<()>,
    /// Those that wait to hold it alone, but for threads for which `lock` knows.
    alone: AtomicUsize,
}

impl SharedLock {
    /// Holds it alone.
    pub fn write(&self) -> RwLockWriteGuard<'_, ()> {
        if !is_scheduled() {
            return self.lock.write();
        }
        self.alone.fetch_add(1, Ordering::SeqCst);
        let guard = attempt(|| self.lock.try_write());
        self.alone.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Holds it together with others.
    pub fn read(&self) -> RwLockReadGuard<'_, ()> {
        if self.is_free() { self.lock.read() } else { attempt(|| self.try_read()) }
    }

    /// As [`Self::read`], but gives up after `timeout`.
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, ()>> {
        if self.is_free() {
            self.lock.try_read_for(timeout)
        } else {
            attempt_until(now() + timeout, || self.try_read())
        }
    }

    /// As [`Self::write`], but asks after each `period` whether to give up.
    pub fn write_unless(
        &self,
        period: Duration,
        gives_up: impl Fn() -> bool,
    ) -> Option<RwLockWriteGuard<'_, ()>> {
        if let Some(guard) = self.lock.try_write() {
            return Some(guard);
        }
        // Also for a thread: between two periods it does not wait at the lock.
        self.alone.fetch_add(1, Ordering::SeqCst);
        let guard = loop {
            let guard = if is_scheduled() {
                attempt_until(now() + period, || self.lock.try_write())
            } else {
                self.lock.try_write_for(period)
            };
            if guard.is_some() || gives_up() {
                break guard;
            }
        };
        self.alone.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Whether the caller is a thread, and `lock` knows all that wait.
    fn is_free(&self) -> bool {
        self.alone.load(Ordering::SeqCst) == 0 && !is_scheduled()
    }

    fn try_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.alone.load(Ordering::SeqCst) > 0 { None } else { self.lock.try_read() }
    }
}
