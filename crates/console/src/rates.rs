//! The rates of mounts, from the differences between two polls of their metrics.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::exposition::{Counts, Layer, Number, Timed};

/// What was done by the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    pub(crate) requests: f64,
    pub(crate) read_bytes: f64,
    pub(crate) written_bytes: f64,
    pub(crate) meta_operations: f64,
    pub(crate) object_requests: f64,
    pub(crate) object_get_bytes: f64,
    pub(crate) object_put_bytes: f64,
    pub(crate) object_errors: f64,
    pub(crate) io_errors: f64,
    pub(crate) database_retries: f64,
    pub(crate) staging_errors: f64,
    pub(crate) cache_hit_bytes: f64,
    pub(crate) cache_miss_bytes: f64,
    /// Bytes that other clients of the cache group gave.
    pub(crate) group_bytes: f64,
    /// Requests of other clients that the cache answered.
    pub(crate) served_cached: f64,
    /// Requests of other clients for which the object store was read.
    pub(crate) served_read: f64,
    pub(crate) served_bytes: f64,
    /// Seconds spent in requests of the kernel, by the second.
    #[serde(skip)]
    pub(crate) request_seconds: f64,
    #[serde(skip)]
    pub(crate) meta_seconds: f64,
}

impl Rates {
    /// Between two readings of one mount. What fell, since the mount began anew, has done what it
    /// counts now.
    pub(crate) fn between(before: &Counts, now: &Counts) -> Self {
        let seconds = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        let rate = |number: Number| rise(before.get(number), now.get(number)) / seconds;
        Self {
            requests: rate(Number::Requests),
            read_bytes: rate(Number::ReadBytes),
            written_bytes: rate(Number::WrittenBytes),
            meta_operations: rate(Number::MetaOps),
            object_requests: rate(Number::ObjectRequests),
            object_get_bytes: rate(Number::ObjectGetBytes),
            object_put_bytes: rate(Number::ObjectPutBytes),
            object_errors: rate(Number::ObjectErrors),
            io_errors: rate(Number::IoErrors),
            database_retries: rate(Number::MetaUnavailable),
            staging_errors: rate(Number::StagingErrors),
            cache_hit_bytes: rate(Number::CacheHitBytes),
            cache_miss_bytes: rate(Number::CacheMissBytes),
            group_bytes: rate(Number::GroupBytes),
            served_cached: rate(Number::ServedCached),
            served_read: rate(Number::ServedRead),
            served_bytes: rate(Number::ServedBytes),
            request_seconds: rate(Number::RequestSeconds),
            meta_seconds: rate(Number::MetaSeconds),
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.meta_operations += other.meta_operations;
        self.object_requests += other.object_requests;
        self.object_get_bytes += other.object_get_bytes;
        self.object_put_bytes += other.object_put_bytes;
        self.object_errors += other.object_errors;
        self.io_errors += other.io_errors;
        self.database_retries += other.database_retries;
        self.staging_errors += other.staging_errors;
        self.cache_hit_bytes += other.cache_hit_bytes;
        self.cache_miss_bytes += other.cache_miss_bytes;
        self.group_bytes += other.group_bytes;
        self.served_cached += other.served_cached;
        self.served_read += other.served_read;
        self.served_bytes += other.served_bytes;
        self.request_seconds += other.request_seconds;
        self.meta_seconds += other.meta_seconds;
    }

    /// Mean time of requests of the kernel, milliseconds; `None` without requests.
    pub(crate) fn request_ms(&self) -> Option<f64> {
        (self.requests > 0.0).then(|| 1e3 * self.request_seconds / self.requests)
    }

    /// Mean time of operations on metadata, milliseconds; `None` without operations.
    pub(crate) fn meta_ms(&self) -> Option<f64> {
        (self.meta_operations > 0.0).then(|| 1e3 * self.meta_seconds / self.meta_operations)
    }

    /// The part of the bytes that the cache of blocks had; `None` if nothing was read by it.
    pub(crate) fn hit_part(&self) -> Option<f64> {
        let all = self.cache_hit_bytes + self.cache_miss_bytes;
        (all > 0.0).then(|| self.cache_hit_bytes / all)
    }

    /// The part of the requests of other clients that the cache answered; `None` without requests.
    pub(crate) fn served_hit_part(&self) -> Option<f64> {
        let all = self.served_cached + self.served_read;
        (all > 0.0).then(|| self.served_cached / all)
    }
}

fn rise(before: f64, now: f64) -> f64 {
    let rise = if now < before { now } else { now - before };
    if rise.is_finite() { rise.max(0.0) } else { 0.0 }
}

/// How long requests took, by classes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Times(Vec<(f64, f64)>);

impl Times {
    /// Adds what one mount did between two readings.
    pub(crate) fn add(&mut self, before: &Counts, now: &Counts) {
        for (at, (end, count)) in now.request_times.iter().enumerate() {
            let earlier = before.request_times.get(at).filter(|(same, _)| same.total_cmp(end).is_eq());
            let count = rise(earlier.map_or(0.0, |(_, count)| *count), *count);
            match self.0.iter_mut().find(|(known, _)| known.total_cmp(end).is_eq()) {
                Some((_, sum)) => *sum += count,
                None => self.0.push((*end, count)),
            }
        }
    }

