//! Wakes the flusher thread when memory is short. Also stops the thread.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The state of the signal.
#[derive(Debug, Default)]
pub(crate) struct Pressure {
    signal: Mutex<Signal>,
    woken: Condvar,
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
            self.woken.notify_all();
        }
    }

    pub(super) fn stop(&self) {
        self.signal.lock().stop = true;
        self.woken.notify_all();
    }

    /// Waits until it is woken, at most `tick`. Returns whether memory is short; `None` ends the
    /// thread.
    pub(super) fn wait(&self, tick: Duration) -> Option<bool> {
        let mut signal = self.signal.lock();
        if !signal.pressure && !signal.stop {
            self.woken.wait_for(&mut signal, tick);
        }
        (!signal.stop).then(|| std::mem::take(&mut signal.pressure))
    }
}
