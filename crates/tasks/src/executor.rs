//! What the threads share: tasks that have not begun, and tasks that were woken.
//!
//! What must stay true: its lock is held for moments, and no other lock is taken under it, because
//! whoever wakes a task may hold any lock.

use std::{
    collections::VecDeque,
    mem,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Wake,
    time::Instant,
};

use parking_lot::{Condvar, Mutex};

/// Tasks that a thread begins at once.
const AT_ONCE: usize = 16;

/// What a task is to run.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// The queues of all threads.
pub(crate) struct Executor {
    state: Mutex<State>,
    /// Wakes each thread.
    bells: Vec<Condvar>,
}

#[derive(Default)]
struct State {
    /// Tasks that have not begun.
    jobs: VecDeque<Job>,
    /// The tasks of each thread that were woken.
    woken: Vec<Vec<u64>>,
    /// Threads that sleep and could begin a task.
    idle: Vec<usize>,
    closed: bool,
}

/// What a thread does next.
#[derive(Default)]
pub(crate) struct Next {
    /// Tasks to resume.
    pub(crate) woken: Vec<u64>,
    /// Tasks to begin, before any is resumed: a task that gathers what others have to send then
    /// finds more.
    pub(crate) jobs: Vec<Job>,
}

impl Executor {
    pub(crate) fn new(threads: usize) -> Self {
        let state = State { woken: vec![Vec::new(); threads], ..State::default() };
        Self { state: Mutex::new(state), bells: (0..threads).map(|_| Condvar::new()).collect() }
    }

    /// Queues a task.
    pub(crate) fn begin(&self, job: Job) {
        let mut state = self.state.lock();
        if state.closed {
            return;
        }
        state.jobs.push_back(job);
        let idle = state.idle.pop();
        drop(state);
        if let Some(idle) = idle {
            self.bells[idle].notify_one();
        }
    }

    /// Queues a task that could not begin, before all others. Another thread may have room for it.
    pub(crate) fn put_back(&self, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_front(job);
        let idle = state.idle.pop();
        drop(state);
        if let Some(idle) = idle {
            self.bells[idle].notify_one();
        }
    }

    /// Gives up the tasks that have not begun. Each thread ends when it has no tasks left.
    pub(crate) fn close(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        let given_up = mem::take(&mut state.jobs);
        drop(state);
        drop(given_up);
        for bell in &self.bells {
            bell.notify_one();
        }
    }

    /// What thread `number` does next; waits for that until `due`. It has `tasks` tasks, and may
    /// have `more`. `None` if it is to end.
    pub(crate) fn next(
        &self,
        number: usize,
        (tasks, more): (usize, usize),
        due: Option<Instant>,
    ) -> Option<Next> {
        let mut state = self.state.lock();
        loop {
            let woken = mem::take(&mut state.woken[number]);
            let begun = more.min(AT_ONCE).min(state.jobs.len());
            let jobs: Vec<Job> = state.jobs.drain(..begun).collect();
            if !woken.is_empty() || !jobs.is_empty() {
                return Some(Next { woken, jobs });
            }
            if state.closed && tasks == 0 {
                return None;
            }
            if more > 0 {
                state.idle.push(number);
            }
            let bell = &self.bells[number];
            let late = due.is_some_and(|due| bell.wait_until(&mut state, due).timed_out());
            if due.is_none() {
                bell.wait(&mut state);
            }
            state.idle.retain(|idle| *idle != number);
            if late {
                return Some(Next::default());
            }
        }
    }

    fn woke(&self, thread: usize, task: u64) {
        self.state.lock().woken[thread].push(task);
        self.bells[thread].notify_one();
    }
}

/// Wakes a task.
pub(crate) struct Bell {
    pub(crate) executor: Arc<Executor>,
    pub(crate) thread: usize,
    pub(crate) task: u64,
    /// Whether it was woken since it last waited.
    woken: AtomicBool,
}

impl Bell {
    pub(crate) fn new(executor: Arc<Executor>, thread: usize, task: u64) -> Self {
        Self { executor, thread, task, woken: AtomicBool::new(false) }
    }

    /// Whether the task was woken since the last call.
    pub(crate) fn take(&self) -> bool {
        self.woken.swap(false, Ordering::SeqCst)
    }

    /// Has the task resumed, whether it waits already or not.
    pub(crate) fn ring(&self) {
        self.woken.store(true, Ordering::SeqCst);
        self.executor.woke(self.thread, self.task);
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::SeqCst) {
            self.executor.woke(self.thread, self.task);
        }
    }
}
