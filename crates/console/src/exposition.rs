//! Reads the metrics of a mount, in the text format of Prometheus, into the numbers that the
//! console shows.
//!
//! What must stay true: for any text, the memory use is proportional to the number of known names
//! in it. Only numbers and names of operations are kept.

use std::{borrow::Cow, collections::BTreeMap, time::Instant};

/// A number that a mount counts, or a state of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// Requests of the kernel.
    Requests,
    RequestSeconds,
    ReadBytes,
    WrittenBytes,
    /// Requests of the kernel that were answered with EIO.
    IoErrors,
    /// Operations on metadata.
    MetaOps,
    MetaSeconds,
    /// Tries at the database again since it did not answer.
    MetaUnavailable,
    CacheHits,
    CacheMisses,
    CacheHitBytes,
    CacheMissBytes,
    CacheDamaged,
    ObjectRequests,
    ObjectGetBytes,
    ObjectPutBytes,
    ObjectErrors,
    StagingErrors,
    /// Bytes that other clients of the cache group gave.
    GroupBytes,
    /// Requests of other clients that the cache answered.
    ServedCached,
    /// Requests of other clients for which the object store was read.
    ServedRead,
    ServedBytes,
    // From here on states: what they are now counts, not by how much they rose.
    StagedBytes,
    CacheBytes,
    OpenFiles,
    DeletionsWaiting,
    MemoryBytes,
    /// Unix seconds.
    LastBackup,
}

impl Number {
    pub(crate) const COUNT: usize = Self::LastBackup as usize + 1;
}

/// What an operation is asked of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Layer {
    Kernel,
    Metadata,
    Objects,
}

impl Layer {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Metadata => "metadata",
            Self::Objects => "objects",
        }
    }
}

/// How often, and how long in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Timed {
    pub(crate) count: f64,
    pub(crate) seconds: f64,
}

/// Names of operations that are kept of one mount; there are some 80.
const OPERATIONS: usize = 300;
/// Classes of a histogram that are kept; there are 30.
const CLASSES: usize = 100;

/// What a mount counted up to one moment.
#[derive(Clone, Debug)]
pub(crate) struct Counts {
    pub(crate) at: Instant,
    numbers: [f64; Number::COUNT],
    /// By layer and name.
    pub(crate) operations: BTreeMap<(Layer, String), Timed>,
    /// Requests of the kernel that took at most so many seconds: upper ends and counts, rising.
    pub(crate) request_times: Vec<(f64, f64)>,
    /// The volume and the mount point that the metrics name, if they do.
    pub(crate) volume: Option<String>,
    pub(crate) mount_point: Option<String>,
}

impl Counts {
    pub(crate) fn get(&self, number: Number) -> f64 {
        self.numbers[number as usize]
    }

    /// Reads a page of metrics. Lines that are not understood are passed over.
    pub(crate) fn parse(text: &str, at: Instant) -> Self {
        let mut counts = Self {
            at,
            numbers: [0.0; Number::COUNT],
            operations: BTreeMap::new(),
            request_times: Vec::new(),
            volume: None,
            mount_point: None,
        };
        for sample in text.lines().filter_map(Sample::parse) {
            counts.take(&sample);
        }
        counts.request_times.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        counts
    }

    fn add(&mut self, number: Number, value: f64) {
        self.numbers[number as usize] += value;
    }

    fn operation(&mut self, layer: Layer, sample: &Sample<'_>, add: impl FnOnce(&mut Timed)) {
        let Some(method) = sample.label("method") else { return };
        let key = (layer, method.to_owned());
        if self.operations.len() < OPERATIONS || self.operations.contains_key(&key) {
            add(self.operations.entry(key).or_default());
        }
    }

