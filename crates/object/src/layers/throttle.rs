//! Bandwidth limits.
//!
//! What must stay true: over a longer time, no more bytes pass than the limit allows. If a call is
//! dropped while it waits, or if its object does not exist, its share of the bandwidth is returned.

use std::{ops::Range, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{future::BoxFuture, stream::BoxStream};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::{
    config::Limits,
    store::{ObjectError, ObjectMeta, ObjectStore},
};

/// Part of the stated bandwidth that payload may use; the rest is for protocols below.
const PAYLOAD: f64 = 0.85;

/// A store whose transfers are limited.
#[derive(Debug)]
pub struct Throttle {
    inner: Arc<dyn ObjectStore>,
    up: Option<Bucket>,
    down: Option<Bucket>,
}

impl Throttle {
    /// `inner` within `limits`.
    pub fn new(inner: Arc<dyn ObjectStore>, limits: Limits) -> Self {
        Self { inner, up: Bucket::of(limits.upload_mbps), down: Bucket::of(limits.download_mbps) }
    }
}

/// A token bucket that holds the bytes of one second. A caller may overdraw it, and then waits.
#[derive(Debug)]
struct Bucket {
    /// Bytes per second.
    rate: f64,
    capacity: f64,
    state: Mutex<(f64, Instant)>,
}

impl Bucket {
    fn of(mbps: u64) -> Option<Self> {
        let nominal = mbps as f64 * 1e6 / 8.0;
        (mbps > 0).then(|| Self {
            rate: nominal * PAYLOAD,
            capacity: nominal,
            state: Mutex::new((nominal, Instant::now())),
        })
    }

    /// Takes `bytes` (negative: returns them). Returns how long to wait for them.
    fn draw(&self, bytes: f64) -> Duration {
        let mut state = self.state.lock();
        let now = Instant::now();
        let earned = (now - state.1).as_secs_f64() * self.rate;
        *state = ((state.0 + earned).min(self.capacity) - bytes, now);
        Duration::from_secs_f64((-state.0 / self.rate).max(0.0))
    }

    async fn take(&self, bytes: u64) {
        let wait = self.draw(bytes as f64);
        if !wait.is_zero() {
            let mut claim = Claim { bucket: self, bytes: bytes as f64 };
            sleep(wait).await;
            claim.bytes = 0.0;
        }
    }

    /// Takes `announced` bytes, reads, and takes or returns the difference.
    async fn read(
        &self,
        announced: u64,
        get: impl Future<Output = Result<Bytes, ObjectError>>,
    ) -> Result<Bytes, ObjectError> {
        self.take(announced).await;
        let read = get.await;
        let passed = match &read {
            Ok(data) => data.len() as u64,
            Err(ObjectError::NotFound { .. }) => 0,
            // Perhaps all came, and was wrong.
            Err(_) => announced,
        };
        self.draw(passed as f64 - announced as f64);
        read
    }
}

/// Returns the bytes, if it is dropped during the wait.
struct Claim<'a> {
    bucket: &'a Bucket,
    bytes: f64,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if self.bytes > 0.0 {
            self.bucket.draw(-self.bytes);
        }
    }
}

impl ObjectStore for Throttle {
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
        let Some(down) = &self.down else { return self.inner.get(key, range) };
        // The size of a whole object is known only when it is there. The next reader waits for it.
        let announced = range.as_ref().map_or(0, |range| range.end.saturating_sub(range.start));
        Box::pin(down.read(announced, self.inner.get(key, range)))
    }

    fn get_whole<'a>(&'a self, key: &'a str, size: u64) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        match &self.down {
            Some(down) => Box::pin(down.read(size, self.inner.get_whole(key, size))),
            None => self.inner.get_whole(key, size),
        }
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        let Some(up) = &self.up else { return self.inner.put(key, data) };
        Box::pin(async move {
            up.take(data.len() as u64).await;
            self.inner.put(key, data).await
        })
    }

    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        let Some(up) = &self.up else { return self.inner.put_file(key, file) };
        Box::pin(async move {
            up.take(file.metadata().map_or(0, |file| file.len())).await;
            self.inner.put_file(key, file).await
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        self.inner.sync()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.inner.delete(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.head(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.list(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::MemStore;

    fn limited(mbps: u64) -> Throttle {
        let limits = Limits { upload_mbps: mbps, download_mbps: mbps };
        Throttle::new(Arc::new(MemStore::new()), limits)
    }

    #[tokio::test(start_paused = true)]
    async fn keeps_to_the_rate_in_both_directions() {
        // 8 Mbps nominal: 1 MB in the bucket, then 850 kB/s.
        let store = limited(8);
        let started = Instant::now();
        for n in 0..10 {
            store.put(&format!("{n}"), Bytes::from(vec![0; 1_000_000])).await.unwrap();
        }
        let seconds = started.elapsed().as_secs_f64();
        assert!((seconds - 9.0 / 0.85).abs() < 0.1, "9 MB went up in {seconds} s");

        let started = Instant::now();
        for n in 0..10 {
            let range = (n % 2 == 0).then_some(0..1_000_000);
            store.get(&format!("{n}"), range).await.unwrap();
        }
        let seconds = started.elapsed().as_secs_f64();
        assert!((8.0 / 0.85 - 0.1..9.0 / 0.85 + 0.1).contains(&seconds), "9 MB came down in {seconds} s");
    }

    #[tokio::test(start_paused = true)]
    async fn whole_objects_of_a_known_size_keep_to_the_rate_though_all_are_asked_for_at_once() {
        let store = limited(8);
        store.inner.put("0", Bytes::from(vec![0; 1_000_000])).await.unwrap();
        let started = Instant::now();
        let came = futures::future::join_all((0..10).map(|_| async {
            // It may be smaller than expected, as compressed ones are.
            assert_eq!(store.get_whole("0", 2_000_000).await.unwrap().len(), 1_000_000);
            started.elapsed().as_secs_f64()
        }));
        for (before, seconds) in came.await.into_iter().enumerate() {
            assert!(seconds >= before as f64 / 0.85, "{} MB came in {seconds} s", before + 1);
        }
        // What was expected and did not come was given back.
        let debt = store.down.as_ref().unwrap().draw(0.0).as_secs_f64();
        assert!(debt < 0.1, "the next reader waits {debt} s");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_missing_costs_nothing() {
        let store = limited(8);
        store.inner.put("0", Bytes::from(vec![0; 1_000_000])).await.unwrap();
        for _ in 0..10 {
            store.get_whole("missing", 900_000).await.unwrap_err();
            store.get("missing", Some(0..900_000)).await.unwrap_err();
        }
        let started = Instant::now();
        store.get_whole("0", 1_000_000).await.unwrap();
        assert!(started.elapsed().is_zero(), "it waited {:?}", started.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn who_goes_away_gives_back() {
        let store = limited(8);
        store.put("0", Bytes::from(vec![0; 1_000_000])).await.unwrap();
        let waiting = store.put("1", Bytes::from(vec![0; 85_000_000]));
        assert!(tokio::time::timeout(Duration::from_secs(1), waiting).await.is_err());
        let started = Instant::now();
        store.put("2", Bytes::from(vec![0; 1_700_000])).await.unwrap();
        let seconds = started.elapsed().as_secs_f64();
        assert!((seconds - 1.0).abs() < 0.1, "it waited {seconds} s");
    }
}
