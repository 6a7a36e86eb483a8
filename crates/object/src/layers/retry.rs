//! Retries: a time limit for each try, pauses between tries, and a total time limit.
//!
//! What must stay true: no call outlasts its deadline, and only what may succeed later is tried
//! again. Dropping the call ends it at once.

use std::{future::Future, ops::Range, path::Path, sync::Arc, time::Duration};

use bytes::Bytes;
use futures::{
    future::BoxFuture,
    stream::{BoxStream, StreamExt},
};
use parking_lot::Mutex;
use sluice_types::Rng;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    config::RetryPolicy,
    store::{ObjectError, ObjectMeta, ObjectStore, PART},
};

/// A store that tries again.
#[derive(Debug)]
pub struct Retry {
    inner: Arc<dyn ObjectStore>,
    policy: RetryPolicy,
    jitter: Mutex<Rng>,
}

impl Retry {
    /// `inner`, with the retries that `policy` states.
    pub fn new(inner: Arc<dyn ObjectStore>, policy: RetryPolicy) -> Self {
        Self { inner, policy, jitter: Mutex::new(Rng::from_os()) }
    }

    /// Repeats a request until it succeeds, fails for good, or the time is over.
    async fn with_retries<T, F>(
        &self,
        action: &'static str,
        key: &str,
        limit: Duration,
        attempt: impl Fn() -> F,
    ) -> Result<T, ObjectError>
    where
        F: Future<Output = Result<T, ObjectError>>,
    {
        self.with_retries_of(&self.policy, action, key, limit, attempt).await
    }

    async fn with_retries_of<T, F>(
        &self,
        policy: &RetryPolicy,
        action: &'static str,
        key: &str,
        limit: Duration,
        attempt: impl Fn() -> F,
    ) -> Result<T, ObjectError>
    where
        F: Future<Output = Result<T, ObjectError>>,
    {
        let started = Instant::now();
        let mut pause = policy.first_pause;
        for tries in 1_u32.. {
            let left = policy.give_up.saturating_sub(started.elapsed());
            let limit = limit.min(left);
            let error = match timeout(limit, attempt()).await {
                Ok(Err(error @ ObjectError::Unavailable { .. })) => error,
                Ok(result) => return result,
                Err(_) => self.silent(action, key, limit),
            };
            let over = started.elapsed() + pause >= policy.give_up;
            if over || tries == policy.attempts {
                return Err(gave_up(error, tries, started.elapsed()));
            }
            tracing::warn!(%error, tries, "the object store is asked again");
            sleep(self.jittered(pause)).await;
            pause = (pause * 2).min(policy.max_pause);
        }
        Err(self.silent(action, key, limit))
    }

    /// Half of `pause` and a random part of the other half, so that many clients do not retry at
    /// the same time.
    fn jittered(&self, pause: Duration) -> Duration {
        let half = pause / 2;
        half + Duration::from_nanos(self.jitter.lock().below(half.as_nanos() as u64 + 1))
    }

    fn silent(&self, action: &'static str, key: &str, limit: Duration) -> ObjectError {
        ObjectError::Unavailable {
            action,
            key: key.to_owned(),
            store: self.inner.describe(),
            reason: format!("no answer within {:.1} s", limit.as_secs_f64()),
        }
    }
}

fn gave_up(error: ObjectError, tries: u32, after: Duration) -> ObjectError {
    match error {
        ObjectError::Unavailable { action, key, store, reason } if tries > 1 => {
            let reason = format!("{reason} (gave up after {tries} tries in {:.1} s)", after.as_secs_f64());
            ObjectError::Unavailable { action, key, store, reason }
        }
        other => other,
    }
}

