//! The metrics of a client of a cache group.

use sluice_types::metrics::{Buckets, Counter, Gauge, Histogram};

/// The times of requests to members.
const TIMES: Buckets = Buckets::times(0.000_1, 2.0, 18);

/// Counters of one client. They only rise.
#[derive(Debug)]
#[allow(missing_docs, reason = "the names say it; units are in the groups' comments")]
pub struct Stats {
    // Requests to other members: answered with a block, answered without, and not answered.
    pub hits: Counter,
    pub hit_bytes: Counter,
    pub misses: Counter,
    pub errors: Counter,
    pub times: Histogram,
    // Requests of other clients: from the cache, from the object store, of `warmup`, and without a
    // block.
    pub served_cached: Counter,
    pub served_read: Counter,
    pub served_warmed: Counter,
    pub served_bytes: Counter,
    pub served_none: Counter,
    // Connections of other clients now, and those that were refused.
    pub connections: Gauge,
    pub refused: Counter,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            hits: Counter::default(),
            hit_bytes: Counter::default(),
            misses: Counter::default(),
            errors: Counter::default(),
            times: Histogram::new(&TIMES),
            served_cached: Counter::default(),
            served_read: Counter::default(),
            served_warmed: Counter::default(),
            served_bytes: Counter::default(),
            served_none: Counter::default(),
            connections: Gauge::default(),
            refused: Counter::default(),
        }
    }
}
