//! Waking a thread that waits for a request in read(2), so that it can stop reading.
//!
//! What must stay true: the signal reaches a thread only while it is in that call. No operation
//! ever sees it: not every wait is restarted after a signal.

use std::{
    sync::{
        Once,
        atomic::{AtomicU8, Ordering},
    },
    thread,
};

use rustix::{
    process::getpid,
    thread::{Pid, gettid},
};

/// It means something only to who asked for it, and is ignored by default.
const SIGNAL: libc::c_int = libc::SIGURG;

const BUSY: u8 = 0;
const READING: u8 = 1;
/// Somebody sends it the signal at this moment.
const CALLED: u8 = 2;
const RESTING: u8 = 3;

/// Where one reader is.
#[derive(Debug)]
pub(crate) struct Seat {
    thread: Pid,
    state: AtomicU8,
}

impl Seat {
    /// That of the calling thread.
    pub(crate) fn new() -> Self {
        Self { thread: gettid(), state: AtomicU8::new(BUSY) }
    }

    /// It is about to wait for a request: whether it may is to be asked after this.
    pub(crate) fn reading(&self) {
        self.state.store(READING, Ordering::SeqCst);
    }

    /// It waits no more.
    pub(crate) fn busy(&self) {
        let mut called = false;
        while let Err(CALLED) = self.state.compare_exchange(READING, BUSY, Ordering::SeqCst, Ordering::SeqCst)
        {
            called = true;
            thread::yield_now();
        }
        if called {
            // A signal that was sent comes at the end of a system call at the latest: this one.
            thread::yield_now();
        }
    }

    /// Nobody needs it, or somebody does again.
    pub(crate) fn rest(&self, resting: bool) {
        self.state.store(if resting { RESTING } else { BUSY }, Ordering::SeqCst);
    }

    /// Wakes it if it waits for a request; whether it has nothing to do any more. To be called
    /// until that is so, since it may have been on its way into the wait.
    pub(crate) fn wake(&self) -> bool {
        if self.state.compare_exchange(READING, CALLED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            signal(self.thread);
            self.state.store(READING, Ordering::SeqCst);
        }
        self.state.load(Ordering::SeqCst) == RESTING
    }
}

#[allow(unsafe_code)]
fn signal(thread: Pid) {
    static HANDLED: Once = Once::new();
    extern "C" fn nothing(_: libc::c_int) {}
    HANDLED.call_once(|| {
        // Without SA_RESTART: read(2) returns EINTR. SAFETY: all zeros is a valid `sigaction`; the
        // handler does nothing, which may be done at any moment.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as libc::sighandler_t;
            libc::sigaction(SIGNAL, &raw const action, std::ptr::null_mut());
        }
    });
    // SAFETY: the call takes three numbers. A thread that has ended meanwhile is not found.
    let _ = unsafe {
        libc::syscall(
            libc::SYS_tgkill,
            getpid().as_raw_nonzero().get(),
            thread.as_raw_nonzero().get(),
            SIGNAL,
        )
    };
}
