//! A short delay before a commit. Threads that get their answers together submit their next
//! operations together, a little later.
//!
//! A batch that starts at once contains only the first few of them, and costs a whole commit. After
//! a short delay, one commit serves all. What must stay true: the delay is shorter than the commit.
//! If no thread came during a delay, the next commit has none. So a thread that is alone never
//! waits.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use sluice_types::wait;

use super::queued_op::AnyQueuedOp;

/// Longest wait. It uses the processor, even while a slow disk commits.
const LONGEST: Duration = Duration::from_micros(500);

/// What the last batch tells about the next.
#[derive(Default)]
pub(super) struct CommitDelay {
    /// Threads whose operations were in it.
    threads: AtomicUsize,
    /// How long it took, in nanoseconds.
    took: AtomicU64,
}

impl CommitDelay {
    /// A batch of these operations is done.
    pub(super) fn answered(&self, queued: &[Arc<AnyQueuedOp>], took: Duration) {
        let more =
            queued.windows(2).filter(|pair| !Arc::ptr_eq(&pair[0].submitter, &pair[1].submitter)).count();
        self.threads.store(more + 1, Ordering::Relaxed);
        self.took.store(took.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Lets other threads run until half as many operations wait as threads were answered last, if
    /// that is soon and `waiting` can tell.
    pub(super) fn wait(&self, waiting: impl Fn() -> Option<usize>) {
        let wanted = self.threads.load(Ordering::Relaxed) / 2;
        let enough = || waiting().is_none_or(|count| count >= wanted);
        if wanted < 2 || enough() {
            return;
        }
        let until = wait::now() + LONGEST.min(Duration::from_nanos(self.took.load(Ordering::Relaxed)) / 4);
        while wait::now() < until {
            wait::yield_now();
            if enough() {
                return;
            }
        }
        self.threads.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    fn commit_delay(threads: usize, took: Duration) -> CommitDelay {
        CommitDelay { threads: threads.into(), took: AtomicU64::new(took.as_nanos() as u64) }
    }

    #[test]
    fn who_is_alone_or_has_company_does_not_wait() {
        for (threads, waiting) in [(0, Some(1)), (1, Some(1)), (3, Some(1)), (100, Some(50)), (100, None)] {
            let asked = Cell::new(0);
            commit_delay(threads, Duration::from_hours(1)).wait(|| {
                asked.set(asked.get() + 1);
                waiting
            });
            assert!(asked.get() <= 1, "{threads} {waiting:?}");
        }
    }

    #[test]
    fn the_wait_ends_when_half_of_them_are_back() {
        let waiting = Cell::new(0);
        commit_delay(100, Duration::from_hours(1)).wait(|| Some(waiting.replace(waiting.get() + 1)));
        assert!(waiting.get() <= 51);
    }

    #[test]
    fn nobody_waits_twice_for_those_who_did_not_come() {
        let commit_delay = commit_delay(100, Duration::from_millis(1));
        commit_delay.wait(|| Some(1));
        let asked = Cell::new(false);
        commit_delay.wait(|| {
            asked.set(true);
            Some(1)
        });
        assert!(!asked.get());
    }
}
