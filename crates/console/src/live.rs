//! The current activity of the clients of a volume: polls their metrics, and keeps the sums of the
//! last hour.
//!
//! What must stay true: the memory use is bounded by the number of polled clients, whatever they
//! answer.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde::Serialize;
use sluice_types::{Clock as _, SystemClock};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    clients::{Client, Clients},
    exposition::{Counts, Number},
    rates::{self, Rates, Slow, Times},
    scrape,
};

/// Most clients of a volume that are asked.
pub(crate) const CLIENTS: usize = 256;
/// Clients asked at once.
const AT_ONCE: usize = 32;
/// Rounds that are kept.
const POINTS: usize = 720;
/// How far slow operations look back, at least.
const WINDOW: Duration = Duration::from_mins(1);

/// What the points of the graphs hold, behind the time in Unix milliseconds.
pub(crate) const SERIES: [&str; 12] = [
    "requests",
    "meta_operations",
    "read_bytes",
    "written_bytes",
    "request_ms",
    "request_p99_ms",
    "meta_ms",
    "object_get_bytes",
    "object_put_bytes",
    "group_bytes",
    "cache_hit_part",
    "clients",
];

/// One point of the graphs; `None` where nothing was done that could be measured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Point(pub(crate) i64, pub(crate) [Option<f64>; SERIES.len()]);

/// What is known of one client.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Activity {
    /// Why its metrics are not known, if they are not.
    pub(crate) silent: Option<String>,
    /// What it does by the second; `None` before its metrics were read twice.
    pub(crate) rates: Option<Rates>,
    pub(crate) request_ms: Option<f64>,
    pub(crate) cache_hit_part: Option<f64>,
    pub(crate) served_hit_part: Option<f64>,
    pub(crate) open_files: f64,
    pub(crate) cache_bytes: f64,
    pub(crate) staged_bytes: f64,
    pub(crate) memory_bytes: f64,
    pub(crate) deletions_waiting: f64,
}

/// The readings of one client.
struct Readings {
    last: Result<Counts, String>,
    rates: Option<Rates>,
    /// The reading that slow operations begin with, and the one that is next to be that.
    older: Option<Counts>,
    newer: Option<Counts>,
}

#[derive(Default)]
struct State {
    clients: FxHashMap<u64, Readings>,
    points: VecDeque<Point>,
    /// The sums of the last round.
    now: Rates,
    request_p99_ms: Option<f64>,
    /// Unix seconds of the newest backup of the metadata that a client knows of.
    last_backup: f64,
    damaged: f64,
    /// Clients that would be asked if they were not so many.
    left_out: usize,
}

/// The clients of one volume.
#[derive(Default)]
pub(crate) struct Live(Mutex<State>);

/// The last round, for people.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Round {
    /// Clients whose metrics are known.
    pub(crate) clients: usize,
    /// Clients that are alive and whose metrics are not known.
    pub(crate) silent: usize,
    /// Clients that were not asked, since there are too many.
    pub(crate) left_out: usize,
    pub(crate) rates: Rates,
    pub(crate) request_ms: Option<f64>,
    pub(crate) request_p99_ms: Option<f64>,
    pub(crate) meta_ms: Option<f64>,
    pub(crate) cache_hit_part: Option<f64>,
    /// Unix seconds; `None` if no client says so.
    pub(crate) last_backup: Option<i64>,
    /// Cached blocks that were found damaged since the mounts began.
    pub(crate) damaged_blocks: f64,
    /// The slowest operations of the last minute or two.
    pub(crate) slow: Vec<Slow>,
}

impl Live {
    /// Asks all clients once.
    pub(crate) async fn round(&self, clients: Arc<Clients>, volume: &str, here: &str) {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asked = JoinSet::new();
        let mut left_out = 0;
        for client in clients.known.iter().filter(|client| !client.is_stale(clients.at)) {
            if asked.len() >= CLIENTS {
                left_out += 1;
                continue;
            }
            let (places, client) = (Arc::clone(&places), client.clone());
            let (volume, here) = (volume.to_owned(), here.to_owned());
            asked.spawn(async move {
                let _place = places.acquire().await;
                let counts = scrape::ask(&client, &volume, &here).await;
                (client.session, counts)
            });
        }
        let answers = asked.join_all().await;
        self.0.lock().take(answers, left_out);
    }

    /// What a client does; `None` if it was not asked.
    pub(crate) fn activity(&self, session: u64) -> Option<Activity> {
        self.0.lock().clients.get(&session).map(Readings::activity)
    }

