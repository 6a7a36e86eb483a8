//! Interrupts a thread that waits for a request in read(2), so that it stops reading.
//!
//! What must stay true: the signal reaches a thread only while it is in that call. No operation
//! gets the signal, because some system calls do not restart after one.

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

/// The kernel sends it only to processes that request it, and its default action is to be ignored.
const SIGNAL: libc::c_int = libc::SIGURG;

const BUSY: u8 = 0;
const READING: u8 = 1;
/// Another thread is sending it the signal.
const CALLED: u8 = 2;
const ASLEEP: u8 = 3;

/// The state of one reader.
#[derive(Debug)]
pub(crate) struct ReaderState {
    thread: Pid,
    state: AtomicU8,
}

impl ReaderState {
    /// The state of the calling thread.
    pub(crate) fn new() -> Self {
        Self { thread: gettid(), state: AtomicU8::new(BUSY) }
    }

    /// The reader is about to wait for a request. It must check whether it may after this call.
    pub(crate) fn reading(&self) {
        self.state.store(READING, Ordering::SeqCst);
    }

    /// The reader waits no more.
    pub(crate) fn busy(&self) {
        let mut called = false;
        while let Err(CALLED) = self.state.compare_exchange(READING, BUSY, Ordering::SeqCst, Ordering::SeqCst)
        {
            called = true;
            thread::yield_now();
        }
        if called {
            // A signal that was sent arrives at the end of a system call at the latest: of this
            // one.
            thread::yield_now();
        }
    }

    /// The reader begins to sleep, or ends its sleep.
    pub(crate) fn sleep(&self, asleep: bool) {
        self.state.store(if asleep { ASLEEP } else { BUSY }, Ordering::SeqCst);
    }

    /// Wakes the reader if it waits for a request. Returns whether it does not read any more.
    /// Repeat it until then, because the reader may have been about to wait.
    pub(crate) fn wake(&self) -> bool {
        if self.state.compare_exchange(READING, CALLED, Ordering::SeqCst, Ordering::SeqCst).is_ok() {
            signal(self.thread);
            self.state.store(READING, Ordering::SeqCst);
        }
        self.state.load(Ordering::SeqCst) == ASLEEP
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