    /// The time within which that part of the requests ended, milliseconds: the upper end of its
    /// class. `None` without requests.
    pub(crate) fn quantile_ms(&self, part: f64) -> Option<f64> {
        let all = self.0.iter().map(|(_, count)| *count).fold(0.0, f64::max);
        if all <= 0.0 {
            return None;
        }
        let mut classes = self.0.clone();
        classes.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let (end, _) = classes.iter().find(|(_, count)| *count >= part * all)?;
        // Beyond the last class nothing is known but that it was longer.
        let longest = classes.iter().rev().find(|(end, _)| end.is_finite()).map_or(0.0, |(end, _)| *end);
        Some(1e3 * if end.is_finite() { *end } else { longest })
    }
}

/// An operation, and how long it took.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Slow {
    /// `kernel`, `metadata` or `objects`.
    pub(crate) layer: &'static str,
    pub(crate) operation: String,
    /// By the second.
    pub(crate) rate: f64,
    pub(crate) mean_ms: f64,
    /// The client whose mean is the highest.
    pub(crate) slowest: String,
    pub(crate) slowest_ms: f64,
}

/// Operations that are shown.
const SLOW: usize = 12;

/// The slowest operations, by their mean time, of readings of clients with their names.
pub(crate) fn slow<'a>(readings: impl Iterator<Item = (String, &'a Counts, &'a Counts)>) -> Vec<Slow> {
    let mut all: BTreeMap<(Layer, &str), (Timed, f64, Timed, String)> = BTreeMap::new();
    for (name, before, now) in readings {
        let window = now.at.saturating_duration_since(before.at).as_secs_f64().max(1e-3);
        for (key @ (layer, operation), timed) in &now.operations {
            let earlier = before.operations.get(key).copied().unwrap_or_default();
            let done = Timed {
                count: rise(earlier.count, timed.count),
                seconds: rise(earlier.seconds, timed.seconds),
            };
            if done.count < 1.0 {
                continue;
            }
            let (sum, rate, slowest, of) = all.entry((*layer, operation)).or_default();
            sum.count += done.count;
            sum.seconds += done.seconds;
            *rate += done.count / window;
            if of.is_empty() || mean_ms(done) > mean_ms(*slowest) {
                (*slowest, *of) = (done, name.clone());
            }
        }
    }
    let mut all: Vec<Slow> = all
        .into_iter()
        .map(|((layer, operation), (sum, rate, slowest, of))| Slow {
            layer: layer.name(),
            operation: operation.to_owned(),
            rate,
            mean_ms: mean_ms(sum),
            slowest: of,
            slowest_ms: mean_ms(slowest),
        })
        .collect();
    all.sort_by(|a, b| b.mean_ms.total_cmp(&a.mean_ms));
    all.truncate(SLOW);
    all
}

fn mean_ms(timed: Timed) -> f64 {
    if timed.count > 0.0 { 1e3 * timed.seconds / timed.count } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn counts(begun: Instant, seconds: u64, reads: u32, took: f64) -> Counts {
        let text = format!(
            "juicefs_fuse_ops_total{{method=\"read\"}} {reads}\n\
             juicefs_fuse_ops_durations_seconds{{method=\"read\"}} {took}\n\
             juicefs_fuse_ops_durations_histogram_seconds_bucket{{le=\"0.001\"}} {}\n\
             juicefs_fuse_ops_durations_histogram_seconds_bucket{{le=\"0.01\"}} {reads}\n\
             juicefs_fuse_ops_durations_histogram_seconds_bucket{{le=\"+Inf\"}} {reads}\n",
            reads / 2
        );
        Counts::parse(&text, begun + Duration::from_secs(seconds))
    }

    #[test]
    fn rates_are_differences_and_a_mount_that_began_anew_starts_at_nothing() {
        let begun = Instant::now();
        let (first, second, anew) =
            (counts(begun, 0, 100, 1.0), counts(begun, 5, 200, 2.0), counts(begun, 10, 50, 0.1));
        let rates = Rates::between(&first, &second);
        assert!((rates.requests - 20.0).abs() < 1e-9, "{rates:?}");
        assert!((rates.request_ms().expect("requests") - 10.0).abs() < 1e-9);
        assert!((Rates::between(&second, &anew).requests - 10.0).abs() < 1e-9);
        assert_eq!(Rates::between(&second, &second).request_ms(), None);
        let mut times = Times::default();
        assert_eq!(times.quantile_ms(0.5), None);
        times.add(&first, &second);
        assert_eq!(times.quantile_ms(0.5), Some(1.0));
        assert_eq!(times.quantile_ms(0.99), Some(10.0));
    }

    #[test]
    fn the_slowest_client_of_an_operation_is_named() {
        let begun = Instant::now();
        let (a, b) = (counts(begun, 0, 0, 0.0), counts(begun, 10, 100, 1.0));
        let (c, d) = (counts(begun, 0, 0, 0.0), counts(begun, 10, 100, 3.0));
        let slow = slow([("fast".to_owned(), &a, &b), ("slow".to_owned(), &c, &d)].into_iter());
        let [one] = slow.as_slice() else { panic!("{slow:?}") };
        assert_eq!((one.operation.as_str(), one.slowest.as_str(), one.layer), ("read", "slow", "kernel"));
        assert!((one.mean_ms - 20.0).abs() < 1e-9 && (one.slowest_ms - 30.0).abs() < 1e-9);
        assert!((one.rate - 20.0).abs() < 1e-9);
    }
}