impl ObjectStore for Retry {
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
        Box::pin(
            self.with_retries("read", key, self.policy.get_timeout, move || {
                self.inner.get(key, range.clone())
            }),
        )
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(
            self.with_retries("write", key, self.policy.put_timeout, move || {
                self.inner.put(key, data.clone())
            }),
        )
    }

    /// Each try has the time of one object for each part of the file.
    fn put_file<'a>(&'a self, key: &'a str, file: &'a Path) -> BoxFuture<'a, Result<(), ObjectError>> {
        let parts = 1 + file.metadata().map_or(0, |file| file.len()) / PART;
        let parts = u32::try_from(parts).unwrap_or(u32::MAX);
        let policy =
            RetryPolicy { give_up: self.policy.give_up.saturating_mul(parts), ..self.policy.clone() };
        Box::pin(async move {
            let limit = policy.put_timeout.saturating_mul(parts);
            self.with_retries_of(&policy, "write", key, limit, move || self.inner.put_file(key, file)).await
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        self.inner.sync()
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(self.with_retries("delete", key, self.policy.put_timeout, move || self.inner.delete(key)))
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        Box::pin(self.with_retries("read", key, self.policy.get_timeout, move || self.inner.head(key)))
    }

    /// Waits for each object no longer than `give_up`. A listing is not restarted, because the
    /// caller may have received a part of it already. The drivers themselves retry each page.
    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        async_stream::stream! {
            let mut found = self.inner.list(prefix);
            loop {
                match timeout(self.policy.give_up, found.next()).await {
                    Ok(Some(meta)) => yield meta,
                    Ok(None) => return,
                    Err(_) => {
                        yield Err(self.silent("list", prefix, self.policy.give_up));
                        return;
                    }
                }
            }
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future;

    use super::*;
    use crate::mem::MemStore;

    const HOPELESS: u32 = u32::MAX;

    fn policy() -> RetryPolicy {
        RetryPolicy::default()
    }

    fn unavailable() -> ObjectError {
        ObjectError::Unavailable {
            action: "read",
            key: "k".into(),
            store: "mem://".into(),
            reason: "busy".into(),
        }
    }

    /// Asks for something that fails `failures` times; gives the result, the tries, and the time
    /// they took.
    async fn ask(
        policy: RetryPolicy,
        failures: u32,
        error: ObjectError,
    ) -> (Result<(), ObjectError>, u32, Duration) {
        let retry = Retry::new(Arc::new(MemStore::new()), policy);
        let tries = AtomicU32::new(0);
        let started = Instant::now();
        let result = retry.with_retries("read", "k", Duration::from_mins(1), || {
            let failing = tries.fetch_add(1, Ordering::Relaxed) < failures;
            future::ready(if failing { Err(error.clone()) } else { Ok(()) })
        });
        (result.await, tries.load(Ordering::Relaxed), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn waits_longer_each_time_and_gives_up_in_time() {
        let (result, tries, took) = ask(policy(), 4, unavailable()).await;
        result.unwrap();
        assert_eq!(tries, 5);
        // 100 + 200 + 400 + 800 ms, of which up to half is chance.
        assert!((740..=1510).contains(&took.as_millis()), "{took:?}");

        let (result, tries, took) = ask(policy(), HOPELESS, unavailable()).await;
        let text = result.unwrap_err().to_string();
        assert!(text.contains("busy (gave up after"), "{text}");
        assert!(took <= policy().give_up && took + policy().max_pause >= policy().give_up, "{took:?}");
        assert!((30..=70).contains(&tries), "{tries}");
    }

    #[tokio::test(start_paused = true)]
    async fn asks_as_often_as_it_is_told() {
        let thrice = RetryPolicy { attempts: 3, ..policy() };
        let (result, tries, _) = ask(thrice, HOPELESS, unavailable()).await;
        assert!(result.is_err());
        assert_eq!(tries, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn what_stays_so_is_not_asked_again() {
        let (key, store, reason) = ("k".to_owned(), "mem://".to_owned(), "so it is".to_owned());
        let lasting = [
            ObjectError::NotFound { key: key.clone(), store: store.clone() },
            ObjectError::Corrupt { key, store: store.clone(), reason: reason.clone() },
            ObjectError::Full { store: store.clone(), reason: reason.clone() },
            ObjectError::Denied { store: store.clone(), reason: reason.clone() },
            ObjectError::Config { store, reason },
        ];
        for error in lasting {
            let (result, tries, took) = ask(policy(), HOPELESS, error.clone()).await;
            assert_eq!(result.unwrap_err().to_string(), error.to_string());
            assert_eq!((tries, took), (1, Duration::ZERO));
        }
    }
}
