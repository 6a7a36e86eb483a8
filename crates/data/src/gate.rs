//! Waits on the object store: for a place among those that may ask it, and for what was asked.
//!
//! What must stay true: who waits for a place is patient as long as the store serves others; who
//! waits for an answer is as long as somebody waits for him.

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

use crate::flight::LOOK;

/// How many may ask the store at once for one kind of thing.
#[derive(Debug)]
pub(crate) struct Gate {
    places: Semaphore,
    /// When the store last did it.
    served: Mutex<Instant>,
}

impl Gate {
    pub(crate) fn new(places: usize) -> Self {
        Self { places: Semaphore::new(places.max(1)), served: Mutex::new(Instant::now()) }
    }

    pub(crate) fn served(&self) {
        *self.served.lock() = Instant::now();
    }

    /// A place, or why there is none. Waits until the store has served nobody for `patience`.
    pub(crate) async fn place(&self, patience: Duration) -> Result<SemaphorePermit<'_>, &'static str> {
        let mut place = pin!(self.places.acquire());
        loop {
            match timeout(patience, &mut place).await {
                Ok(permit) => return permit.map_err(|_| "the client is shutting down"),
                Err(_) if self.served.lock().elapsed() < patience => {}
                Err(_) => return Err("nothing that was asked before is answered"),
            }
        }
    }
}

/// What `work` comes to; nothing if `gone` says before that nobody waits for it any more.
pub(crate) async fn until<F: Future + Unpin>(
    mut work: F,
    gone: &mut dyn FnMut() -> bool,
) -> Option<F::Output> {
    loop {
        match timeout(LOOK, &mut work).await {
            Ok(done) => return Some(done),
            Err(_) if gone() => return None,
            Err(_) => {}
        }
    }
}
