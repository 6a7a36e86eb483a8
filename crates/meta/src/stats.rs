//! The metrics of metadata operations of a client.
//!
//! What must stay true: counting adds no clock reads for operations of a batch. The batch reads the
//! clock anyway: when an operation is queued, when the batch begins and when it ends.

use std::time::{Duration, Instant};

use sluice_types::metrics::{Buckets, ByName, Counter, Gauge, Histogram};

/// Classes of the times of operations and commits. Those of `JuiceFS`.
const OPERATIONS: Buckets = Buckets::times(0.0001, 1.5, 30);
/// Classes of the times that operations wait for their batch: from 10 µs to 84 s.
const WAITS: Buckets = Buckets::times(0.000_01, 2.0, 24);
/// Classes of the numbers of operations in a batch.
const BATCHES: Buckets = Buckets::numbers(1.0, 2.0, 13);

/// What became of the operations of one client so far.
#[derive(Debug)]
pub struct MetaStats {
    /// Batches: from their first read to the answer of their commit, tries again included.
    pub commits: Histogram,
    /// Operations, from the call to the answer. Those that were answered without the engine took
    /// no time.
    pub operations: Histogram,
    /// The same by the names of the operations.
    pub by_name: ByName,
    /// How long operations waited until their batch began.
    pub queued: Histogram,
    /// Operations in each batch.
    pub batched: Histogram,
    /// Reads without a commit: one trip, or a batch of operations that only read.
    pub reads: Histogram,
    /// Operations that ran again since others changed what they had seen, by their names.
    pub restarts: ByName,
    /// Batches that were tried again, by cause.
    pub retries: Retries,
    /// Threads that wait for a lock of a file now.
    pub lock_waiters: Gauge,
    /// How long threads waited for locks of files that they did not get at once.
    pub lock_waits: Histogram,
}

/// Why batches and reads were tried again.
#[derive(Debug, Default)]
pub struct Retries {
    /// Others changed what the batch had seen.
    pub conflict: Counter,
    /// The engine could not be reached, or did not answer in time.
    pub unavailable: Counter,
    /// The answer to a commit was lost, and it was found out whether it had happened.
    pub lost_answer: Counter,
    /// The engine refused the batch as a whole, so its operations were tried one by one.
    pub refused: Counter,
    /// A read outside a batch was tried again.
    pub read: Counter,
}

impl Retries {
    /// Each with the name of its cause.
    pub fn causes(&self) -> [(&'static str, &Counter); 5] {
        [
            ("conflict", &self.conflict),
            ("unavailable", &self.unavailable),
            ("lost_answer", &self.lost_answer),
            ("refused", &self.refused),
            ("read", &self.read),
        ]
    }
}

impl Default for MetaStats {
    fn default() -> Self {
        Self {
            commits: Histogram::new(&OPERATIONS),
            operations: Histogram::new(&OPERATIONS),
            by_name: ByName::default(),
            queued: Histogram::new(&WAITS),
            batched: Histogram::new(&BATCHES),
            reads: Histogram::new(&OPERATIONS),
            restarts: ByName::default(),
            retries: Retries::default(),
            lock_waiters: Gauge::default(),
            lock_waits: Histogram::new(&OPERATIONS),
        }
    }
}

impl MetaStats {
    /// Counts an operation that took `time`.
    pub(crate) fn operation(&self, name: &'static str, time: Duration) {
        self.operations.observe(time);
        self.by_name.observe(name, time);
    }

    /// Counts an operation that was queued at `queued` and answered by a batch that ran from
    /// `begun` to `ended`.
    pub(crate) fn batched(&self, name: &'static str, queued: Instant, (begun, ended): (Instant, Instant)) {
        self.queued.observe(begun.saturating_duration_since(queued));
        self.operation(name, ended.saturating_duration_since(queued));
    }
}
