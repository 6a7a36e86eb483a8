//! How threads wait for time and for each other, and the clock for such waits.
//!
//! A [`Scheduler`] replaces both. A simulation is one: it runs many clients in one process, one
//! thread at a time and in virtual time. An executor of tasks is another: a task that waits leaves
//! its thread to other tasks. What must stay true: for all other threads, a wait costs only one
//! additional check of a thread-local flag.

use std::{
    cell::{Cell, RefCell},
    io,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Wake, Waker},
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::job;

/// Decides when threads, or the tasks that share them, run. What is not overridden is as without a
/// scheduler.
pub trait Scheduler: Send + Sync {
    /// What time it is.
    fn now(&self) -> Instant {
        Instant::now()
    }
    /// Stops the caller until it is unparked, or until `timeout` has passed.
    fn park(&self, timeout: Option<Duration>);
    /// Lets a parked thread go on; one that is not parked does not stop the next time.
    fn unpark(&self, thread: &Thread) {
        thread.unpark();
    }
    /// Lets others run.
    fn yield_now(&self);
    /// Whether a thread has ended.
    fn has_ended(&self, thread: &JoinHandle<()>) -> bool {
        thread.is_finished()
    }
    /// What a new thread is to run, so that it is scheduled while it runs `run`.
    fn adopt(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send> {
        let _ = name;
        run
    }
    /// What lets the calling task go on after a [`park`](Self::park); `None` if the caller is a
    /// thread that it shares with nobody.
    fn waker(&self) -> Option<Waker> {
        None
    }
}

/// One that waits, for those who let it go on.
#[derive(Clone, Debug)]
pub enum Waiter {
    /// A thread.
    Thread(Thread),
    /// A task, which shares its thread with others.
    Task(Waker),
}

thread_local! {
    static SCHEDULED: Cell<bool> = const { Cell::new(false) };
    static SCHEDULER: RefCell<Option<Arc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// Shortest and longest wait between two tries for a lock whose holder may wait for others.
const TRY: Duration = Duration::from_micros(100);
const MOST: Duration = Duration::from_millis(5);
/// The same for something to do.
const IDLE: Duration = Duration::from_millis(20);

fn scheduler() -> Option<Arc<dyn Scheduler>> {
    if SCHEDULED.get() { SCHEDULER.with_borrow(Clone::clone) } else { None }
}

/// Whether a scheduler decides the waits of the calling thread.
pub(crate) fn is_scheduled() -> bool {
    SCHEDULED.get()
}

/// From now on, `scheduler` decides the waits of the calling thread.
pub fn obey(scheduler: Arc<dyn Scheduler>) {
    SCHEDULER.set(Some(scheduler));
    SCHEDULED.set(true);
}

/// What time it is, for waits and deadlines.
pub fn now() -> Instant {
    match scheduler() {
        Some(scheduler) => scheduler.now(),
        None => Instant::now(),
    }
}

/// As [`thread::park`].
pub fn park() {
    match scheduler() {
        Some(scheduler) => scheduler.park(None),
        None => thread::park(),
    }
}

/// As [`thread::park_timeout`].
pub fn park_timeout(timeout: Duration) {
    match scheduler() {
        Some(scheduler) => scheduler.park(Some(timeout)),
        None => thread::park_timeout(timeout),
    }
}

impl Wake for Waiter {
    fn wake(self: Arc<Self>) {
        self.unpark();
    }
}

/// The caller as one that waits: what ends its next [`park`].
pub fn current() -> Waiter {
    task().map_or_else(|| Waiter::Thread(thread::current()), Waiter::Task)
}

/// What ends the next [`park`] of the caller, if it is a task.
pub fn task() -> Option<Waker> {
    scheduler()?.waker()
}

impl Waiter {
    /// As [`Thread::unpark`]. If a simulation schedules it, it schedules the caller, too.
    pub fn unpark(&self) {
        match (self, scheduler()) {
            (Self::Task(waker), _) => waker.wake_by_ref(),
            (Self::Thread(thread), Some(scheduler)) => scheduler.unpark(thread),
            (Self::Thread(thread), None) => thread.unpark(),
        }
    }

    /// What [`unpark`](Self::unpark)s it.
    pub fn into_waker(self) -> Waker {
        match self {
            Self::Thread(_) => Arc::new(self).into(),
            Self::Task(waker) => waker,
        }
    }

    /// Whether it is the caller.
    pub fn is_caller(&self) -> bool {
        match (self, task()) {
            (Self::Task(waker), Some(caller)) => waker.will_wake(&caller),
            (Self::Thread(thread), None) => thread.id() == thread::current().id(),
            _ => false,
        }
    }
}

/// As [`thread::sleep`].
pub fn sleep(pause: Duration) {
    let Some(scheduler) = scheduler() else { return thread::sleep(pause) };
    let until = scheduler.now() + pause;
    loop {
        let left = until.saturating_duration_since(scheduler.now());
        if left.is_zero() {
            return;
        }
        scheduler.park(Some(left));
    }
}

/// As [`thread::yield_now`].
pub fn yield_now() {
    match scheduler() {
        Some(scheduler) => scheduler.yield_now(),
        None => thread::yield_now(),
    }
}

/// Lets others run if a scheduler decides about them: other tasks of this thread, and in a
/// simulation other threads.
pub fn yield_to_scheduler() {
    if let Some(scheduler) = scheduler() {
        scheduler.yield_now();
    }
}

/// Takes a lock whose holder may wait for time or for other threads. Others are taken as usual.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if is_scheduled() { attempt(|| mutex.try_lock()) } else { mutex.lock() }
}

/// As [`lock`], but gives up after `timeout`.
pub fn try_lock_for<T>(mutex: &Mutex<T>, timeout: Duration) -> Option<MutexGuard<'_, T>> {
    if is_scheduled() {
        attempt_until(now() + timeout, || mutex.try_lock())
    } else {
        mutex.try_lock_for(timeout)
    }
}

