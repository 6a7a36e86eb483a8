//! Interrupts an operation for which no caller waits any more.
//!
//! What must stay true: a callback runs at most once, and never under a lock of this module. It
//! does not begin after its [`Registration`] was dropped, but may still be running then.

use std::sync::Arc;

use crate::call::Call;

/// Whether an operation was interrupted. Cheap to clone, may go to any thread.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<Call>);

impl Interrupt {
    pub(crate) fn new(call: &Arc<Call>) -> Self {
        Self(Arc::clone(call))
    }

    /// Whether no caller waits for the answer any more.
    pub fn is_set(&self) -> bool {
        self.0.is_interrupted()
    }

    /// Runs `callback` at the interrupt, or at once if it has happened. It runs on a thread that
    /// reads requests, so it should only wake another thread. If the registration is dropped, or
    /// the request answered, the callback is removed.
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
