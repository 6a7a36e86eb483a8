//! Which requests are answered at once, and which may wait.
//!
//! What must stay true: a request counts as one that may wait until enough of its kind were quick.
//! So the thread of a ring seldom runs one that waits.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};

use crate::abi::opcode;

/// The next run after one that takes longer is measured exactly.
const QUICK: Duration = Duration::from_micros(30);
/// A run that takes longer is not quick, even if it does not wait.
const LONG: Duration = Duration::from_millis(1);
/// Requests with at least so many bytes of data are kinds of their own.
const LARGE: u32 = 32 << 10;
/// Kinds: operations, and those with much data.
const KINDS: usize = 128;
/// The part of runs that were not quick, of so many.
const WHOLE: u32 = 1 << 16;
/// Of kinds with more than this part, a request may wait.
const LIMIT: u32 = WHOLE / 4;
/// Each run counts for one of so many.
const WEIGHT: u32 = 16;

/// What is known of each kind of request.
pub(crate) struct Pace([Known; KINDS]);

#[derive(Default)]
struct Known {
    /// The part of runs that were not quick.
    slow: AtomicU32,
    /// Whether the next run is measured exactly.
    exact: AtomicBool,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(usize);

impl Kind {
    /// `size`: the bytes of its data.
    pub(crate) fn new(operation: u32, size: u32) -> Self {
        let large = matches!(operation, opcode::READ | opcode::WRITE) && size >= LARGE;
        Self((operation as usize).min(KINDS / 2 - 1) + if large { KINDS / 2 } else { 0 })
    }
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| Known { slow: WHOLE.into(), ..Known::default() }))
    }

    /// Whether a request of this kind may wait.
    pub(crate) fn may_wait(&self, kind: Kind) -> bool {
        self.0[kind.0].slow.load(Ordering::Relaxed) > LIMIT
    }

    /// A run of this kind begins on this thread. `exactly` costs a system call at its begin and one
    /// at its end.
    pub(crate) fn begin(&self, kind: Kind, exactly: bool) -> Begun {
        let exactly = exactly || self.0[kind.0].exact.load(Ordering::Relaxed);
        Begun { kind, waits: exactly.then(waits) }
    }

    /// A run has ended after `took`.
    pub(crate) fn end(&self, begun: Begun, took: Duration) {
        let known = &self.0[begun.kind.0];
        let quick = match begun.waits {
            None if took > QUICK => {
                // It waited, or other threads ran on this CPU.
                known.exact.store(true, Ordering::Relaxed);
                return;
            }
            None => true,
            Some(before) => {
                known.exact.store(false, Ordering::Relaxed);
                took <= LONG && waits() == before
            }
        };
        let before = known.slow.load(Ordering::Relaxed);
        let now = if quick { before - before.div_ceil(WEIGHT) } else { before + (WHOLE - before) / WEIGHT };
        // Another thread may do the same: then one run is not counted.
        if now != before {
            known.slow.store(now, Ordering::Relaxed);
        }
    }

    /// A run waited for long: its kind may wait.
    pub(crate) fn waited(&self, kind: Kind) {
        self.0[kind.0].slow.store(WHOLE, Ordering::Relaxed);
    }
}

/// A run that began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    kind: Kind,
    /// How often the thread had waited, if the run is measured exactly.
    waits: Option<i64>,
}

/// How often the calling thread has waited.
#[allow(unsafe_code)]
fn waits() -> i64 {
    // SAFETY: zeros are a valid `rusage`, and the call writes only that.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_nvcsw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pace: &Pace, kind: Kind, exactly: bool, work: impl FnOnce() -> Duration) {
        let begun = pace.begin(kind, exactly);
        let took = work();
        pace.end(begun, took);
    }

    fn wait() -> Duration {
        std::thread::park_timeout(Duration::from_micros(1));
        Duration::from_micros(50)
    }

    #[test]
    fn a_kind_may_wait_until_enough_runs_were_quick() {
        let pace = Pace::new();
        let kind = Kind::new(opcode::GETATTR, 0);
        let quick = || Duration::from_micros(3);
        assert!(pace.may_wait(kind));
        (0..WEIGHT * 2).for_each(|_| run(&pace, kind, true, quick));
        assert!(!pace.may_wait(kind) && pace.may_wait(Kind::new(opcode::LOOKUP, 0)));
        run(&pace, kind, false, wait);
        assert!(!pace.may_wait(kind), "one of many");
        (0..WEIGHT).for_each(|_| run(&pace, kind, false, wait));
        assert!(pace.may_wait(kind));
        (0..WEIGHT * 2).for_each(|_| run(&pace, kind, false, quick));
        assert!(!pace.may_wait(kind));
        pace.waited(kind);
        assert!(pace.may_wait(kind));
    }

    #[test]
    fn time_of_others_does_not_count() {
        let pace = Pace::new();
        let large = Kind::new(opcode::READ, 1 << 20);
        assert_ne!(large, Kind::new(opcode::READ, 4096));
        (0..WEIGHT * 4).for_each(|_| run(&pace, large, false, || Duration::from_micros(200)));
        assert!(!pace.may_wait(large));
        (0..WEIGHT).for_each(|_| run(&pace, large, true, || Duration::from_millis(2)));
        assert!(pace.may_wait(large), "it keeps the ring from others");
    }
}
