//! Counters of the data path.
//!
//! What must stay true: counters only rise. Code that needs a rate computes the difference of two
//! reads.

use sluice_types::metrics::{Buckets, Counter, Gauge, Histogram};

/// Classes of the times of local files. Those of `JuiceFS`, as the others here.
const LOCAL: Buckets = Buckets::times(0.000_01, 2.0, 20);
/// Classes of the times of requests to the object store.
const REQUESTS: Buckets = Buckets::times(0.01, 1.5, 25);
/// Classes of the sizes of what is compacted.
const COMPACTED: Buckets = Buckets::numbers(1024.0, 2.0, 16);

/// How long things took.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Times {
    pub cache_read: Histogram,
    pub cache_write: Histogram,
    pub get: Histogram,
    pub put: Histogram,
    pub delete: Histogram,
    /// Bytes of each slice that a compaction made.
    pub compacted: Histogram,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            cache_read: Histogram::new(&LOCAL),
            cache_write: Histogram::new(&LOCAL),
            get: Histogram::new(&REQUESTS),
            put: Histogram::new(&REQUESTS),
            delete: Histogram::new(&REQUESTS),
            compacted: Histogram::new(&COMPACTED),
        }
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
    // Staged blocks that wait for their upload.
    pub staged_blocks: Gauge,
    pub staged_bytes: Gauge,
    pub staged_errors: Counter,
    pub staged_write_bytes: Counter,
    pub staging: Gauge,
    /// Nanoseconds between staging and upload.
    pub staged_delay: Counter,
    // Requests to the object store.
    pub gets: Counter,
    pub get_bytes: Counter,
    pub puts: Counter,
    pub put_bytes: Counter,
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
    // How long things took, and the sizes of what was compacted.
    pub times: Times,
    // Memory in use by dirty data and blocks in flight, and by the memory cache.
    pub buffer_bytes: Gauge,
    pub memory_bytes: Gauge,
}
