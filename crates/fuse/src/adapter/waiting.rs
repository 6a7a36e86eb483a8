//! Requests that wait for locks: any number of requests on a few threads.
//!
//! What must stay true: each request is in the queue, or one thread tries it, or it has been
//! answered. No callback holds the lock of the state while it runs code of a request.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashMap;
use sluice_types::job;
use sluice_vfs::{LOCK_POLL_INTERVAL, Registered};

use crate::errno::{Errno, Result};

/// Most threads that try to acquire locks. A try takes one or two trips to the engine.
const MOST_THREADS: usize = 4;
/// How long a thread waits for work before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// A request that waits.
pub(super) struct Waiter {
    /// Tries to acquire the lock; `EAGAIN` if it is not free yet.
    pub(super) attempt: Box<dyn Fn() -> Result<bool> + Send>,
    /// Called with the result.
    pub(super) finish: Box<dyn FnOnce(Result<bool>) + Send>,
    /// Receives notices of releases, as long as the request waits.
    pub(super) registered: Option<Registered>,
}

/// Where a request is.
enum Progress {
    /// In the queue, to be tried then.
    Queued(Instant),
    /// A thread tries it. Whether a release was noticed, and an interrupt came, since the try
    /// began.
    Tried { released: bool, interrupted: bool },
}

#[derive(Default)]
struct State {
    next: u64,
    requests: FxHashMap<u64, Progress>,
    queue: BTreeMap<(Instant, u64), Waiter>,
    threads: usize,
    idle: usize,
}

/// All requests of a mount that wait for locks.
#[derive(Default)]
pub(super) struct Waiting {
    state: Mutex<State>,
    changed: Condvar,
}

impl Waiting {
    /// A number for a request that is going to wait.
    pub(super) fn number(&self) -> u64 {
        let mut state = self.state.lock();
        state.next += 1;
        state.next
    }

    /// Tries it now, and again at each notice of a release, until it is done or interrupted.
    pub(super) fn add(self: &Arc<Self>, id: u64, waiter: Waiter) {
        let mut state = self.state.lock();
        state.enqueue(id, waiter, Instant::now());
        if state.idle > 0 || state.threads >= MOST_THREADS {
            self.changed.notify_one();
            return;
        }
        let this = Arc::clone(self);
        match thread::Builder::new()
            .name("sluice-locks".into())
            .spawn(job("sluice-locks", move || this.serve()))
        {
            Ok(_) => state.threads += 1,
            Err(why) if state.threads == 0 => {
                tracing::error!("nobody can wait for a lock: {why}");
                Self::end(state, id, Errno::EIO);
            }
            Err(_) => {}
        }
    }

    /// The lock that a request waits for may be free.
    pub(super) fn lock_released(&self, id: u64) {
        let mut state = self.state.lock();
        match state.requests.get_mut(&id) {
            Some(Progress::Tried { released, .. }) => *released = true,
            Some(Progress::Queued(_)) => {
                if let Some(waiter) = state.take(id) {
                    state.enqueue(id, waiter, Instant::now());
                    self.changed.notify_one();
                }
            }
            None => {}
        }
    }

    /// No caller waits for the answer to a request any more.
    pub(super) fn interrupt(&self, id: u64) {
        let mut state = self.state.lock();
        if let Some(Progress::Tried { interrupted, .. }) = state.requests.get_mut(&id) {
            *interrupted = true;
            return;
        }
        Self::end(state, id, Errno::EINTR);
    }

    /// Ends a request in the queue.
    fn end(mut state: MutexGuard<'_, State>, id: u64, errno: Errno) {
        let waiter = state.take(id);
        state.requests.remove(&id);
        drop(state);
        if let Some(waiter) = waiter {
            waiter.end(Err(errno));
        }
    }

    fn serve(&self) {
        let mut state = self.state.lock();
        loop {
            match state.queue.first_key_value().map(|(key, _)| *key) {
                Some((at, id)) if at <= Instant::now() => Self::attempt(&mut state, id),
                Some((at, _)) => {
                    state.idle += 1;
                    self.changed.wait_until(&mut state, at);
                    state.idle -= 1;
                }
                None => {
                    state.idle += 1;
                    let rested = self.changed.wait_for(&mut state, IDLE_TIMEOUT).timed_out();
                    state.idle -= 1;
                    if rested && state.queue.is_empty() {
                        state.threads -= 1;
                        return;
                    }
                }
            }
        }
    }

