//! Many clients at work on a few threads.
//!
//! What must stay true: a client that fails ends, and is reported; the others go on.

use std::{collections::VecDeque, time::Instant};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::{
    data_set::DataSet,
    mount::Mount,
    process::status,
    work::{Visitor, Work},
};

/// Messages of clients that failed that are kept.
const MESSAGES: usize = 5;

/// What clients of one process did together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Seconds after which each client was done.
    pub(crate) completions: Vec<f64>,
    /// How many failed, and what some of them said.
    pub(crate) failed: usize,
    pub(crate) messages: Vec<String>,
    /// Reads of programs, and their bytes.
    pub(crate) reads: u64,
    pub(crate) bytes: u64,
    /// Stats and opens of programs.
    pub(crate) asked: u64,
    /// Requests about metadata that got past the kernel's caches.
    pub(crate) requests: u64,
    /// Round trips to the metadata engine.
    pub(crate) trips: u64,
    /// Requests that cache nodes answered with bytes, and those bytes.
    pub(crate) hits: u64,
    pub(crate) hit_bytes: u64,
    /// Requests that no cache node answered.
    pub(crate) unanswered: u64,
    /// Bytes that clients read from the object store themselves.
    pub(crate) store_bytes: u64,
    /// Threads of a process while its clients work, at most.
    pub(crate) threads: u64,
}

/// Lets all clients work until they are done. So many threads take the visits of all clients in
/// turn. Returns the clients, too.
pub(crate) fn run<M: Mount>(
    visitors: Vec<Visitor<M>>,
    threads: usize,
    work: &Work,
    set: &DataSet,
) -> (Outcome, Vec<Visitor<M>>) {
    let begun = Instant::now();
    let queue = Mutex::new(VecDeque::from(visitors));
    let ended = Mutex::new((Outcome::default(), Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut buffer = Vec::new();
                loop {
                    let next = queue.lock().pop_front();
                    let Some(mut visitor) = next else { return };
                    let turn = visitor.turn(work, set, &mut buffer);
                    if matches!(turn, Ok(true)) {
                        queue.lock().push_back(visitor);
                        continue;
                    }
                    let (outcome, visitors) = &mut *ended.lock();
                    outcome.add(&visitor, turn.err(), begun.elapsed().as_secs_f64());
                    visitors.push(visitor);
                }
            });
        }
        ended.lock().0.threads = status("Threads");
    });
    ended.into_inner()
}

impl Outcome {
    fn add<M: Mount>(&mut self, visitor: &Visitor<M>, failed: Option<anyhow::Error>, seconds: f64) {
        match failed {
            None => self.completions.push(seconds),
            Some(error) => {
                self.failed += 1;
                if self.messages.len() < MESSAGES {
                    self.messages.push(format!("{error:#}"));
                }
            }
        }
        self.reads += visitor.done.reads;
        self.bytes += visitor.done.bytes;
        self.asked += visitor.done.asked;
        self.requests += visitor.mount.requests();
    }

    /// Adds what clients of another process did.
    pub(crate) fn merge(&mut self, other: Self) {
        self.completions.extend(other.completions);
        self.failed += other.failed;
        self.messages.extend(other.messages);
        self.threads = self.threads.max(other.threads);
        for (own, others) in [
            (&mut self.reads, other.reads),
            (&mut self.bytes, other.bytes),
            (&mut self.asked, other.asked),
            (&mut self.requests, other.requests),
            (&mut self.trips, other.trips),
            (&mut self.hits, other.hits),
            (&mut self.hit_bytes, other.hit_bytes),
            (&mut self.unanswered, other.unanswered),
            (&mut self.store_bytes, other.store_bytes),
        ] {
            *own += others;
        }
    }
}
