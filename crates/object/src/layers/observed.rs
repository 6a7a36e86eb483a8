//! Counts the requests to a store and their results.
//!
//! What must stay true: to count never waits and never fails. Each try that reaches the store is
//! counted once, also one that its caller abandons.

use std::{
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{BoxStream, StreamExt},
};

use crate::store::{ObjectError, ObjectMeta, ObjectStore};

/// The requests to a store since it was opened.
#[derive(Debug, Default)]
pub struct Stats {
    /// Reads.
    pub get: MethodStats,
    /// Writes.
    pub put: MethodStats,
    /// Removals.
    pub delete: MethodStats,
    /// Requests for size and time.
    pub head: MethodStats,
    /// Listings; `bytes` counts objects.
    pub list: MethodStats,
}

impl Stats {
    /// Each method with its name.
    pub fn methods(&self) -> [(&'static str, &MethodStats); 5] {
        [
            ("get", &self.get),
            ("put", &self.put),
            ("delete", &self.delete),
            ("head", &self.head),
            ("list", &self.list),
        ]
    }
}

/// Upper bounds of the latency classes, in microseconds: 50 µs, doubling, to about 13 s. One more
/// class is above.
pub const LATENCY_BOUNDS: [u64; 19] = {
    let mut bounds = [50; 19];
    let mut at = 1;
    while at < bounds.len() {
        bounds[at] = bounds[at - 1] * 2;
        at += 1;
    }
    bounds
};

/// The results of one kind of request.
#[derive(Debug, Default)]
pub struct MethodStats {
    calls: AtomicU64,
    failures: AtomicU64,
    abandoned: AtomicU64,
    bytes: AtomicU64,
    nanos: AtomicU64,
    latency: [AtomicU64; LATENCY_BOUNDS.len() + 1],
}

impl MethodStats {
    /// Requests that ended, with or without an error.
    pub fn calls(&self) -> u64 {
        self.calls.load(Relaxed)
    }

    /// Those that failed, missing objects included.
    pub fn failures(&self) -> u64 {
        self.failures.load(Relaxed)
    }

    /// Those that their caller gave up, a time-out included.
    pub fn abandoned(&self) -> u64 {
        self.abandoned.load(Relaxed)
    }

    /// Bytes carried by those that succeeded.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Time spent in all of them together.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos.load(Relaxed))
    }

    /// How many took at most each of [`LATENCY_BOUNDS`] (and more than the one before), and how
    /// many took longer.
    pub fn latency(&self) -> [u64; LATENCY_BOUNDS.len() + 1] {
        std::array::from_fn(|class| self.latency[class].load(Relaxed))
    }

    fn begin(&self) -> Running<'_> {
        Running { stats: self, started: Instant::now(), ended: false }
    }
}

/// A request under way.
struct Running<'a> {
    stats: &'a MethodStats,
    started: Instant,
    ended: bool,
}

impl Running<'_> {
    fn end(mut self, result: Result<u64, ()>) {
        self.ended = true;
        match result {
            Ok(bytes) => self.stats.bytes.fetch_add(bytes, Relaxed),
            Err(()) => self.stats.failures.fetch_add(1, Relaxed),
        };
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let took = self.started.elapsed();
        let micros = took.as_micros() as u64;
        let class = LATENCY_BOUNDS.partition_point(|bound| *bound < micros);
        self.stats.latency[class].fetch_add(1, Relaxed);
        self.stats.nanos.fetch_add(took.as_nanos() as u64, Relaxed);
        self.stats.calls.fetch_add(1, Relaxed);
        if !self.ended {
            self.stats.abandoned.fetch_add(1, Relaxed);
        }
    }
}

/// A store that is counted.
#[derive(Debug)]
pub struct Observed {
    inner: Arc<dyn ObjectStore>,
    stats: Arc<Stats>,
}

impl Observed {
    /// `inner`, counted in `stats`.
    pub fn new(inner: Arc<dyn ObjectStore>, stats: Arc<Stats>) -> Self {
        Self { inner, stats }
    }
}

/// Runs `call` and counts it; `bytes` returns the number of bytes of a successful result.
async fn counted<T>(
    stats: &MethodStats,
    call: BoxFuture<'_, Result<T, ObjectError>>,
    bytes: impl Fn(&T) -> u64 + Send,
) -> Result<T, ObjectError> {
    let running = stats.begin();
    let result = call.await;
    running.end(result.as_ref().map(bytes).map_err(|_| ()));
    result
}

impl ObjectStore for Observed {
    fn describe(&self) -> String {
        self.inner.describe()
    }

    fn ranged(&self) -> bool {
        self.inner.ranged()
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(counted(&self.stats.get, self.inner.get(key, range), |data| data.len() as u64))
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        let length = data.len() as u64;
        Box::pin(counted(&self.stats.put, self.inner.put(key, data), move |()| length))
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        let length = file.metadata().map_or(0, |file| file.len());
        Box::pin(counted(&self.stats.put, self.inner.put_file(key, file), move |()| length))
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        self.inner.sync()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(counted(&self.stats.delete, self.inner.delete(key), |()| 0))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(counted(&self.stats.head, self.inner.head(key), |_| 0))
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        async_stream::stream! {
            let running = self.stats.list.begin();
            let mut found = self.inner.list(prefix);
            let (mut objects, mut failed) = (0, false);
            while let Some(meta) = found.next().await {
                objects += 1;
                failed |= meta.is_err();
                yield meta;
            }
            running.end(if failed { Err(()) } else { Ok(objects) });
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use futures::executor::block_on;

    use super::*;
    use crate::mem::MemStore;

    #[test]
    fn counts_calls_failures_and_bytes() {
        let stats = Arc::new(Stats::default());
        let store = Observed::new(Arc::new(MemStore::new()), Arc::clone(&stats));
        block_on(store.put("k", Bytes::from_static(b"1234"))).unwrap();
        block_on(store.get("k", Some(0..3))).unwrap();
        block_on(store.get("none", None)).unwrap_err();
        drop(store.head("k"));
        drop(block_on(store.list("").collect::<Vec<_>>()));
        assert_eq!((stats.put.calls(), stats.put.failures(), stats.put.bytes()), (1, 0, 4));
        assert_eq!((stats.get.calls(), stats.get.failures(), stats.get.bytes()), (2, 1, 3));
        assert_eq!(stats.get.latency().iter().sum::<u64>(), 2);
        assert_eq!((stats.head.calls(), stats.head.abandoned()), (0, 0), "it never began");
        assert_eq!((stats.list.calls(), stats.list.bytes()), (1, 1));
        assert!(stats.get.time() > Duration::ZERO);
    }
}
