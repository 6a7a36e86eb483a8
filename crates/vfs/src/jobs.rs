//! The background work of a mounted volume: heartbeats, deletion of removed files, and the hourly
//! cleanup.
//!
//! What must stay true: no request waits for any of this, and nothing is lost if it never runs: the
//! metadata keeps a record of each deletion until it is done.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use sluice_data::DataStore;
use sluice_meta::{BlockSink, Interrupt, Meta};
use sluice_types::{FsError, FsResult, Ino, Rng, wait};

use crate::config::VfsConfig;

/// Threads that delete data.
const DELETERS: usize = 4;
/// Most deletions in the queue. The hourly cleanup does the rest.
const MAX_WAITING: usize = 1 << 18;
/// Most files that are deleted together.
const BATCH: usize = 256;
/// How long deletions are collected. No program waits for them, and a batch disturbs other requests
/// less.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How long an unmount waits for deletions.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How often at least a thread without a task checks the queue.
const IDLE_CHECK: Duration = Duration::from_mins(1);
/// Time between two cleanups, plus or minus up to a twentieth.
const CLEANUP_INTERVAL: Duration = Duration::from_hours(1);
/// Time between two reads of the change log, of all clients.
const TRIM_INTERVAL: Duration = Duration::from_mins(5);

/// Deletes blocks through the data path.
pub(crate) struct Sink(pub(crate) Arc<DataStore>);

impl BlockSink for Sink {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        self.0.delete_slices(slices).into_iter().map(|deleted| deleted.map_err(FsError::io)).collect()
    }
}

/// Something to delete.
enum Task {
    /// All chunks of files, each with its length.
    Files(Vec<(Ino, u64)>),
    /// Slices that no record refers to.
    Slices(Vec<(u64, u32)>),
    /// All files that the metadata records as deleted.
    Recorded,
}

/// The queue of deletions. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct DeleteQueue(Arc<Queue>);

#[derive(Default)]
struct Queue {
    state: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    /// Deleted files, and when the first of them was queued.
    files: VecDeque<(Ino, u64)>,
    since: Option<Instant>,
    tasks: VecDeque<Task>,
    busy: usize,
    /// Whether an unmount waits until the queue is empty.
    hurry: bool,
    closed: bool,
}

impl Waiting {
    /// The next task. If there is none yet, the time until which to wait for more files.
    fn next(&mut self) -> Result<Task, Option<Instant>> {
        if let Some(task) = self.tasks.pop_front() {
            return Ok(task);
        }
        let Some(since) = self.since else { return Err(None) };
        if self.files.len() < BATCH && !self.hurry && wait::now() < since + BATCH_DELAY {
            return Err(Some(since + BATCH_DELAY));
        }
        let count = self.files.len().min(BATCH);
        let files = self.files.drain(..count).collect();
        self.since = (!self.files.is_empty()).then(wait::now);
        Ok(Task::Files(files))
    }

    fn is_idle(&self) -> bool {
        self.busy == 0 && self.tasks.is_empty() && self.files.is_empty()
    }
}

impl DeleteQueue {
    /// Queues the chunks of a file for deletion.
    pub(crate) fn file(&self, ino: Ino, length: u64) {
        let mut state = self.0.state.lock();
        if state.files.len() < MAX_WAITING && !state.closed {
            state.files.push_back((ino, length));
            // The first file wakes a thread that collects more. A full batch wakes a thread that
            // deletes it at once.
            if state.since.is_none() || state.files.len().is_multiple_of(BATCH) {
                state.since.get_or_insert_with(wait::now);
                self.0.changed.notify_one();
            }
        }
    }

    /// Queues slices for deletion.
    pub(crate) fn slices(&self, slices: Vec<(u64, u32)>) {
        self.push(Task::Slices(slices));
    }

    /// Queues all deletions that are on record.
    pub(crate) fn recorded(&self) {
        self.push(Task::Recorded);
    }

    fn push(&self, task: Task) {
        let mut state = self.0.state.lock();
        if state.tasks.len() < MAX_WAITING && !state.closed {
            state.tasks.push_back(task);
            self.0.changed.notify_one();
        }
    }

    /// Waits for the next task; `None` at the end of the mount.
    fn pop(&self) -> Option<Task> {
        let mut state = self.0.state.lock();
        loop {
            if state.closed {
                return None;
            }
            match state.next() {
                Ok(task) => {
                    state.busy += 1;
                    if state.since.is_some() {
                        self.0.changed.notify_one();
                    }
                    return Some(task);
                }
                Err(until) => {
                    let left = until.map_or(IDLE_CHECK, |until| until.saturating_duration_since(wait::now()));
                    wait::wait_for_work(&self.0.changed, &mut state, left);
                }
            }
        }
    }

    fn finished(&self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        if state.busy == 0 {
            self.0.changed.notify_all();
        }
    }

    /// How many tasks wait or run.
    pub(crate) fn len(&self) -> usize {
        let state = self.0.state.lock();
        state.files.len() + state.tasks.len() + state.busy
    }

