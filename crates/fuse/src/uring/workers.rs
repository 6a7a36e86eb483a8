//! Threads that run requests which may wait.
//!
//! What must stay true: there are at most as many as allowed. What comes beyond that waits in a
//! queue. The watchdog raises the limit by one for each worker that it gives up.

use std::{
    collections::VecDeque,
    sync::Arc,
    thread::{self, Thread},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long an unneeded worker sleeps before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Something for a worker to do.
pub(crate) trait Work: Send + 'static {
    /// Does it; `false` if the watchdog gave up on the worker meanwhile.
    fn work(self) -> bool;
}

/// The workers of a mount.
pub(crate) struct Workers<W> {
    state: Mutex<State<W>>,
    max: usize,
    /// Where workers may run. A thread that starts one may be kept on one CPU.
    cpus: Option<CpuSet>,
}

struct State<W> {
    queue: VecDeque<W>,
    sleeping: Vec<Arc<Sleeper<W>>>,
    /// Workers that count against the limit: all but those given up.
    live: usize,
    threads: usize,
    ended: bool,
}

struct Sleeper<W> {
    thread: Thread,
    work: Mutex<Option<W>>,
}

impl<W: Work> Workers<W> {
    pub(crate) fn new(max: usize) -> Arc<Self> {
        let (queue, sleeping) = (VecDeque::new(), Vec::new());
        let state = State { queue, sleeping, live: 0, threads: 0, ended: false };
        let cpus = sched_getaffinity(None).ok();
        Arc::new(Self { state: Mutex::new(state), max: max.max(1), cpus })
    }

    /// Has it done by a worker.
    pub(crate) fn push(self: &Arc<Self>, work: W) {
        let mut state = self.state.lock();
        if let Some(sleeper) = state.sleeping.pop() {
            drop(state);
            *sleeper.work.lock() = Some(work);
            sleeper.thread.unpark();
            return;
        }
        state.queue.push_back(work);
        if state.live < self.max {
            self.add(&mut state);
        }
    }

    /// Starts a worker for what is queued. Without any worker, what is queued waits for the next
    /// try.
    fn add(self: &Arc<Self>, state: &mut State<W>) {
        let this = Arc::clone(self);
        let span = tracing::Span::current();
        let spawned = thread::Builder::new().name("fuse-worker".into()).spawn(move || {
            let _span = span.enter();
            if let Some(cpus) = &this.cpus {
                let _ = sched_setaffinity(None, cpus);
            }
            this.run();
            this.state.lock().threads -= 1;
        });
        match spawned {
            Ok(_) => {
                state.live += 1;
                state.threads += 1;
            }
            Err(why) => tracing::error!("cannot start another thread for FUSE requests: {why}"),
        }
    }

    fn run(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let queued = state.queue.pop_front();
            let work = if queued.is_some() || state.ended {
                drop(state);
                queued
            } else {
                self.rest(state)
            };
            let Some(work) = work else {
                let mut state = self.state.lock();
                // Whoever queued work meanwhile took this worker for a busy one.
                if state.queue.is_empty() || state.ended {
                    state.live = state.live.saturating_sub(1);
                    return;
                }
                continue;
            };
            if !work.work() {
                // It does not count any more.
                return;
            }
        }
    }

    /// Sleeps until there is work; `None` if there was none for long.
    fn rest(&self, mut state: parking_lot::MutexGuard<'_, State<W>>) -> Option<W> {
        let this = Arc::new(Sleeper { thread: thread::current(), work: Mutex::new(None) });
        state.sleeping.push(Arc::clone(&this));
        drop(state);
        let end = Instant::now() + IDLE_TIMEOUT;
        loop {
            if let Some(work) = this.work.lock().take() {
                return Some(work);
            }
            let left = end.saturating_duration_since(Instant::now());
            let mut state = self.state.lock();
            if left.is_zero() || state.ended {
                let before = state.sleeping.len();
                state.sleeping.retain(|other| !Arc::ptr_eq(other, &this));
                if state.sleeping.len() < before {
                    return None;
                }
            }
            drop(state);
            thread::park_timeout(left.max(Duration::from_millis(1)));
        }
    }

    /// One more thread counts as a worker.
    pub(crate) fn join(&self) {
        self.state.lock().live += 1;
    }

    /// A thread that counted does not any more.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.live = state.live.saturating_sub(1);
    }

    /// The watchdog gave up `count` workers: they are replaced, and end when their work does.
    pub(crate) fn give_up(self: &Arc<Self>, count: usize) {
        let mut state = self.state.lock();
        state.live = state.live.saturating_sub(count);
        for _ in 0..count.min(state.queue.len()) {
            self.add(&mut state);
        }
    }

    /// Lets all end that have nothing to do.
    pub(crate) fn end(&self) {
        let mut state = self.state.lock();
        state.ended = true;
        for sleeper in &state.sleeping {
            sleeper.thread.unpark();
        }
    }

    /// All workers, including those that were given up and have not ended.
    pub(crate) fn threads(&self) -> usize {
        self.state.lock().threads
    }
}
