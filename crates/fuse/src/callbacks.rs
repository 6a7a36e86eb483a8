//! Callbacks for the interrupt of an operation.
//!
//! What must stay true: a callback runs at most once, and never under a lock of this module.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;

type Callback = Box<dyn FnOnce() + Send>;

/// Whether a call was interrupted, and the callbacks for that.
#[derive(Default)]
pub(crate) struct Callbacks {
    set: AtomicBool,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    list: Vec<(u64, Callback)>,
}

impl Callbacks {
    pub(crate) fn is_set(&self) -> bool {
        self.set.load(Ordering::Acquire)
    }

    /// Interrupts the call. A second time does nothing.
    pub(crate) fn trigger(&self) {
        let list = {
            let mut waiting = self.waiting.lock();
            self.set.store(true, Ordering::Release);
            std::mem::take(&mut waiting.list)
        };
        for (_, callback) in list {
            run(callback);
        }
    }

    /// Drops the callbacks of a call that is answered, because they may own the call itself.
    pub(crate) fn clear(&self) {
        let list = std::mem::take(&mut self.waiting.lock().list);
        drop(list);
    }

    pub(crate) fn add(&self, callback: Callback) -> Option<u64> {
        let mut waiting = self.waiting.lock();
        if self.is_set() {
            drop(waiting);
            run(callback);
            return None;
        }
        let id = waiting.next;
        waiting.next += 1;
        waiting.list.push((id, callback));
        Some(id)
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut waiting = self.waiting.lock();
        let found = waiting.list.iter().position(|(other, _)| *other == id);
        let callback = found.map(|at| waiting.list.swap_remove(at));
        drop(waiting);
        drop(callback);
    }
}

/// A callback that panics must not end the reader.
fn run(callback: Callback) {
    if catch_unwind(AssertUnwindSafe(callback)).is_err() {
        tracing::error!("what an interrupted FUSE operation asked to be run panicked");
    }
}

impl fmt::Debug for Callbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callbacks").field("set", &self.is_set()).finish_non_exhaustive()
    }
}
