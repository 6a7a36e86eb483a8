//! Which requests are answered at once, and which may wait.
//!
//! What must stay true: a request counts as one that may wait until enough of its kind were quick. So
//! the thread of a ring seldom runs one that waits.

use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use crate::abi::opcode;

/// A run that takes longer is not quick.
const QUICK: Duration = Duration::from_micros(30);
/// Requests with at least so many bytes of data take time without waiting.
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
pub(crate) struct Pace([AtomicU32; KINDS]);

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kind(usize);

impl Kind {
    /// `size`: the bytes of its data.
    pub(crate) fn new(operation: u32, size: u32) -> Self {
        let large = matches!(operation, opcode::READ | opcode::WRITE) && size >= LARGE;
        Self((operation as usize).min(KINDS / 2 - 1) + if large { KINDS / 2 } else { 0 })
    }

    /// Whether it takes time without waiting.
    fn is_large(self) -> bool {
        self.0 >= KINDS / 2
    }
}

impl Pace {
    pub(crate) fn new() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(WHOLE)))
    }

    /// Whether a request of this kind may wait.
    pub(crate) fn may_wait(&self, kind: Kind) -> bool {
        self.0[kind.0].load(Ordering::Relaxed) > LIMIT
    }

    /// A run of this kind begins.
    pub(crate) fn begin(kind: Kind) -> Begun {
        let waits = if kind.is_large() { waits() } else { 0 };
        Begun { kind, waits }
    }

    /// A run has ended after `took`.
    pub(crate) fn end(&self, begun: &Begun, took: Duration) {
        let quick = if begun.kind.is_large() { waits() == begun.waits } else { took <= QUICK };
        let part = &self.0[begun.kind.0];
        let before = part.load(Ordering::Relaxed);
        let now = if quick { before - before.div_ceil(WEIGHT) } else { before + (WHOLE - before) / WEIGHT };
        // Another thread may do the same: then one run is not counted.
        if now != before {
            part.store(now, Ordering::Relaxed);
        }
    }

    /// A run waited for long: its kind may wait.
    pub(crate) fn waited(&self, kind: Kind) {
        self.0[kind.0].store(WHOLE, Ordering::Relaxed);
    }
}

/// A run that began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) kind: Kind,
    waits: i64,
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

    #[test]
    fn a_kind_may_wait_until_enough_runs_were_quick() {
        let pace = Pace::new();
        let kind = Kind::new(opcode::GETATTR, 0);
        let run = |took| pace.end(&Pace::begin(kind), took);
        assert!(pace.may_wait(kind));
        (0..WEIGHT * 2).for_each(|_| run(Duration::from_micros(3)));
        assert!(!pace.may_wait(kind) && pace.may_wait(Kind::new(opcode::LOOKUP, 0)));
        run(Duration::from_millis(2));
        assert!(!pace.may_wait(kind), "one of many");
        (0..WEIGHT).for_each(|_| run(Duration::from_millis(2)));
        assert!(pace.may_wait(kind));
        (0..WEIGHT * 2).for_each(|_| run(Duration::from_micros(3)));
        pace.waited(kind);
        assert!(pace.may_wait(kind));
    }

    #[test]
    fn much_data_takes_time_without_waiting() {
        let pace = Pace::new();
        let large = Kind::new(opcode::READ, 1 << 20);
        assert_ne!(large, Kind::new(opcode::READ, 4096));
        (0..WEIGHT * 2).for_each(|_| pace.end(&Pace::begin(large), Duration::from_millis(1)));
        assert!(!pace.may_wait(large));
    }
}
