//! Metrics as they are gathered: families of samples that differ in their labels.

use std::{fmt::Display, sync::Arc};

use sluice_types::metrics::{Counter, Distribution, Histogram};

/// Adds metrics of the program around a [`Vfs`](crate::Vfs) to those that it shows.
pub type MoreMetrics = Arc<dyn Fn(&mut Families) + Send + Sync>;

/// What the numbers of a family are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Labels of one sample, besides those that all have.
pub(crate) type Labels = Vec<(&'static str, String)>;

/// One number, or one histogram.
#[derive(Debug)]
pub(crate) enum Value {
    Number(f64),
    Values(Distribution),
}

/// All samples of one name.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) help: &'static str,
    pub(crate) kind: Kind,
    pub(crate) samples: Vec<(Labels, Value)>,
}

/// Name and meaning of a metric.
pub(crate) type Title = (&'static str, &'static str);

/// All metrics at one time.
#[derive(Debug, Default)]
pub struct Families(pub(crate) Vec<Family>);

impl Families {
    /// Adds a number that rises and falls.
    pub fn gauge(&mut self, title: (&'static str, &'static str), value: f64) {
        self.add(title, Kind::Gauge, vec![(Vec::new(), Value::Number(value))]);
    }

    /// Adds a number that only rises.
    pub fn counter(&mut self, title: (&'static str, &'static str), value: f64) {
        self.add(title, Kind::Counter, vec![(Vec::new(), Value::Number(value))]);
    }

    /// Adds a number that only rises.
    pub fn count(&mut self, title: (&'static str, &'static str), counter: &Counter) {
        self.counter(title, counter.get() as f64);
    }

    /// Adds numbers that only rise, one for each value of `label`.
    pub fn counters<T: Display>(
        &mut self,
        title: (&'static str, &'static str),
        label: &'static str,
        values: impl IntoIterator<Item = (T, f64)>,
    ) {
        let samples =
            values.into_iter().map(|(of, value)| (vec![(label, of.to_string())], Value::Number(value)));
        self.add(title, Kind::Counter, samples.collect());
    }

    /// Adds a histogram.
    pub fn histogram(&mut self, title: (&'static str, &'static str), histogram: &Histogram) {
        self.values(title, histogram.read());
    }

    /// Adds a histogram that was read.
    pub(crate) fn values(&mut self, title: Title, values: Distribution) {
        self.add(title, Kind::Histogram, vec![(Vec::new(), Value::Values(values))]);
    }

    /// Adds samples of any kind; none at all add nothing.
    pub(crate) fn add(&mut self, (name, help): Title, kind: Kind, samples: Vec<(Labels, Value)>) {
        if !samples.is_empty() {
            self.0.push(Family { name, help, kind, samples });
        }
    }

    /// All families by name, with their samples by labels.
    pub(crate) fn sorted(mut self) -> Vec<Family> {
        self.0.sort_by_key(|family| family.name);
        for family in &mut self.0 {
            family.samples.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        self.0
    }
}
