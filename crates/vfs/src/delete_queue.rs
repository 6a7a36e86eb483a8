//! The queue of what a mount deletes in the background.
//!
//! What must stay true: nothing that is queued is lost if it is never deleted: the metadata keeps a
//! record of each deletion until it is done.

use std::{
    collections::VecDeque,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use sluice_types::{Ino, Scheduled, wait};

/// Most deletions in the queue. The hourly cleanup does the rest.
const MAX_WAITING: usize = 1 << 18;
/// Most files that are deleted together.
const BATCH: usize = 256;
/// How long deletions are collected. No program waits for them, and a batch disturbs other requests
/// less.
const BATCH_DELAY: Duration = Duration::from_millis(100);
/// How often at least a thread without a task checks the queue.
pub(crate) const IDLE_CHECK: Duration = Duration::from_mins(1);

/// Something to delete.
pub(crate) enum Task {
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
    /// What deletes, if no threads of this mount do.
    task: OnceLock<Scheduled>,
}

impl Queue {
    /// Wakes somebody who deletes.
    fn notify(&self) {
        self.changed.notify_one();
        if let Some(task) = self.task.get() {
            task.wake();
        }
    }
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
                self.0.notify();
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
            self.0.notify();
        }
    }

    /// Waits for the next task; `None` at the end of the mount.
    pub(crate) fn pop(&self) -> Option<Task> {
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

    /// Wakes `task` instead of a thread.
    pub(crate) fn wakes(&self, task: Scheduled) {
        // There is one.
        let _ = self.0.task.set(task);
    }

    /// What is woken, if it is no thread.
    pub(crate) fn task(&self) -> Option<&Scheduled> {
        self.0.task.get()
    }

    /// The next task, or how long to wait for one; `None` at the end of the mount.
    pub(crate) fn try_pop(&self) -> Option<Result<Task, Duration>> {
        let mut state = self.0.state.lock();
        if state.closed {
            return None;
        }
        let next = state.next();
        state.busy += usize::from(next.is_ok());
        let left = |until: Instant| until.saturating_duration_since(wait::now());
        Some(next.map_err(|until| until.map_or(IDLE_CHECK, left)))
    }

    pub(crate) fn finished(&self) {
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
        self.0.notify();
        while !state.is_idle() && wait::now() < until {
            let left = until.saturating_duration_since(wait::now());
            wait::wait_for(&self.0.changed, &mut state, left);
        }
        state.hurry = false;
    }

    pub(crate) fn close(&self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}
