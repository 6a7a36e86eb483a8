//! Counters of the data path, kept as atomics so that counting costs nothing worth mentioning.
//!
//! What must stay true: counters only rise; whoever shows them takes differences.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A number that rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    pub(crate) fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    pub(crate) fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Gauge {
    /// One more, until that is dropped.
    pub(crate) fn one(&self) -> One<'_> {
        self.add(1);
        One(self)
    }
}

/// One that a gauge counts.
pub(crate) struct One<'a>(&'a Gauge);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

/// Number of buckets of a [`Histogram`].
const BUCKETS: usize = 32;

/// Durations in buckets that double: bucket n counts those below 2^n microseconds.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    nanos: AtomicU64,
}

impl Histogram {
    pub(crate) fn observe(&self, duration: Duration) {
        let micros = duration.as_micros() as u64;
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].fetch_add(1, Ordering::Relaxed);
        self.nanos.fetch_add(duration.as_nanos() as u64, Ordering::Relaxed);
    }

    /// Durations observed.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)).sum()
    }

    /// Sum of all durations.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Ordering::Relaxed))
    }

    /// Upper bound of each bucket and how many durations lie in it.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> {
        let bounds = (0..BUCKETS as u32).map(|n| Duration::from_micros(1 << n));
        bounds.zip(self.buckets.iter().map(|bucket| bucket.load(Ordering::Relaxed)))
    }
}

/// What the data path counts.
#[derive(Debug, Default)]
#[allow(missing_docs, reason = "the names say it; units are in the groups' comments")]
pub struct Stats {
    // Reads answered from memory, from local files, and from neither.
    pub memory_hits: Counter,
    pub memory_hit_bytes: Counter,
    pub cache_hits: Counter,
    pub cache_hit_bytes: Counter,
    pub cache_misses: Counter,
    pub cache_miss_bytes: Counter,
    // Local cache files: how many there are now, their bytes, and what became of offered blocks.
    pub cache_blocks: Gauge,
    pub cache_bytes: Gauge,
    pub cache_writes: Counter,
    pub cache_write_bytes: Counter,
    pub cache_drops: Counter,
    pub cache_evictions: Counter,
    pub cache_damaged: Counter,
    pub cache_read_time: Histogram,
    pub cache_write_time: Histogram,
    // Staged blocks that wait for their upload.
    pub staged_blocks: Gauge,
    pub staged_bytes: Gauge,
    pub staged_errors: Counter,
    pub staged_write_bytes: Counter,
    // Requests to the object store.
    pub gets: Counter,
    pub get_bytes: Counter,
    pub get_time: Histogram,
    pub puts: Counter,
    pub put_bytes: Counter,
    pub put_time: Histogram,
    pub deletes: Counter,
    pub object_errors: Counter,
    pub uploading: Gauge,
    // Read-ahead and whole-block fetches asked for.
    pub prefetches: Counter,
    // Writer and compaction.
    pub write_bytes: Counter,
    pub commits: Counter,
    pub committed_records: Counter,
    pub commit_errors: Counter,
    pub compactions: Counter,
    pub compacted_bytes: Counter,
    // Memory in use by dirty data and blocks in flight, and by the memory cache.
    pub buffer_bytes: Gauge,
    pub memory_bytes: Gauge,
}