    /// Waits until all is deleted, at most `timeout`.
    pub(crate) fn drain(&self, timeout: Duration) {
        let until = wait::now() + timeout;
        let mut state = self.0.state.lock();
        state.hurry = true;
        self.0.changed.notify_all();
        while !state.is_idle() && wait::now() < until {
            let left = until.saturating_duration_since(wait::now());
            wait::wait_for(&self.0.changed, &mut state, left);
        }
        state.hurry = false;
    }

    fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}

/// The background threads of a mount.
pub(crate) struct Jobs {
    queue: DeleteQueue,
    stops: Vec<Interrupt>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    stopped: AtomicBool,
}

impl Jobs {
    pub(crate) fn start(meta: &Arc<Meta>, data: &Arc<DataStore>, config: &VfsConfig) -> Self {
        let queue = DeleteQueue::default();
        let mut jobs =
            Self { queue, stops: Vec::new(), threads: Mutex::default(), stopped: AtomicBool::new(false) };
        jobs.spawn("sluice-beat", {
            let (meta, config) = (Arc::clone(meta), config.clone());
            move |stop| beats(&meta, &config, &stop)
        });
        if meta.is_read_only() {
            return jobs;
        }
        for _ in 0..DELETERS {
            let (meta, sink, queue) = (Arc::clone(meta), Sink(Arc::clone(data)), jobs.queue.clone());
            jobs.spawn("sluice-delete", move |stop| deletions(&meta, &sink, &queue, &stop));
        }
        if config.cleaning {
            let (meta, sink) = (Arc::clone(meta), Sink(Arc::clone(data)));
            jobs.spawn("sluice-clean", move |stop| {
                periodically(CLEANUP_INTERVAL, &stop, "the hourly cleaning", || meta.clean(&sink, &stop));
            });
        }
        // A log that is switched on later is trimmed with the hourly cleaning.
        if config.cleaning && meta.env().format().change_log {
            let meta = Arc::clone(meta);
            jobs.spawn("sluice-trim", move |stop| {
                periodically(TRIM_INTERVAL, &stop, "the trimming of the change log", || meta.trim_log(&stop));
            });
        }
        jobs
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce(Interrupt) + Send + 'static) {
        let stop = Interrupt::never();
        self.stops.push(stop.clone());
        match wait::spawn(name, move || run(stop)) {
            Ok(thread) => self.threads.lock().push(thread),
            Err(error) => tracing::error!(%error, "background thread {name} could not be started"),
        }
    }

    pub(crate) fn queue(&self) -> DeleteQueue {
        self.queue.clone()
    }

    /// Ends all background work, after a short wait for deletions.
    pub(crate) fn stop(&self) {
        if self.stopped.swap(true, Ordering::SeqCst) {
            return;
        }
        self.queue.drain(STOP_TIMEOUT);
        self.queue.close();
        self.stops.iter().for_each(Interrupt::set);
        for thread in self.threads.lock().drain(..) {
            if thread.thread().id() != thread::current().id() && wait::join(thread).is_err() {
                tracing::error!("a background thread panicked");
            }
        }
    }
}

impl Jobs {
    /// Makes all background work end, without a wait. Deletions that are not done stay on record.
    pub(crate) fn leave(&self) {
        self.queue.close();
        self.stops.iter().for_each(Interrupt::set);
    }
}

impl Drop for Jobs {
    fn drop(&mut self) {
        self.leave();
    }
}

fn beats(meta: &Meta, config: &VfsConfig, stop: &Interrupt) {
    loop {
        stop.sleep(config.heartbeat);
        if stop.is_set() {
            return;
        }
        match meta.beat() {
            Ok(Ok(())) => {}
            Ok(Err(ended)) => {
                tracing::error!(%ended, "the mount ends");
                if let Some(on_ended) = &config.on_ended {
                    on_ended(ended);
                }
                return;
            }
            Err(error) => tracing::warn!(%error, "the heartbeat failed; it is tried again"),
        }
    }
}

/// Does `work` about each `interval`, until it is to stop.
fn periodically(interval: Duration, stop: &Interrupt, what: &str, work: impl Fn() -> FsResult<()>) {
    let mut rng = Rng::from_os();
    loop {
        let twentieth = interval / 20;
        let jitter = Duration::from_millis(rng.below(2 * twentieth.as_millis() as u64));
        stop.sleep(interval.saturating_sub(twentieth) + jitter);
        if stop.is_set() {
            return;
        }
        if let Err(error) = work()
            && !stop.is_set()
        {
            tracing::warn!(%error, "{what} did not finish; it goes on with the next");
        }
    }
}

fn deletions(meta: &Meta, sink: &Sink, queue: &DeleteQueue, stop: &Interrupt) {
    while let Some(task) = queue.pop() {
        let deleted = match task {
            Task::Files(files) => meta.delete_files(&files, sink, stop),
            Task::Slices(slices) => meta.delete_slices(&slices, sink, stop),
            Task::Recorded => meta.clean_deleted_files(i64::MAX, sink, stop),
        };
        if let Err(error) = deleted
            && !stop.is_set()
        {
            tracing::warn!(%error, "something removed could not be deleted; the hourly cleaning tries again");
        }
        queue.finished();
    }
}
