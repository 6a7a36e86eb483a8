//! A condition variable for threads and tasks.

use std::{
    collections::BTreeMap,
    fmt,
    sync::atomic::{AtomicUsize, Ordering},
    task::Waker,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use crate::wait;

/// As [`parking_lot::Condvar`]; a task that waits leaves its thread to other tasks.
///
/// What must stay true: whoever changes what others wait for does so under the lock that they give
/// to [`Self::wait_for`], and notifies after that. So no change is missed.
#[derive(Default)]
pub struct Condvar {
    threads: parking_lot::Condvar,
    tasks: Mutex<Tasks>,
    /// Tasks that wait, so that nobody takes the lock for none.
    count: AtomicUsize,
}

/// Tasks that wait, in the order in which they began to.
#[derive(Default)]
struct Tasks {
    last: u64,
    waiting: BTreeMap<u64, Waker>,
}

impl Condvar {
    /// Waits until it is notified, at most `timeout`. It may also return early.
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) {
        let Some(task) = wait::task() else {
            self.threads.wait_for(guard, timeout);
            return;
        };
        let number = {
            let mut tasks = self.tasks.lock();
            tasks.last += 1;
            let number = tasks.last;
            tasks.waiting.insert(number, task);
            number
        };
        self.count.fetch_add(1, Ordering::SeqCst);
        MutexGuard::unlocked(guard, || wait::park_timeout(timeout));
        self.count.fetch_sub(1, Ordering::SeqCst);
        self.tasks.lock().waiting.remove(&number);
    }

    /// Lets all go on that wait.
    pub fn notify_all(&self) {
        self.threads.notify_all();
        if self.count.load(Ordering::SeqCst) > 0 {
            let waiting = std::mem::take(&mut self.tasks.lock().waiting);
            waiting.values().for_each(Waker::wake_by_ref);
        }
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Condvar({} tasks wait)", self.count.load(Ordering::Relaxed))
    }
}
