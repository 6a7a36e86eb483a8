//! The memory budget of data. Writers wait while the budget is exhausted. Before that, they are
//! paced: data that the store takes as fast as it is written is not collected in memory.
//!
//! What must stay true: every buffer holds a [`Charge`] for as long as it exists, so that the count
//! is right. Cached blocks count as memory that writers must leave free.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_types::{Condvar, FsError, FsResult, Interrupt};

/// How long a writer is delayed when it exceeds the budget. It may use up to twice the budget.
const SLOWDOWN: Duration = Duration::from_millis(10);
/// How often a stopped writer checks the budget, and whether its caller still waits.
const RECHECK: Duration = Duration::from_millis(50);

/// From this share of the limit on, writers are paced. So much in flight keeps a fast store busy.
const PACED_SHARE: u64 = 8;
/// Bytes per second that a writer may write at least while it is paced. So a store that is slower
/// is not waited for as long as there is memory.
const PACE: u64 = 1 << 30;
/// Bytes between two pauses, because a shorter pause than theirs takes longer than it should.
const PACED_BYTES: u64 = 1 << 20;

/// A shared count of bytes against a limit.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: AtomicU64,
    peak: AtomicU64,
    /// Bytes that were written without a pause while writers are paced.
    unpaced: AtomicU64,
    /// Bytes of blocks in the memory cache, and what the local files hold in memory: blocks that
    /// are being written, and blocks that are kept for other clients. A block may be in several.
    cached: AtomicU64,
    files: [Arc<AtomicU64>; 2],
    waiting: Mutex<u32>,
    freed: Condvar,
}

impl Budget {
    pub(crate) fn new(limit: u64, files: [Arc<AtomicU64>; 2]) -> Arc<Self> {
        Arc::new(Self {
            limit,
            used: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            unpaced: AtomicU64::new(0),
            cached: AtomicU64::new(0),
            files,
            waiting: Mutex::new(0),
            freed: Condvar::default(),
        })
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    pub(crate) fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Used bytes, including those cached in memory.
    pub(crate) fn held(&self) -> u64 {
        let files = self.files.iter().map(|bytes| bytes.load(Ordering::Relaxed)).sum::<u64>();
        self.used() + self.cached.load(Ordering::Relaxed) + files
    }

    /// The memory cache takes `bytes`.
    pub(crate) fn set_cached(&self, bytes: u64) {
        self.cached.store(bytes, Ordering::Relaxed);
    }

    /// The most that was ever used.
    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Takes `bytes`, even above the limit. Callers that must not exceed it call [`Self::wait`]
    /// first.
    pub(crate) fn charge(self: &Arc<Self>, bytes: u64) -> Charge {
        let mut charge = Charge { budget: Arc::clone(self), bytes: 0 };
        charge.resize(bytes);
        charge
    }

    /// Delays the writer of `bytes` bytes until less than a share of the budget is in use, or until
    /// it writes no faster than [`PACE`].
    pub(crate) fn pace(&self, bytes: u64) {
        let paced = self.limit / PACED_SHARE;
        if self.used() < paced {
            return;
        }
        if self.unpaced.fetch_add(bytes, Ordering::Relaxed) + bytes < PACED_BYTES {
            return;
        }
        let unpaced = self.unpaced.swap(0, Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs_f64(unpaced as f64 / PACE as f64);
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        while self.used() >= paced {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            self.freed.wait_for(&mut waiting, left);
        }
        *waiting -= 1;
    }

    /// Delays the caller: for a moment above the limit, and above twice the limit until there is
    /// room. Cached blocks take a share of this.
    ///
    /// # Errors
    /// `EINTR` if `interrupt` was set meanwhile.
    pub(crate) fn wait(&self, interrupt: &Interrupt) -> FsResult<()> {
        if self.used() < self.limit {
            return Ok(());
        }
        let mut waiting = self.waiting.lock();
        *waiting += 1;
        self.freed.wait_for(&mut waiting, SLOWDOWN);
        while self.held() >= 2 * self.limit && !interrupt.is_set() {
            self.freed.wait_for(&mut waiting, RECHECK);
        }
        *waiting -= 1;
        if interrupt.is_set() { Err(FsError::Interrupted) } else { Ok(()) }
    }

    fn release(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.limit / PACED_SHARE && *self.waiting.lock() > 0 {
            self.freed.notify_all();
        }
    }
}

/// Bytes taken from a [`Budget`]; returned when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Charge {
    /// Counts `bytes` from now on.
    pub(crate) fn resize(&mut self, bytes: u64) {
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            let used = self.budget.used.fetch_add(more, Ordering::Relaxed) + more;
            self.budget.peak.fetch_max(used, Ordering::Relaxed);
        } else if bytes < self.bytes {
            self.budget.release(self.bytes - bytes);
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_writer_goes_on_when_there_is_room() {
        let budget = Budget::new(100, std::array::from_fn(|_| Arc::default()));
        let charge = budget.charge(200);
        let waiter = std::thread::spawn({
            let budget = Arc::clone(&budget);
            move || {
                budget.wait(&Interrupt::never()).unwrap();
                budget.used()
            }
        });
        while *budget.waiting.lock() == 0 {
            std::thread::yield_now();
        }
        drop(charge);
        assert_eq!(waiter.join().unwrap(), 0);
        assert_eq!(budget.peak(), 200);
    }

    #[test]
    fn a_paced_writer_goes_on_when_there_is_room() {
        let budget = Budget::new(800, std::array::from_fn(|_| Arc::default()));
        let below = budget.charge(99);
        budget.pace(u64::MAX);
        let charge = budget.charge(1);
        budget.pace(PACED_BYTES - 1);
        assert_eq!(budget.unpaced.load(Ordering::Relaxed), PACED_BYTES - 1, "no pause yet");
        let waiter = std::thread::spawn({
            let budget = Arc::clone(&budget);
            move || budget.pace(PACE * 3600)
        });
        while *budget.waiting.lock() == 0 {
            std::thread::yield_now();
        }
        drop(charge);
        waiter.join().unwrap();
        assert_eq!(budget.unpaced.load(Ordering::Relaxed), 0);
        drop(below);
    }

    #[test]
    fn a_stopped_writer_that_nobody_waits_for_is_let_go() {
        let budget = Budget::new(100, std::array::from_fn(|_| Arc::default()));
        let _charge = budget.charge(200);
        let interrupt = Interrupt::default();
        interrupt.set();
        assert_eq!(budget.wait(&interrupt), Err(FsError::Interrupted));
        assert_eq!(*budget.waiting.lock(), 0);
    }

    #[test]
    fn cached_blocks_leave_writers_less_room() {
        let budget = Budget::new(100, std::array::from_fn(|_| Arc::default()));
        let _charge = budget.charge(150);
        let interrupt = Interrupt::never();
        budget.wait(&interrupt).expect("slowed, not stopped");
        budget.set_cached(30);
        budget.files[0].store(15, Ordering::Relaxed);
        budget.files[1].store(5, Ordering::Relaxed);
        interrupt.set();
        assert_eq!(budget.held(), 200);
        assert_eq!(budget.wait(&interrupt), Err(FsError::Interrupted));
    }
}
