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
    /// Tasks that wait to hold it alone. For threads, `lock` knows.
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

    /// As [`Self::write`], but gives up after `timeout`.
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, ()>> {
        if !is_scheduled() {
            return self.lock.try_write_for(timeout);
        }
        self.alone.fetch_add(1, Ordering::SeqCst);
        let guard = attempt_until(now() + timeout, || self.lock.try_write());
        self.alone.fetch_sub(1, Ordering::SeqCst);
        guard
    }

    /// Whether the caller is a thread, and meets no task that waits.
    fn is_free(&self) -> bool {
        self.alone.load(Ordering::SeqCst) == 0 && !is_scheduled()
    }

    fn try_read(&self) -> Option<RwLockReadGuard<'_, ()>> {
        if self.alone.load(Ordering::SeqCst) > 0 { None } else { self.lock.try_read() }
    }
}
