//! Periodic work of many owners on a few threads.
//!
//! A mount has threads of its own for such work. A process with many volumes would have thousands
//! of them, so its volumes share a timetable. What must stay true: a task never runs twice at once,
//! and never after [`Scheduled::end`] has returned. A task that panics ends only itself.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread::{self, Builder, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::job;

/// Returns the pause before the next run; `None` if there is none.
type Work = Box<dyn FnMut() -> Option<Duration> + Send>;

/// Threads that run tasks when they are due. They end when its last clone is gone.
#[derive(Clone)]
pub struct Timetable(Arc<Threads>);

/// Ends the threads.
struct Threads(Arc<Shared>);

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Another task is the next one, or the threads are to end.
    changed: Condvar,
    /// A run ended.
    ran: Condvar,
}

#[derive(Default)]
struct State {
    /// Tasks that wait, by the time of their next run.
    due: BTreeSet<(Instant, u64)>,
    tasks: BTreeMap<u64, Task>,
    /// Number of the last task.
    last: u64,
    closed: bool,
}

struct Task {
    due: Instant,
    /// `None` while it runs.
    work: Option<Work>,
    /// The thread on which it runs.
    runs_on: Option<ThreadId>,
    /// It is to run again at once.
    woken: bool,
    /// It is not to run again.
    ended: bool,
}

/// A task of a [`Timetable`]. If this is dropped, the task does not run again.
pub struct Scheduled {
    shared: Arc<Shared>,
    number: u64,
}

impl Timetable {
    /// Starts so many threads, called `name`.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(name: &str, threads: usize) -> io::Result<Self> {
        let table = Self(Arc::new(Threads(Arc::default())));
        for _ in 0..threads.max(1) {
            let shared = Arc::clone(&table.0.0);
            Builder::new().name(name.into()).spawn(job(name, move || shared.run()))?;
        }
        Ok(table)
    }

    /// Adds a task that runs for the first time after `first`. Tasks that are due wait for a
    /// thread: there should be as many threads as tasks that take long at the same time.
    pub fn add(&self, first: Duration, work: impl FnMut() -> Option<Duration> + Send + 'static) -> Scheduled {
        let shared = Arc::clone(&self.0.0);
        let due = Instant::now() + first;
        let mut state = shared.state.lock();
        state.last += 1;
        let number = state.last;
        let work: Work = Box::new(work);
        let task = Task { due, work: Some(work), runs_on: None, woken: false, ended: false };
        state.tasks.insert(number, task);
        state.due.insert((due, number));
        drop(state);
        shared.changed.notify_one();
        Scheduled { shared, number }
    }
}

impl fmt::Debug for Timetable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timetable({} tasks)", self.0.0.state.lock().tasks.len())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl Scheduled {
    /// Has the task run now, or once more if it is running.
    pub fn wake(&self) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let Some(task) = state.tasks.get_mut(&self.number) else { return };
        if task.runs_on.is_some() {
            task.woken = true;
            return;
        }
        state.due.remove(&(task.due, self.number));
        task.due = Instant::now();
        state.due.insert((task.due, self.number));
        drop(guard);
        self.shared.changed.notify_one();
    }

    /// Ends the task. Waits for a run under way, unless the task itself calls this.
    pub fn end(&self) {
        self.cancel();
        let mut state = self.shared.state.lock();
        let runs = |state: &State| state.tasks.get(&self.number).and_then(|task| task.runs_on);
        while runs(&state).is_some_and(|on| on != thread::current().id()) {
            self.shared.ran.wait(&mut state);
        }
    }

    /// Ends the task without a wait: a run may be under way.
    pub fn cancel(&self) {
        let mut guard = self.shared.state.lock();
        let state = &mut *guard;
        let Some(task) = state.tasks.get_mut(&self.number) else { return };
        task.ended = true;
        if task.runs_on.is_some() {
            return;
        }
        state.due.remove(&(task.due, self.number));
        let gone = state.tasks.remove(&self.number);
        // What it owns may own entries of this table.
        drop(guard);
        drop(gone);
    }
}

