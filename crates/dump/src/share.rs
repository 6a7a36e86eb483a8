//! A dump that leaves the database to others for most of the time.
//!
//! What must stay true: pauses are bounded, so that a dump of one moment ends before the engine
//! gives that moment up.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// How many times as long as it reads it pauses, at most.
const MOST: f64 = 19.0;
/// Longest pause, whatever the read waited for.
const LONGEST: Duration = Duration::from_secs(2);
/// What all pauses take together. TiKV keeps a moment for 10 minutes by default.
const ALL_OF_A_MOMENT: Duration = Duration::from_mins(4);
/// The same where no moment has to be kept.
const ALL: Duration = Duration::from_mins(30);
/// Inodes that are read in a second, roughly: what the pauses are planned for.
const RATE: f64 = 100_000.0;

/// Lets one read after the other through, and pauses between them.
#[derive(Debug)]
pub(crate) struct Share {
    turn: Mutex<()>,
    /// How many times as long as a read its pause is.
    pause: f64,
}

impl Share {
    /// For a volume of so many inodes, read at one moment or not.
    pub(crate) fn new(inodes: i64, is_moment: bool) -> Self {
        let all = if is_moment { ALL_OF_A_MOMENT } else { ALL };
        let reads = (inodes.max(1) as f64) / RATE;
        Self { turn: Mutex::default(), pause: (all.as_secs_f64() / reads).min(MOST) }
    }

    /// Reads, alone, and pauses.
    pub(crate) fn read<T>(&self, read: impl FnOnce() -> T) -> T {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let begun = Instant::now();
        let found = read();
        thread::sleep(begun.elapsed().mul_f64(self.pause).min(LONGEST));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_shorter_the_larger_the_volume_is() {
        let pause = |inodes, is_moment| Share::new(inodes, is_moment).pause;
        for small in [-1, 0, 1, 1_000_000] {
            assert!((pause(small, true) - MOST).abs() < 1e-9 && (pause(small, false) - MOST).abs() < 1e-9);
        }
        // 1,000 s of reads.
        assert!((pause(100_000_000, true) - 0.24).abs() < 1e-9);
        assert!((pause(100_000_000, false) - 1.8).abs() < 1e-9);
    }

    #[test]
    fn a_pause_follows_each_read() {
        let share = Share { turn: Mutex::default(), pause: 3.0 };
        let begun = Instant::now();
        let read = || {
            let until = Instant::now() + Duration::from_millis(5);
            while Instant::now() < until {}
            7
        };
        assert_eq!(share.read(read), 7);
        assert!(begun.elapsed() >= Duration::from_millis(20));
    }
}
