//! How threads wait for time and for each other, and the clock for such waits.
//!
//! A simulation replaces both: it runs many clients in one process, one thread at a time and in
//! virtual time ([`Scheduler`]). What must stay true: for a thread that is not part of a
//! simulation, a wait costs only one additional check of a thread-local flag.

use std::{
    cell::{Cell, RefCell},
    io,
    sync::Arc,
    thread::{self, JoinHandle, Thread, ThreadId},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockWriteGuard};

use crate::job;

/// Decides when the threads that it was given run.
pub trait Scheduler: Send + Sync {
    /// What time it is.
    fn now(&self) -> Instant;
    /// Stops the calling thread until it is unparked, or until `timeout` has passed.
    fn park(&self, timeout: Option<Duration>);
    /// Lets a parked thread go on; one that is not parked does not stop the next time.
    fn unpark(&self, thread: ThreadId);
    /// Lets other threads run.
    fn yield_now(&self);
    /// Whether a thread that it was given has ended.
    fn has_ended(&self, thread: ThreadId) -> bool;
    /// What a new thread is to run, so that it is scheduled while it runs `run`.
    fn adopt(&self, name: &str, run: Box<dyn FnOnce() + Send>) -> Box<dyn FnOnce() + Send>;
}

thread_local! {
    static SCHEDULED: Cell<bool> = const { Cell::new(false) };
    static SCHEDULER: RefCell<Option<Arc<dyn Scheduler>>> = const { RefCell::new(None) };
}

/// Longest wait between two tries for a lock whose holder may wait for others.
const TRY: Duration = Duration::from_micros(100);
/// The same for something to do.
const IDLE: Duration = Duration::from_millis(20);

fn scheduler() -> Option<Arc<dyn Scheduler>> {
    if SCHEDULED.get() { SCHEDULER.with_borrow(Clone::clone) } else { None }
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

/// As [`Thread::unpark`]. Whoever calls it runs under the scheduler of that thread, if it has one.
pub fn unpark(thread: &Thread) {
    match scheduler() {
        Some(scheduler) => scheduler.unpark(thread.id()),
        None => thread.unpark(),
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

/// Lets other threads run if a scheduler decides about them. In a simulation, they may be faster.
pub fn yield_to_scheduler() {
    if let Some(scheduler) = scheduler() {
        scheduler.yield_now();
    }
}

/// Takes a lock whose holder may wait for time or for other threads. Others are taken as usual.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    if scheduler().is_none() {
        return mutex.lock();
    }
    loop {
        if let Some(guard) = mutex.try_lock() {
            return guard;
        }
        sleep(TRY);
    }
}

/// As [`lock`], of a lock that others share.
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    if scheduler().is_none() {
        return lock.write();
    }
    loop {
        if let Some(guard) = lock.try_write() {
            return guard;
        }
        sleep(TRY);
    }
}

/// As [`lock`], but gives up after `timeout`.
pub fn try_lock_for<T>(mutex: &Mutex<T>, timeout: Duration) -> Option<MutexGuard<'_, T>> {
    if scheduler().is_none() {
        return mutex.try_lock_for(timeout);
    }
    let until = now() + timeout;
    loop {
        if let Some(guard) = mutex.try_lock() {
            return Some(guard);
        }
        if now() >= until {
            return None;
        }
        sleep(TRY);
    }
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

/// As [`JoinHandle::join`].
///
/// # Errors
/// If the thread panicked.
pub fn join(handle: JoinHandle<()>) -> thread::Result<()> {
    if let Some(scheduler) = scheduler() {
        while !scheduler.has_ended(handle.thread().id()) {
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