impl Drop for Scheduled {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Shared {
    fn run(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            match state.due.first().copied() {
                None => self.changed.wait(&mut state),
                Some((due, _)) if due > Instant::now() => {
                    self.changed.wait_until(&mut state, due);
                }
                Some((due, number)) => {
                    state.due.remove(&(due, number));
                    self.run_task(&mut state, number);
                }
            }
        }
    }

    fn run_task(&self, state: &mut MutexGuard<'_, State>, number: u64) {
        let Some(task) = state.tasks.get_mut(&number) else { return };
        let Some(mut work) = task.work.take() else { return };
        task.runs_on = Some(thread::current().id());
        if !state.due.is_empty() {
            self.changed.notify_one();
        }
        let (pause, work) = MutexGuard::unlocked(state, || {
            let pause = catch_unwind(AssertUnwindSafe(&mut work)).unwrap_or_else(|_| {
                tracing::error!("periodic work panicked; it does not run again");
                None
            });
            (pause, work)
        });
        let inner = &mut **state;
        let Some(task) = inner.tasks.get_mut(&number) else { return };
        task.runs_on = None;
        if let Some(pause) = pause.filter(|_| !task.ended) {
            let pause = if std::mem::take(&mut task.woken) { Duration::ZERO } else { pause };
            task.due = Instant::now() + pause;
            task.work = Some(work);
            inner.due.insert((task.due, number));
        } else {
            inner.tasks.remove(&number);
            MutexGuard::unlocked(state, || drop(work));
        }
        self.ran.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const TIMEOUT: Duration = Duration::from_mins(1);
    const LATE: Duration = Duration::from_hours(1);

    #[test]
    fn many_tasks_run_again_and_again_on_one_thread() {
        let table = Timetable::start("test", 1).unwrap();
        let (ran, runs) = mpsc::channel();
        let entries: Vec<Scheduled> = (0..100)
            .map(|task| {
                let ran = ran.clone();
                table.add(Duration::ZERO, move || ran.send(task).ok().map(|()| Duration::from_millis(1)))
            })
            .collect();
        let mut counts = [0; 100];
        while counts.iter().any(|count| *count < 3) {
            counts[runs.recv_timeout(TIMEOUT).unwrap()] += 1;
        }
        drop(entries);
    }

    #[test]
    fn a_task_that_is_woken_runs_before_its_time() {
        let table = Timetable::start("test", 1).unwrap();
        let (ran, runs) = mpsc::channel();
        let entry = table.add(LATE, move || ran.send(()).ok().map(|()| LATE));
        for _ in 0..3 {
            entry.wake();
            runs.recv_timeout(TIMEOUT).unwrap();
        }
    }

    #[test]
    fn the_end_waits_for_the_run_under_way() {
        let table = Timetable::start("test", 2).unwrap();
        let (begun, begins) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let done = Arc::new(Mutex::new(0));
        let count = Arc::clone(&done);
        let entry = table.add(Duration::ZERO, move || {
            begun.send(()).unwrap();
            let _ = released.recv_timeout(TIMEOUT);
            *count.lock() += 1;
            Some(Duration::ZERO)
        });
        begins.recv_timeout(TIMEOUT).unwrap();
        let ending = thread::spawn(move || entry.end());
        drop(release);
        ending.join().unwrap();
        let ended = *done.lock();
        assert_eq!(ended, 1 + begins.iter().count(), "all that began have ended, and the task is gone");
    }

    #[test]
    fn a_task_that_panics_or_ends_itself_leaves_the_thread() {
        let table = Timetable::start("test", 1).unwrap();
        let panics = table.add(Duration::ZERO, || panic!("told to"));
        let (ran, runs) = mpsc::channel();
        let once = table.add(Duration::ZERO, move || ran.send(()).ok().and(None));
        runs.recv_timeout(TIMEOUT).unwrap();
        assert!(runs.recv_timeout(TIMEOUT).is_err(), "its sender is dropped");
        panics.end();
        once.end();
    }
}