    fn take(&mut self, sample: &Sample<'_>) {
        if self.volume.is_none() {
            self.volume = sample.label("vol_name").map(str::to_owned);
            self.mount_point = sample.label("mp").map(str::to_owned);
        }
        let value = sample.value;
        let is = |label: &str, value: &str| sample.label(label) == Some(value);
        if let Some(number) = plain(sample.name) {
            return self.add(number, value);
        }
        match sample.name {
            "juicefs_fuse_ops_total" => {
                self.add(Number::Requests, value);
                self.operation(Layer::Kernel, sample, |timed| timed.count += value);
            }
            "juicefs_fuse_ops_durations_seconds" => {
                self.add(Number::RequestSeconds, value);
                self.operation(Layer::Kernel, sample, |timed| timed.seconds += value);
            }
            "juicefs_meta_ops_total" => {
                self.add(Number::MetaOps, value);
                self.operation(Layer::Metadata, sample, |timed| timed.count += value);
            }
            "juicefs_meta_ops_duration_seconds" => {
                self.add(Number::MetaSeconds, value);
                self.operation(Layer::Metadata, sample, |timed| timed.seconds += value);
            }
            "juicefs_object_request_durations_histogram_seconds_count" => {
                self.add(Number::ObjectRequests, value);
                self.operation(Layer::Objects, sample, |timed| timed.count += value);
            }
            "juicefs_object_request_durations_histogram_seconds_sum" => {
                self.operation(Layer::Objects, sample, |timed| timed.seconds += value);
            }
            "juicefs_object_request_data_bytes" if is("method", "GET") => {
                self.add(Number::ObjectGetBytes, value);
            }
            "juicefs_object_request_data_bytes" if is("method", "PUT") => {
                self.add(Number::ObjectPutBytes, value);
            }
            "juicefs_fuse_ops_io_errors" if is("errno", "EIO") => self.add(Number::IoErrors, value),
            "sluice_meta_retries_total" if is("cause", "unavailable") || is("cause", "lost_answer") => {
                self.add(Number::MetaUnavailable, value);
            }
            "juicefs_fuse_ops_durations_histogram_seconds_bucket" if self.request_times.len() < CLASSES => {
                if let Some(end) = sample.label("le").and_then(|end| number(end).ok()) {
                    self.request_times.push((end, value));
                }
            }
            _ => {}
        }
    }
}

/// The number that a metric without further labels is.
fn plain(name: &str) -> Option<Number> {
    Some(match name {
        "juicefs_fuse_read_size_bytes_sum" => Number::ReadBytes,
        "juicefs_fuse_written_size_bytes_sum" => Number::WrittenBytes,
        "juicefs_blockcache_hits" => Number::CacheHits,
        "juicefs_blockcache_miss" => Number::CacheMisses,
        "juicefs_blockcache_hit_bytes" => Number::CacheHitBytes,
        "juicefs_blockcache_miss_bytes" => Number::CacheMissBytes,
        "sluice_blockcache_damaged_total" => Number::CacheDamaged,
        "juicefs_object_request_errors" => Number::ObjectErrors,
        "juicefs_staging_block_errors" => Number::StagingErrors,
        "juicefs_remotecache_bytes" => Number::GroupBytes,
        "sluice_group_served_cached_total" => Number::ServedCached,
        "sluice_group_served_read_total" => Number::ServedRead,
        "sluice_group_served_bytes_total" => Number::ServedBytes,
        "juicefs_staging_block_bytes" => Number::StagedBytes,
        "juicefs_blockcache_bytes" => Number::CacheBytes,
        "sluice_open_files" => Number::OpenFiles,
        "sluice_deletions_waiting" => Number::DeletionsWaiting,
        "juicefs_memory" => Number::MemoryBytes,
        "sluice_last_backup_timestamp_seconds" => Number::LastBackup,
        _ => return None,
    })
}

/// One line.
struct Sample<'a> {
    name: &'a str,
    labels: Vec<(&'a str, Cow<'a, str>)>,
    value: f64,
}