    /// The sums of the last round, and the slowest operations, of clients with their names.
    pub(crate) fn last(&self, known: &[Client]) -> Round {
        let state = self.0.lock();
        let answer = |readings: &&Readings| readings.last.is_ok();
        let clients = state.clients.values().filter(answer).count();
        let named = known.iter().filter_map(|client| {
            let readings = state.clients.get(&client.session)?;
            Some((client.name(), readings.older.as_ref()?, readings.last.as_ref().ok()?))
        });
        Round {
            clients,
            silent: state.clients.len() - clients,
            left_out: state.left_out,
            rates: state.now,
            request_ms: state.now.request_ms(),
            request_p99_ms: state.request_p99_ms,
            meta_ms: state.now.meta_ms(),
            cache_hit_part: state.now.hit_part(),
            last_backup: (state.last_backup > 0.0).then_some(state.last_backup as i64),
            damaged_blocks: state.damaged,
            slow: rates::slow(named),
        }
    }

    /// The points after `since`, Unix milliseconds, the oldest first.
    pub(crate) fn points(&self, since: i64) -> Vec<Point> {
        self.0.lock().points.iter().filter(|point| point.0 > since).cloned().collect()
    }
}

impl State {
    fn take(&mut self, answers: Vec<(u64, Result<Counts, String>)>, left_out: usize) {
        let (mut sum, mut times, mut measured) = (Rates::default(), Times::default(), 0);
        let mut before = std::mem::take(&mut self.clients);
        (self.last_backup, self.damaged, self.left_out) = (0.0, 0.0, left_out);
        for (session, answer) in answers {
            let mut readings = before.remove(&session).unwrap_or_else(Readings::none);
            if let Ok(counts) = &answer {
                self.last_backup = self.last_backup.max(counts.get(Number::LastBackup));
                self.damaged += counts.get(Number::CacheDamaged);
                measured += 1;
                if let Ok(earlier) = &readings.last {
                    times.add(earlier, counts);
                }
            }
            readings.take(answer);
            sum.add(&readings.rates.unwrap_or_default());
            self.clients.insert(session, readings);
        }
        (self.now, self.request_p99_ms) = (sum, times.quantile_ms(0.99));
        // Nothing is known of a moment at which nobody answered.
        let some = |value: f64| (measured > 0).then_some(value);
        let values = [
            some(sum.requests),
            some(sum.meta_operations),
            some(sum.read_bytes),
            some(sum.written_bytes),
            sum.request_ms(),
            self.request_p99_ms,
            sum.meta_ms(),
            some(sum.object_get_bytes),
            some(sum.object_put_bytes),
            some(sum.group_bytes),
            sum.hit_part(),
            Some(f64::from(measured)),
        ];
        self.points.push_back(Point(SystemClock.now().nanos() / 1_000_000, values));
        if self.points.len() > POINTS {
            self.points.pop_front();
        }
    }
}

impl Readings {
    fn none() -> Self {
        Self { last: Err(String::new()), rates: None, older: None, newer: None }
    }

    fn take(&mut self, answer: Result<Counts, String>) {
        self.rates = match (&self.last, &answer) {
            (Ok(before), Ok(now)) => Some(Rates::between(before, now)),
            _ => None,
        };
        if let Ok(counts) = &answer {
            let age = |earlier: &Counts| counts.at.saturating_duration_since(earlier.at);
            if self.newer.as_ref().is_none_or(|newer| age(newer) >= WINDOW) {
                self.older = self.newer.replace(counts.clone()).or_else(|| Some(counts.clone()));
            }
        }
        self.last = answer;
    }

    fn activity(&self) -> Activity {
        let state = |number: Number| self.last.as_ref().map_or(0.0, |counts| counts.get(number));
        Activity {
            silent: self.last.as_ref().err().cloned(),
            rates: self.rates,
            request_ms: self.rates.and_then(|rates| rates.request_ms()),
            cache_hit_part: self.rates.and_then(|rates| rates.hit_part()),
            served_hit_part: self.rates.and_then(|rates| rates.served_hit_part()),
            open_files: state(Number::OpenFiles),
            cache_bytes: state(Number::CacheBytes),
            staged_bytes: state(Number::StagedBytes),
            memory_bytes: state(Number::MemoryBytes),
            deletions_waiting: state(Number::DeletionsWaiting),
        }
    }
}

/// Asks the clients of a volume each `every`, from now until the task is ended.
pub(crate) async fn watch(
    live: Arc<Live>,
    every: Duration,
    here: String,
    clients: impl Fn() -> Option<(Arc<Clients>, String)>,
) {
    loop {
        let begun = Instant::now();
        if let Some((clients, volume)) = clients() {
            live.round(clients, &volume, &here).await;
        }
        tokio::time::sleep(every.saturating_sub(begun.elapsed())).await;
    }
}
