//! Telling an operation that nobody waits for it any more.
//!
//! What must stay true: a callback runs at most once, never under a lock of this module, and not after its
//! [`Registration`] was dropped, except that it may be running at that moment.

use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use parking_lot::Mutex;

use crate::call::Call;

type Callback = Box<dyn FnOnce() + Send>;

/// Whether a call was interrupted, and who wants to know.
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

    /// Forgets the callbacks of a call that is answered; they may own the call itself.
    pub(crate) fn clear(&self) {
        let list = std::mem::take(&mut self.waiting.lock().list);
        drop(list);
    }

    fn add(&self, callback: Callback) -> Option<u64> {
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

    fn remove(&self, id: u64) {
        let mut waiting = self.waiting.lock();
        let found = waiting.list.iter().position(|(other, _)| *other == id);
        let callback = found.map(|at| waiting.list.swap_remove(at));
        drop(waiting);
        drop(callback);
    }
}

/// A callback that panics must not take the reader with it.
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

/// Whether an operation was interrupted. Cheap to clone, may go to any thread.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Call>);

impl Interrupt {
    pub(crate) fn new(call: &Arc<Call>) -> Self {
        Self(Arc::clone(call))
    }

    /// Whether nobody waits for the answer any more.
    pub fn is_set(&self) -> bool {
        self.0.is_interrupted()
    }

    /// Has `callback` run when that happens, at once if it has. It runs on a thread that reads requests: it should
    /// wake somebody, not do the work. Dropping the registration takes it back, and so does answering the request.
    pub fn on_interrupt(&self, callback: impl FnOnce() + Send + 'static) -> Registration {
        let id = self.0.callbacks().add(Box::new(callback));
        Registration { call: Arc::clone(&self.0), id }
    }
}

/// A callback that waits for an interrupt, for as long as this lives.
#[derive(Debug)]
#[must_use = "dropping it takes the callback back"]
pub struct Registration {
    call: Arc<Call>,
    id: Option<u64>,
}

impl Registration {
    /// Leaves the callback there until the request is answered.
    pub fn until_answered(mut self) {
        self.id = None;
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.call.callbacks().remove(id);
        }
    }
}
