//! Periodic work on a cache directory: scans it for files, and removes blocks that were not used
//! for a long time.
//!
//! What must stay true: when the cache stops, it does not wait for this work.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// Shortest time between two searches for unused blocks.
const CHECK_INTERVAL: Duration = Duration::from_mins(1);

/// Ends the wait for the next run.
#[derive(Debug, Default)]
pub(super) struct Stop {
    stopped: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.stopped.lock() = true;
        self.changed.notify_all();
    }

    pub(super) fn is_set(&self) -> bool {
        *self.stopped.lock()
    }

    /// Waits until `due`. Returns false if the cache stops before.
    pub(super) fn wait_until(&self, due: Instant) -> bool {
        let mut stopped = self.stopped.lock();
        while !*stopped {
            if self.changed.wait_until(&mut stopped, due).timed_out() {
                return !*stopped;
            }
        }
        false
    }
}

/// Finds the tick of the index before which uses are old enough, without the time of each use.
#[derive(Debug)]
pub(super) struct Expiry {
    after: Duration,
    /// Ticks of the index, and when each was read.
    seen: VecDeque<(Instant, u64)>,
}

impl Expiry {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, seen: VecDeque::new() }
    }

    /// Time between two searches.
    pub(super) fn interval(&self) -> Duration {
        self.after.min(CHECK_INTERVAL)
    }

    /// The index had `tick` at `now`. Returns the latest tick that is old enough, if there is one.
    pub(super) fn look(&mut self, now: Instant, tick: u64) -> Option<u64> {
        self.seen.push_back((now, tick));
        let mut old = None;
        while let Some((at, tick)) = self.seen.front().copied()
            && now.saturating_duration_since(at) >= self.after
        {
            old = Some(tick);
            self.seen.pop_front();
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_long_enough_ago_is_told_once() {
        let begun = Instant::now();
        let at = |seconds| begun + Duration::from_secs(seconds);
        let mut expiry = Expiry::new(Duration::from_mins(5));
        assert_eq!(expiry.interval(), CHECK_INTERVAL);
        assert_eq!(expiry.look(at(0), 10), None);
        assert_eq!(expiry.look(at(60), 20), None);
        assert_eq!(expiry.look(at(299), 30), None);
        assert_eq!(expiry.look(at(300), 40), Some(10));
        assert_eq!(expiry.look(at(301), 50), None);
        assert_eq!(expiry.look(at(600), 60), Some(40));
    }
}
