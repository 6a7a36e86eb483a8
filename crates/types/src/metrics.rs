//! Numbers that a program counts while it works: atomics, so that the cost of counting is
//! negligible.
//!
//! What must stay true: counting takes no lock and never waits. Code that shows rates computes the
//! differences of two reads.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A number that rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// A counter at 0.
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Counts `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Counts a time, in nanoseconds.
    pub fn add_time(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// The number so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// The time so far, of a counter of nanoseconds.
    pub fn time(&self) -> Duration {
        Duration::from_nanos(self.get())
    }
}

/// A number that rises and falls.
#[derive(Debug, Default)]
pub struct Gauge(AtomicU64);

impl Gauge {
    /// `n` more.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// `n` less.
    pub fn sub(&self, n: u64) {
        self.0.fetch_sub(n, Ordering::Relaxed);
    }

    /// Exactly `n`.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// One more, until that is dropped.
    pub fn one(&self) -> One<'_> {
        self.add(1);
        One(self)
    }
}

/// One that a gauge counts.
#[must_use = "dropping it ends what is counted"]
#[derive(Debug)]
pub struct One<'a>(&'a Gauge);

impl Drop for One<'_> {
    fn drop(&mut self) {
        self.0.sub(1);
    }
}

/// The classes of a [`Histogram`]: their upper bounds, and what is counted.
#[derive(Clone, Copy, Debug)]
pub struct Buckets {
    start: f64,
    step: Step,
    count: usize,
    /// Of the numbers counted, how many make one of the unit that is shown.
    scale: f64,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Factor(f64),
    Width(f64),
}

impl Buckets {
    /// Times: `count` classes, the first up to `start` seconds, each `factor` times the one before.
    pub const fn times(start: f64, factor: f64, count: usize) -> Self {
        Self { start, step: Step::Factor(factor), count, scale: 1e9 }
    }

    /// Numbers: `count` classes, the first up to `start`, each `factor` times the one before.
    pub const fn numbers(start: f64, factor: f64, count: usize) -> Self {
        Self { start, step: Step::Factor(factor), count, scale: 1.0 }
    }

    /// Numbers: `count` classes of the same `width`.
    pub const fn even(width: f64, count: usize) -> Self {
        Self { start: width, step: Step::Width(width), count, scale: 1.0 }
    }

    /// The upper bounds, in the unit that is shown. Each is computed from the one before, since
    /// others who show the same classes round in the same way.
    fn bounds(&self) -> Vec<f64> {
        let mut bound = self.start;
        let next = |bound: f64| match self.step {
            Step::Factor(factor) => bound * factor,
            Step::Width(width) => bound + width,
        };
        (0..self.count)
            .map(|_| {
                let this = bound;
                bound = next(bound);
                this
            })
            .collect()
    }
}

/// How many values lie in each of some fixed classes, and their sum.
#[derive(Debug)]
pub struct Histogram {
    bounds: Box<[f64]>,
    /// The bounds in what is counted.
    limits: Box<[u64]>,
    /// One more than there are bounds.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
    scale: f64,
}

impl Histogram {
    /// A histogram without values.
    pub fn new(buckets: &Buckets) -> Self {
        let bounds = buckets.bounds();
        Self {
            limits: bounds.iter().map(|bound| (bound * buckets.scale) as u64).collect(),
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            bounds: bounds.into(),
            sum: AtomicU64::new(0),
            scale: buckets.scale,
        }
    }

    /// Counts a time.
    pub fn observe(&self, time: Duration) {
        self.add(time.as_nanos() as u64);
    }

    /// Counts a value.
    pub fn add(&self, value: u64) {
        let class = self.limits.partition_point(|limit| *limit < value);
        self.counts[class].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// The values so far.
    pub fn read(&self) -> Distribution {
        Distribution {
            bounds: self.bounds.to_vec(),
            counts: self.counts.iter().map(|count| count.load(Ordering::Relaxed)).collect(),
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.scale,
        }
    }

    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The sum of times.
    pub fn total(&self) -> Duration {
        Duration::from_nanos(self.sum.load(Ordering::Relaxed))
    }
}

/// What a [`Histogram`] held when it was read.
#[derive(Clone, Debug, PartialEq)]
pub struct Distribution {
    /// Upper bounds of the classes, in the unit that is shown (seconds, for times).
    pub bounds: Vec<f64>,
    /// Values in each class; the last counts those above all bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl Distribution {
    /// How many values there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }
}

/// Kinds of one thing that a [`ByName`] keeps apart.
const KINDS: usize = 128;

/// Counts of things that have names, such as operations. Names beyond the first 128 are not
/// counted.
#[derive(Debug)]
pub struct ByName(Box<[Named]>);

/// What is counted under one name.
#[derive(Debug, Default)]
pub struct Named {
    name: OnceLock<&'static str>,
    /// How often.
    pub count: Counter,
    /// How long in all, in nanoseconds.
    pub nanos: Counter,
}

impl Default for ByName {
    fn default() -> Self {
        Self((0..KINDS).map(|_| Named::default()).collect())
    }
}

impl ByName {
    /// The counts under `name`; `None` if there are too many names.
    pub fn of(&self, name: &'static str) -> Option<&Named> {
        // The length and the ends of a name tell most apart.
        let bytes = name.as_bytes();
        let at = |place: Option<&u8>| usize::from(place.copied().unwrap_or(0));
        let start = name.len() + 7 * at(bytes.first()) + 31 * at(bytes.last());
        (0..KINDS)
            .map(|step| &self.0[(start + step) % KINDS])
            .find(|place| *place.name.get_or_init(|| name) == name)
    }

    /// Counts one `name`, and the time that it took.
    pub fn observe(&self, name: &'static str, time: Duration) {
        if let Some(named) = self.of(name) {
            named.count.add(1);
            named.nanos.add_time(time);
        }
    }

    /// Counts one `name`.
    pub fn add(&self, name: &'static str) {
        if let Some(named) = self.of(name) {
            named.count.add(1);
        }
    }

    /// All that was counted, with its names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Named)> {
        self.0.iter().filter_map(|named| Some((*named.name.get()?, named)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_the_first_class_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::new(&Buckets::times(0.001, 2.0, 3));
        for micros in [0, 1000, 1001, 2000, 4000, 4001, 9_000_000] {
            histogram.observe(Duration::from_micros(micros));
        }
        let read = histogram.read();
        assert_eq!(read.bounds, [0.001, 0.002, 0.004]);
        assert_eq!(read.counts, [2, 2, 1, 2]);
        assert_eq!((read.count(), histogram.count()), (7, 7));
        assert_eq!(histogram.total(), Duration::from_micros(9_012_002));
        assert!((read.sum - 9.012_002).abs() < 1e-9);
    }

    #[test]
    fn classes_of_one_width() {
        let histogram = Histogram::new(&Buckets::even(4096.0, 2));
        for size in [1, 4096, 4097, 9000] {
            histogram.add(size);
        }
        assert_eq!(histogram.read().bounds, [4096.0, 8192.0]);
        assert_eq!(histogram.read().counts, [2, 1, 1]);
        assert!((histogram.read().sum - 17_194.0).abs() < 1e-9);
    }

    #[test]
    fn names_are_kept_apart_and_too_many_are_left_out() {
        let by_name = ByName::default();
        for _ in 0..2 {
            by_name.observe("read", Duration::from_nanos(5));
        }
        by_name.add("road");
        let found: Vec<_> =
            by_name.iter().map(|(name, named)| (name, named.count.get(), named.nanos.get())).collect();
        assert_eq!(found.len(), 2);
        assert!(found.contains(&("read", 2, 10)) && found.contains(&("road", 1, 0)), "{found:?}");
        for n in 0..2 * KINDS {
            by_name.add(Box::leak(format!("name {n}").into_boxed_str()));
        }
        assert_eq!(by_name.iter().count(), KINDS);
    }

    #[test]
    fn a_gauge_falls_when_what_it_counts_is_over() {
        let gauge = Gauge::default();
        let one = gauge.one();
        assert_eq!(gauge.get(), 1);
        drop(one);
        assert_eq!(gauge.get(), 0);
    }
}
