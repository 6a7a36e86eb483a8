//! What is done for a cache directory from time to time: it is searched for files, and blocks that
//! nobody used for long go.
//!
//! What must stay true: to stop the cache waits for none of it.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

/// How often it is looked for what nobody used, at most.
const LOOK: Duration = Duration::from_mins(1);

/// Ends the wait for the next time.
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

    /// Waits until `due`. Answers false if it is over before.
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

/// Finds out how far uses go back that were long enough ago, without the time of each.
#[derive(Debug)]
pub(super) struct Expiry {
    after: Duration,
    /// What the index counted, and when.
    seen: VecDeque<(Instant, u64)>,
}

impl Expiry {
    pub(super) fn new(after: Duration) -> Self {
        Self { after, seen: VecDeque::new() }
    }

    /// Time between two looks.
    pub(super) fn interval(&self) -> Duration {
        self.after.min(LOOK)
    }

    /// The index counts `tick` at `now`; the latest count that is old enough, if there is one.
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
        assert_eq!(expiry.interval(), LOOK);
        assert_eq!(expiry.look(at(0), 10), None);
        assert_eq!(expiry.look(at(60), 20), None);
        assert_eq!(expiry.look(at(299), 30), None);
        assert_eq!(expiry.look(at(300), 40), Some(10));
        assert_eq!(expiry.look(at(301), 50), None);
        assert_eq!(expiry.look(at(600), 60), Some(40));
    }
}
