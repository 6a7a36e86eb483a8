//! Whether more threads want to run than this machine has processors.
//!
//! What must stay true: it costs almost nothing, however often it is asked.

use std::{
    fs::File,
    sync::{
        LazyLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(4);
/// After this time without a look, earlier ones say nothing.
const OLD: Duration = Duration::from_millis(200);
/// A thread, in the average.
const THREAD: u64 = 256;
/// A look counts one in so many.
const SHARE: u64 = 8;
/// The kernel's file that says how many threads run or want to.
const FILE: &str = "/proc/loadavg";

static PROCESSORS: LazyLock<Processors> = LazyLock::new(Processors::new);

/// Whether they are busy at the moment. On systems that do not say it, they never are.
pub(crate) fn are_busy(now: Instant) -> bool {
    PROCESSORS.are_busy(now)
}

struct Processors {
    load: Option<File>,
    begun: Instant,
    /// Microseconds from the beginning to the last look.
    looked: AtomicU64,
    running: Average,
}

/// How many threads ran or wanted to run of late.
struct Average {
    processors: u64,
    threads: AtomicU64,
}

impl Processors {
    fn new() -> Self {
        let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        Self {
            load: File::open(FILE).ok(),
            begun: Instant::now(),
            looked: AtomicU64::new(0),
            running: Average { processors, threads: AtomicU64::new(0) },
        }
    }

    fn are_busy(&self, now: Instant) -> bool {
        let at = now.saturating_duration_since(self.begun).as_micros() as u64;
        let last = self.looked.load(Relaxed);
        let passed = Duration::from_micros(at.saturating_sub(last));
        let is_due = passed >= INTERVAL && self.looked.compare_exchange(last, at, Relaxed, Relaxed).is_ok();
        if let Some(threads) = is_due.then(|| self.look()).flatten() {
            self.running.note(threads, passed >= OLD);
        }
        self.running.is_high()
    }

    fn look(&self) -> Option<u64> {
        let mut text = [0; 64];
        let length = rustix::io::pread(self.load.as_ref()?, &mut text, 0).ok()?;
        running(str::from_utf8(&text[..length]).ok()?)
    }
}

impl Average {
    fn note(&self, threads: u64, is_first: bool) {
        let before = if is_first { threads * THREAD } else { self.threads.load(Relaxed) };
        self.threads.store(before - before / SHARE + threads * THREAD / SHARE, Relaxed);
    }

    /// Whether one waits at least every other time.
    fn is_high(&self) -> bool {
        self.threads.load(Relaxed) >= self.processors * THREAD + THREAD / 2
    }
}

/// The number in `load averages running/all last-pid`.
fn running(text: &str) -> Option<u64> {
    text.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_says_how_many_threads_run() {
        assert_eq!(running("0.20 0.18 0.12 3/80 11206\n"), Some(3));
        assert_eq!(running("0.20 0.18"), None);
        if cfg!(target_os = "linux") {
            assert!(Processors::new().look().is_some_and(|threads| threads >= 1), "this one runs");
        }
    }

    #[test]
    fn processors_are_busy_while_more_threads_want_to_run_most_of_the_time() {
        let running = Average { processors: 2, threads: AtomicU64::new(0) };
        running.note(9, true);
        assert!(running.is_high());
        (0..40).for_each(|_| running.note(2, false));
        assert!(!running.is_high(), "each has one");
        running.note(5, false);
        assert!(!running.is_high(), "a moment says little");
        (0..40).for_each(|_| running.note(5, false));
        assert!(running.is_high());
        running.note(1, true);
        assert!(!running.is_high(), "what was long ago does not count");
    }
}
