//! Waits for the object store: for a permit to send a request, and for the answer.
//!
//! What must stay true: a wait for a permit fails only if the store has answered no request at all
//! during the time limit. A wait for an answer ends when no caller waits any more.

use std::{
    future::Future,
    pin::pin,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tokio::{
    sync::{Semaphore, SemaphorePermit},
    time::timeout,
};

use crate::flight::CALLER_CHECK;

/// Limits how many requests of one kind run at once.
#[derive(Debug)]
pub(crate) struct RequestLimit {
    permits: Semaphore,
    /// When the store last answered a request.
    served: Mutex<Instant>,
}

impl RequestLimit {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: Semaphore::new(permits.max(1)), served: Mutex::new(Instant::now()) }
    }

    pub(crate) fn served(&self) {
        *self.served.lock() = Instant::now();
    }

    /// A permit, or the reason why there is none. Fails once the store has answered no request for
    /// `limit`.
    pub(crate) async fn permit(&self, limit: Duration) -> Result<SemaphorePermit<'_>, &'static str> {
        let mut permit = pin!(self.permits.acquire());
        loop {
            match timeout(limit, &mut permit).await {
                Ok(permit) => return permit.map_err(|_| "the client is shutting down"),
                Err(_) if self.served.lock().elapsed() < limit => {}
                Err(_) => return Err("nothing that was asked before is answered"),
            }
        }
    }
}

/// The result of `work`; `None` if `gone` returns first, because no caller waits any more.
pub(crate) async fn until<F: Future + Unpin>(
    mut work: F,
    gone: &mut dyn FnMut() -> bool,
) -> Option<F::Output> {
    loop {
        match timeout(CALLER_CHECK, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if gone() => return None,
            Err(_) => {}
        }
    }
}
