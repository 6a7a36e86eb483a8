//! What a run of the farm showed, as numbers and as a table.

use serde::{Deserialize, Serialize};

use super::{
    clients::{Ready, Usage},
    crowd::Outcome,
};

/// One run.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) clients: usize,
    /// Files that each client visits.
    pub(crate) files: usize,
    /// Bytes of the data set.
    pub(crate) set_bytes: u64,
    /// Of each process.
    pub(crate) ready: Vec<Ready>,
    pub(crate) usage: Vec<Usage>,
    pub(crate) outcome: Outcome,
    /// Requests that the object store answered with bytes, and those bytes.
    pub(crate) store_gets: u64,
    pub(crate) store_bytes: u64,
    /// Requests that cache nodes answered, and bytes that they gave.
    pub(crate) served: u64,
    pub(crate) served_bytes: u64,
    /// Seconds of processor time of all cache nodes.
    pub(crate) node_cpu: f64,
    /// Highest memory use of a cache node in KiB.
    pub(crate) node_memory: u64,
}

const MB: f64 = 1e6;

impl Row {
    /// Seconds until the last client was done.
    pub(crate) fn longest(&self) -> f64 {
        self.outcome.completions.iter().copied().fold(0.0, f64::max)
    }

    /// Seconds until the last client was done, for each GB that programs read.
    pub(crate) fn per_gb(&self) -> f64 {
        self.longest() / (self.outcome.bytes.max(1) as f64 / 1e9)
    }

    /// The part of clients that were done by then.
    fn completion(&self, part: f64) -> f64 {
        let mut all = self.outcome.completions.clone();
        all.sort_by(f64::total_cmp);
        let at = (all.len() as f64 * part).ceil() as usize;
        all.get(at.saturating_sub(1)).copied().unwrap_or(0.0)
    }

    fn mean(&self) -> f64 {
        self.outcome.completions.iter().sum::<f64>() / self.outcome.completions.len().max(1) as f64
    }

    fn rate(&self, number: u64) -> f64 {
        number as f64 / self.longest().max(1e-9)
    }

    fn of_ready(&self, get: impl Fn(&Ready) -> f64) -> f64 {
        self.ready.iter().map(get).sum::<f64>() / self.ready.len().max(1) as f64
    }
}

/// A line of the table: what it shows, and how.
type Line = (&'static str, fn(&Row) -> String);

const LINES: [Line; 26] = [
    ("files that each client visits", |row| row.files.to_string()),
    ("clients that failed", |row| row.outcome.failed.to_string()),
    ("completion, shortest, s", |row| format!("{:.1}", row.completion(0.0))),
    ("completion, mean, s", |row| format!("{:.1}", row.mean())),
    ("completion, 99 %, s", |row| format!("{:.1}", row.completion(0.99))),
    ("completion, longest, s", |row| format!("{:.1}", row.longest())),
    ("bytes that programs read, MB", |row| format!("{:.0}", row.outcome.bytes as f64 / MB)),
    ("completion for each GB, s", |row| format!("{:.1}", row.per_gb())),
    ("throughput of programs, MB/s", |row| format!("{:.1}", row.rate(row.outcome.bytes) / MB)),
    ("reads of programs a second", |row| format!("{:.0}", row.rate(row.outcome.reads))),
    ("stats and opens of programs a second", |row| format!("{:.0}", row.rate(row.outcome.asked))),
    ("of these past the kernel's cache", |row| format!("{:.0}", row.rate(row.outcome.requests))),
    ("trips to the engine a second", |row| format!("{:.0}", row.rate(row.outcome.trips))),
    ("trips, % of stats and opens", |row| percent(row.outcome.trips, row.outcome.asked)),
    ("requests to cache nodes a second", |row| format!("{:.0}", row.rate(row.served))),
    ("throughput of cache nodes, MB/s", |row| format!("{:.1}", row.rate(row.served_bytes) / MB)),
    ("processor time of cache nodes, %", |row| {
        format!("{:.0}", 100.0 * row.node_cpu / row.longest().max(1e-9))
    }),
    ("object store, bytes, % of the data set", |row| percent(row.store_bytes, row.set_bytes)),
    ("of these read by clients, MB", |row| format!("{:.1}", row.outcome.store_bytes as f64 / MB)),
    ("requests that no cache node answered", |row| row.outcome.unanswered.to_string()),
    ("memory of a cache node, MiB", |row| (row.node_memory >> 10).to_string()),
    ("trips of an idle client a second", |row| format!("{:.2}", row.of_ready(|ready| ready.idle))),
    ("trips to open a client", |row| format!("{:.1}", row.of_ready(|ready| ready.trips))),
    ("seconds to open all", |row| {
        format!("{:.1}", row.ready.iter().map(|ready| ready.opened).fold(0.0, f64::max))
    }),
    ("threads of a process with clients", |row| row.outcome.threads.to_string()),
    ("memory of a process with clients, MiB", |row| {
        (row.usage.iter().map(|usage| usage.memory).max().unwrap_or(0) >> 10).to_string()
    }),
];

fn percent(part: u64, whole: u64) -> String {
    format!("{:.1}", 100.0 * part as f64 / whole.max(1) as f64)
}

/// The runs side by side, in Markdown.
pub(crate) fn table(rows: &[Row]) -> String {
    let line = |title: &str, show: &dyn Fn(&Row) -> String| {
        let cells: Vec<String> = rows.iter().map(show).collect();
        format!("| {title} | {} |\n", cells.join(" | "))
    };
    let head = line("clients", &|row| row.clients.to_string());
    let rule = format!("|---{}|\n", "|---".repeat(rows.len()));
    let lines = LINES.iter().map(|(title, show)| line(title, show));
    [head, rule].into_iter().chain(lines).collect()
}
