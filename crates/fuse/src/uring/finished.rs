//! Answers that were given on other threads than the one that serves the ring.
//!
//! What must stay true: the thread that serves the ring either sees an answer before it waits, or
//! is woken.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
    sync::atomic::{AtomicBool, Ordering},
};

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

/// Answers that are to be passed to the kernel.
#[derive(Debug)]
pub(crate) struct Finished {
    list: Mutex<Vec<Answered>>,
    any: AtomicBool,
    /// Whether the thread of the ring waits.
    waits: AtomicBool,
    event: OwnedFd,
}

/// A slot whose memory has the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub(crate) slot: u32,
    /// The number of the request.
    pub(crate) unique: u64,
}

impl Finished {
    pub(crate) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { list: Mutex::default(), any: false.into(), waits: false.into(), event })
    }

    pub(crate) fn event(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    pub(crate) fn add(&self, answered: Answered) {
        self.list.lock().push(answered);
        self.any.store(true, Ordering::SeqCst);
        if self.waits.swap(false, Ordering::SeqCst) {
            self.wake();
        }
    }

    /// Wakes the thread of the ring.
    pub(crate) fn wake(&self) {
        if let Err(why) = rustix::io::write(&self.event, &1_u64.to_ne_bytes()) {
            tracing::error!("cannot wake the thread of a FUSE ring: {why}");
        }
    }

    pub(crate) fn take(&self) -> Vec<Answered> {
        if self.any.load(Ordering::SeqCst) {
            self.any.store(false, Ordering::SeqCst);
            std::mem::take(&mut *self.list.lock())
        } else {
            Vec::new()
        }
    }

    /// The thread of the ring is about to wait; `false` if there is something to take first.
    pub(crate) fn may_wait(&self) -> bool {
        self.waits.store(true, Ordering::SeqCst);
        if self.any.load(Ordering::SeqCst) {
            self.waits.store(false, Ordering::SeqCst);
            return false;
        }
        true
    }

    /// It waits no more.
    pub(crate) fn waited(&self) {
        self.waits.store(false, Ordering::SeqCst);
    }
}