    /// Tries a request that is in the queue.
    fn attempt(state: &mut MutexGuard<'_, State>, id: u64) {
        let Some(waiter) = state.take(id) else { return };
        state.requests.insert(id, Progress::Tried { released: false, interrupted: false });
        let tried = MutexGuard::unlocked(state, || {
            catch_unwind(AssertUnwindSafe(|| (waiter.attempt)())).unwrap_or(Err(Errno::EIO))
        });
        let Some(Progress::Tried { released, interrupted }) = state.requests.remove(&id) else { return };
        match tried {
            Err(Errno::EAGAIN) if interrupted => {
                MutexGuard::unlocked(state, || waiter.end(Err(Errno::EINTR)));
            }
            Err(Errno::EAGAIN) => {
                let pause = if released { Duration::ZERO } else { LOCK_POLL_INTERVAL };
                state.enqueue(id, waiter, Instant::now() + pause);
            }
            done => MutexGuard::unlocked(state, || waiter.end(done)),
        }
    }
}

impl State {
    fn enqueue(&mut self, id: u64, waiter: Waiter, at: Instant) {
        self.requests.insert(id, Progress::Queued(at));
        self.queue.insert((at, id), waiter);
    }

    /// Takes a request out of the queue.
    fn take(&mut self, id: u64) -> Option<Waiter> {
        let Some(Progress::Queued(at)) = self.requests.get(&id) else { return None };
        self.queue.remove(&(*at, id))
    }
}

impl Waiter {
    fn end(self, done: Result<bool>) {
        drop(self.registered);
        if catch_unwind(AssertUnwindSafe(|| (self.finish)(done))).is_err() {
            tracing::error!("the answer to a request for a lock panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Waits until `done`.
    #[track_caller]
    fn until(done: impl Fn() -> bool) {
        let end = Instant::now() + Duration::from_secs(30);
        while !done() {
            assert!(Instant::now() < end, "it takes too long");
            thread::yield_now();
        }
    }

    #[test]
    fn thousands_wait_on_few_threads_and_each_is_answered_once() {
        const MANY: usize = 5000;
        let waiting = Arc::<Waiting>::default();
        let (free, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let ids: Vec<u64> = (0..MANY)
            .map(|_| {
                let id = waiting.number();
                let (free, done) = (Arc::clone(&free), Arc::clone(&done));
                let take = |free: usize| free.checked_sub(1);
                let attempt = move || {
                    let took = free.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take);
                    took.map(|_| false).map_err(|_| Errno::EAGAIN)
                };
                let finish = move |answer: Result<bool>| done.lock().push((id, answer));
                let waiter =
                    Waiter { attempt: Box::new(attempt), finish: Box::new(finish), registered: None };
                waiting.add(id, waiter);
                id
            })
            .collect();
        assert!(waiting.state.lock().threads <= MOST_THREADS);
        let (gone, left) = ids.split_at(MANY / 2);
        for id in gone {
            waiting.interrupt(*id);
        }
        until(|| done.lock().len() == gone.len());
        assert!(done.lock().iter().all(|(_, answer)| *answer == Err(Errno::EINTR)));
        for granted in [10, left.len() - 10] {
            free.fetch_add(granted, Ordering::SeqCst);
            for id in left {
                waiting.lock_released(*id);
            }
            until(|| free.load(Ordering::SeqCst) == 0);
        }
        until(|| done.lock().len() == MANY);
        let mut answered = std::mem::take(&mut *done.lock());
        answered.sort_by_key(|(id, _)| *id);
        assert!(answered.iter().map(|(id, _)| id).eq(&ids));
        assert!(answered[gone.len()..].iter().all(|(_, answer)| *answer == Ok(false)));
        assert!(waiting.state.lock().requests.is_empty());
    }

    #[test]
    fn an_interrupt_during_a_try_ends_it_and_a_panic_is_an_error() {
        let waiting = Arc::<Waiting>::default();
        let done = Arc::new(Mutex::new(Vec::new()));
        let add = |attempt: Box<dyn Fn() -> Result<bool> + Send>| {
            let (id, done) = (waiting.number(), Arc::clone(&done));
            let finish = Box::new(move |answer| done.lock().push(answer));
            waiting.add(id, Waiter { attempt, finish, registered: None });
            id
        };
        let (begun, goes) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (begins, may) = (Arc::clone(&begun), Arc::clone(&goes));
        let id = add(Box::new(move || {
            begins.fetch_add(1, Ordering::SeqCst);
            until(|| may.load(Ordering::SeqCst) > 0);
            Err(Errno::EAGAIN)
        }));
        until(|| begun.load(Ordering::SeqCst) == 1);
        waiting.interrupt(id);
        assert!(done.lock().is_empty(), "it is being tried");
        goes.store(1, Ordering::SeqCst);
        until(|| *done.lock() == [Err(Errno::EINTR)]);
        add(Box::new(|| panic!("asked for")));
        until(|| *done.lock() == [Err(Errno::EINTR), Err(Errno::EIO)]);
    }
}