/// Tries until it succeeds, more and more seldom.
pub(crate) fn attempt<T>(mut once: impl FnMut() -> Option<T>) -> T {
    let mut pause = TRY;
    loop {
        if let Some(done) = once() {
            return done;
        }
        sleep(pause);
        pause = (2 * pause).min(MOST);
    }
}

/// As [`attempt`], but gives up at `deadline`.
pub(crate) fn attempt_until<T>(deadline: Instant, mut once: impl FnMut() -> Option<T>) -> Option<T> {
    attempt(|| match once() {
        None if now() < deadline => None,
        done => Some(done),
    })
}

/// Waits, no longer than `timeout`, until `condvar` is notified.
pub fn wait_for<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
    look_for(condvar, guard, timeout, TRY);
}

/// As [`wait_for`], for a thread that waits for work: in a simulation it checks seldom.
pub fn wait_for_work<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
    look_for(condvar, guard, timeout, IDLE);
}

fn look_for<T>(condvar: &Condvar, guard: &mut MutexGuard<'_, T>, timeout: Duration, pause: Duration) {
    if scheduler().is_none() {
        condvar.wait_for(guard, timeout);
    } else {
        MutexGuard::unlocked(guard, || sleep(pause.min(timeout)));
    }
}

/// Does work that waits for threads. For a task it is done on a thread of its own, because a thread
/// may wait for another task of the thread of the caller.
pub fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let Some(task) = task() else { return work() };
    let ended = AtomicBool::new(false);
    let run = || {
        let done = catch_unwind(AssertUnwindSafe(work));
        ended.store(true, Ordering::SeqCst);
        task.wake_by_ref();
        done
    };
    let done = thread::scope(|scope| {
        let thread = scope.spawn(run);
        while !ended.load(Ordering::SeqCst) {
            park();
        }
        thread.join()
    });
    match done {
        Ok(Ok(done)) => done,
        Ok(Err(reason)) | Err(reason) => resume_unwind(reason),
    }
}

/// As [`JoinHandle::join`].
///
/// # Errors
/// If the thread panicked.
pub fn join(handle: JoinHandle<()>) -> thread::Result<()> {
    if let Some(scheduler) = scheduler() {
        while !scheduler.has_ended(&handle) {
            sleep(TRY);
        }
    }
    handle.join()
}

/// Starts a thread, which obeys the scheduler of this one.
///
/// # Errors
/// If no thread can be started.
pub fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let run: Box<dyn FnOnce() + Send> = Box::new(job(name, run));
    let run = match scheduler() {
        Some(scheduler) => scheduler.adopt(name, run),
        None => run,
    };
    thread::Builder::new().name(name.into()).spawn(run)
}
