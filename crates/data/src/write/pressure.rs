//! Wakes the flusher thread when memory is short. Also stops the thread.

use std::{sync::OnceLock, time::Duration};

use parking_lot::{Condvar, Mutex};
use sluice_types::Scheduled;

/// The state of the signal.
#[derive(Default)]
pub(crate) struct Pressure {
    signal: Mutex<Signal>,
    woken: Condvar,
    /// What does the flusher's work, if it has no thread of its own.
    task: OnceLock<Scheduled>,
}

impl std::fmt::Debug for Pressure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.signal.lock())
    }
}

#[derive(Debug, Default)]
struct Signal {
    pressure: bool,
    stop: bool,
}

impl Pressure {
    /// Memory is short, so data must be uploaded.
    pub(super) fn wake(&self) {
        let mut signal = self.signal.lock();
        if !signal.pressure {
            signal.pressure = true;
            drop(signal);
            self.woken.notify_all();
            if let Some(task) = self.task.get() {
                task.wake();
            }
        }
    }

    /// From now on, `task` is woken.
    pub(super) fn wakes(&self, task: Scheduled) {
        // There is one flusher.
        let _ = self.task.set(task);
    }

    pub(super) fn stop(&self) {
        self.signal.lock().stop = true;
        self.woken.notify_all();
        if let Some(task) = self.task.get() {
            task.cancel();
        }
    }

    /// Whether memory is short, at this moment; `None` at the end.
    pub(super) fn take(&self) -> Option<bool> {
        self.wait(Duration::ZERO)
    }

    /// Waits until it is woken, at most `tick`. Returns whether memory is short; `None` ends the
    /// thread.
    pub(super) fn wait(&self, tick: Duration) -> Option<bool> {
        let mut signal = self.signal.lock();
        if !signal.pressure && !signal.stop && !tick.is_zero() {
            self.woken.wait_for(&mut signal, tick);
        }
        (!signal.stop).then(|| std::mem::take(&mut signal.pressure))
    }
}
