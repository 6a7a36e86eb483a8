//! Interrupts: the caller no longer waits, because of a signal or a deadline.
//!
//! What must stay true: to set it wakes all who sleep on it, and never blocks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use crate::wait::{self, Waiter};

/// A request of the kernel, by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Its number, never used again.
    pub unique: u64,
    /// Whether the kernel sent it before, to a process that died.
    pub again: bool,
}

/// Set when the application gave up waiting (a signal). Cheap to clone; waits on it end when it is
/// set.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<InterruptState>);

#[derive(Default)]
struct InterruptState {
    set: AtomicBool,
    /// The request that it ends, if it has a number.
    asked: Option<Asked>,
    /// Those who wait, each as often as it attached.
    sleepers: Mutex<Vec<Waiter>>,
    /// Set together with this one.
    next: Mutex<Option<Interrupt>>,
}

impl Interrupt {
    /// An interrupt that is never set.
    pub fn never() -> Self {
        Self::default()
    }

    /// An interrupt of a request with a number.
    pub fn of_request(asked: Asked) -> Self {
        Self(Arc::new(InterruptState { asked: Some(asked), ..InterruptState::default() }))
    }

    /// The request that it belongs to.
    pub fn asked(&self) -> Option<Asked> {
        self.0.asked
    }

    /// Ends the waits of the operation it was given to.
    pub fn set(&self) {
        self.0.set.store(true, Ordering::SeqCst);
        self.0.sleepers.lock().iter().for_each(Waiter::unpark);
        if let Some(next) = self.0.next.lock().as_ref() {
            next.set();
        }
    }

    /// Makes `other` be set when this one is.
    pub fn forward(&self, other: &Self) {
        *self.0.next.lock() = Some(other.clone());
        if self.is_set() {
            other.set();
        }
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        self.0.set.load(Ordering::SeqCst)
    }

    /// Waits for `pause`, or less if it is set meanwhile.
    pub fn sleep(&self, pause: Duration) {
        self.attach();
        let until = wait::now() + pause;
        while !self.is_set() {
            let left = until.saturating_duration_since(wait::now());
            if left.is_zero() {
                break;
            }
            wait::park_timeout(left);
        }
        self.detach();
    }

    /// Makes the caller one that `set` wakes, until it detaches.
    pub fn attach(&self) {
        self.0.sleepers.lock().push(wait::current());
    }

    /// Undoes one `attach` of the caller.
    pub fn detach(&self) {
        let mut sleepers = self.0.sleepers.lock();
        if let Some(at) = sleepers.iter().rposition(Waiter::is_caller) {
            sleepers.swap_remove(at);
        }
    }
}

impl fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interrupt({})", self.is_set())
    }
}
