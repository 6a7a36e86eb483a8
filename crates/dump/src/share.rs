//! A dump that leaves the database to others for most of the time.
//!
//! What must stay true: all pauses together have a limit, so that a dump of one moment ends before
//! the engine gives that moment up, and one without a moment before much has moved.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How many times as long as it reads it pauses, at most.
const MOST: f64 = 19.0;
/// Longest pause, whatever the read waited for.
const LONGEST: Duration = Duration::from_secs(2);
/// What all pauses take together. TiKV keeps a moment for 10 minutes by default, and the least
/// interval of backups is 5.
const ALL: Duration = Duration::from_mins(4);
/// Inodes that are read in a second, roughly: what the pauses are planned for.
const RATE: f64 = 100_000.0;

/// Lets one read after the other through, and pauses between them.
#[derive(Debug)]
pub(crate) struct Share {
    /// What all further pauses may take. Locked by who reads.
    left: Mutex<Duration>,
    /// How many times as long as a read its pause is.
    pause: f64,
}

impl Share {
    /// For a volume of so many inodes.
    pub(crate) fn new(inodes: i64) -> Self {
        let reads = (inodes.max(1) as f64) / RATE;
        Self { left: Mutex::new(ALL), pause: (ALL.as_secs_f64() / reads).min(MOST) }
    }

    /// Reads, alone, and pauses.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let found = read();
        let pause = begun.elapsed().mul_f64(self.pause).min(LONGEST).min(*left);
        *left -= pause;
        thread::sleep(pause);
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_shorter_the_larger_the_volume_is() {
        let pause = |inodes| Share::new(inodes).pause;
        for small in [-1, 0, 1, 1_000_000] {
            assert!((pause(small) - MOST).abs() < 1e-9);
        }
        // 1,000 s of reads.
        assert!((pause(100_000_000) - 0.24).abs() < 1e-9);
    }

    #[test]
    fn a_pause_follows_each_read_until_all_have_taken_enough() {
        let share = Share { left: Mutex::new(Duration::from_millis(20)), pause: 3.0 };
        let read = || {
            let until = Instant::now() + Duration::from_millis(5);
            while Instant::now() < until {}
            7
        };
        let begun = Instant::now();
        assert_eq!(share.read(read), 7);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        share.read(read);
        assert_eq!(*share.left.lock().unwrap(), Duration::ZERO, "the second pause was cut");
        share.read(read);
        assert_eq!(*share.left.lock().unwrap(), Duration::ZERO);
    }
}
