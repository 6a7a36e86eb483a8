//! Slows a dump down, so that others can use the database or the machine meanwhile.
//!
//! What must stay true: all pauses together have a limit. So a dump from a snapshot ends before the
//! engine drops the snapshot, a dump without a snapshot ends before much has changed, and a backup
//! ends before the next is due.

use std::{
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

/// Longest pause, as a multiple of the read before it.
const MOST: f64 = 19.0;
/// Longest pause, however long the read took.
const LONGEST: Duration = Duration::from_secs(2);
/// All pauses together. TiKV keeps a snapshot for 10 minutes by default, and the shortest interval
/// of backups is 5 minutes.
const ALL: Duration = Duration::from_mins(4);
/// Work on the own machine between two pauses.
const WORK: Duration = Duration::from_millis(20);
/// Inodes that are read in a second, roughly. The pauses are planned for this rate.
const RATE: f64 = 100_000.0;

/// Runs one read after the other, with pauses between them.
#[derive(Debug)]
pub(crate) struct ReadThrottle {
    /// What is left for all further pauses. Locked by the thread that reads.
    left: Mutex<Duration>,
    /// The pause after a read, as a multiple of that read.
    pause: f64,
}

impl ReadThrottle {
    /// For a volume with this many inodes.
    pub(crate) fn new(inodes: i64) -> Self {
        let reads = (inodes.max(1) as f64) / RATE;
        Self { left: Mutex::new(ALL), pause: (ALL.as_secs_f64() / reads).min(MOST) }
    }

    /// Runs one read alone, then pauses.
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

/// Pauses during work on the own machine, which may share its processors with the database.
#[derive(Debug)]
pub(crate) struct WorkThrottle {
    left: Duration,
    /// When work went on after the last pause.
    since: Instant,
}

impl WorkThrottle {
    /// For work that begins now. Without pauses unless `throttled`.
    pub(crate) fn new(throttled: bool) -> Self {
        Self { left: if throttled { ALL } else { Duration::ZERO }, since: Instant::now() }
    }

    /// Pauses if the work since the last pause was long enough. To be called often.
    pub(crate) fn step(&mut self) {
        let worked = self.since.elapsed();
        if worked < WORK || self.left.is_zero() {
            return;
        }
        let pause = worked.mul_f64(MOST).min(LONGEST).min(self.left);
        self.left -= pause;
        thread::sleep(pause);
        self.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_are_shorter_the_larger_the_volume_is() {
        let pause = |inodes| ReadThrottle::new(inodes).pause;
        for small in [-1, 0, 1, 1_000_000] {
            assert!((pause(small) - MOST).abs() < 1e-9);
        }
        // 1,000 s of reads.
        assert!((pause(100_000_000) - 0.24).abs() < 1e-9);
    }

    #[test]
    fn a_pause_follows_each_read_until_all_have_taken_enough() {
        let throttle = ReadThrottle { left: Mutex::new(Duration::from_millis(20)), pause: 3.0 };
        let read = || {
            let until = Instant::now() + Duration::from_millis(5);
            while Instant::now() < until {}
            7
        };
        let begun = Instant::now();
        assert_eq!(throttle.read(read), 7);
        assert!(begun.elapsed() >= Duration::from_millis(20));
        throttle.read(read);
        assert_eq!(*throttle.left.lock().unwrap(), Duration::ZERO, "the second pause was cut");
        throttle.read(read);
        assert_eq!(*throttle.left.lock().unwrap(), Duration::ZERO);
    }

    #[test]
    fn a_pause_follows_enough_work_until_all_have_taken_enough() {
        let begun = Instant::now();
        let mut throttle =
            WorkThrottle { left: Duration::from_millis(50), since: begun + Duration::from_hours(1) };
        throttle.step();
        assert_eq!(throttle.left, Duration::from_millis(50), "there was no work");
        while begun.elapsed() < WORK {}
        throttle.since = begun;
        throttle.step();
        assert_eq!(throttle.left, Duration::ZERO);
        assert!(begun.elapsed() >= WORK + Duration::from_millis(50) && throttle.since > begun);
    }
}