impl<'a> Sample<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.trim();
        let end = line.find(['{', ' '])?;
        let (name, rest) = line.split_at(end);
        if name.is_empty() || name.starts_with('#') {
            return None;
        }
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(rest) => labels(rest)?,
            None => (Vec::new(), rest),
        };
        // A time may follow.
        let value = number(rest.split_whitespace().next()?).ok()?;
        Some(Self { name, labels, value })
    }

    fn label(&self, name: &str) -> Option<&str> {
        self.labels.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_ref())
    }
}

fn number(text: &str) -> Result<f64, std::num::ParseFloatError> {
    text.parse::<f64>().map(|value| if value.is_nan() { 0.0 } else { value })
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// `name="value",…}`, and what follows.
fn labels(text: &str) -> Option<(Labels<'_>, &str)> {
    let (mut found, mut rest) = (Vec::new(), text);
    loop {
        rest = rest.trim_start_matches([',', ' ']);
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((found, rest));
        }
        let (name, value) = rest.split_once("=\"")?;
        let end = end_of(value)?;
        let shown = &value[..end];
        let shown = if shown.contains('\\') {
            shown.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\").into()
        } else {
            Cow::Borrowed(shown)
        };
        found.push((name, shown));
        rest = &value[end + 1..];
    }
}

/// Where the quote is that ends a value.
fn end_of(value: &str) -> Option<usize> {
    let mut escaped = false;
    for (at, byte) in value.bytes().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at),
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_operations_and_times_are_read() {
        let text = "# HELP x y\n# TYPE x counter\n\
            juicefs_fuse_ops_total{method=\"read\",vol_name=\"v\",mp=\"/m \\\"a\\\", b}\"} 7\n\
            juicefs_fuse_ops_total{method=\"write\",vol_name=\"v\"} 3 1700000000\n\
            juicefs_fuse_ops_durations_seconds{method=\"read\"} 0.5\n\
            juicefs_fuse_ops_durations_histogram_seconds_bucket{le=\"+Inf\"} 10\n\
            juicefs_fuse_ops_durations_histogram_seconds_bucket{le=\"0.1\"} 8\n\
            juicefs_object_request_data_bytes{method=\"GET\",storage_class=\"STANDARD\"} 1e6\n\
            juicefs_fuse_ops_io_errors{errno=\"ENOENT\"} 5\n\
            juicefs_fuse_ops_io_errors{errno=\"EIO\"} 2\n\
            juicefs_blockcache_hits 9\n";
        let counts = Counts::parse(text, Instant::now());
        assert_eq!(
            [Number::Requests, Number::ObjectGetBytes, Number::IoErrors, Number::CacheHits]
                .map(|number| counts.get(number) as i64),
            [10, 1_000_000, 2, 9]
        );
        let read = counts.operations[&(Layer::Kernel, "read".to_owned())];
        assert_eq!(read, Timed { count: 7.0, seconds: 0.5 });
        assert_eq!(counts.request_times, [(0.1, 8.0), (f64::INFINITY, 10.0)]);
        assert_eq!(counts.volume.as_deref(), Some("v"));
        assert_eq!(counts.mount_point.as_deref(), Some("/m \"a\", b}"));
    }

    #[test]
    fn what_is_no_metric_is_passed_over() {
        for text in [
            "",
            "<html>",
            "juicefs_blockcache_hits",
            "juicefs_blockcache_hits x",
            "juicefs_blockcache_hits{a=\"b} 1",
            "{} 1",
            "juicefs_blockcache_hits{a=\"b\"",
            "juicefs_blockcache_hits NaN",
        ] {
            let counts = Counts::parse(text, Instant::now());
            assert!(counts.get(Number::CacheHits).abs() < 1e-9, "{text}");
        }
        let many: String = (0..1000)
            .fold(String::new(), |all, n| all + &format!("juicefs_meta_ops_total{{method=\"{n}\"}} 1\n"));
        assert_eq!(Counts::parse(&many, Instant::now()).operations.len(), OPERATIONS);
    }
}
