//! What wakes the thread that sends data on its way.

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// What that thread is to know.
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
    /// Memory is short: something has to go.
    pub(super) fn kick(&self) {
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

    /// Waits for one of them, no longer than `tick`. Answers whether memory is short; `None` ends
    /// the thread.
    pub(super) fn wait(&self, tick: Duration) -> Option<bool> {
        let mut signal = self.signal.lock();
        if !signal.pressure && !signal.stop {
            self.woken.wait_for(&mut signal, tick);
        }
        (!signal.stop).then(|| std::mem::take(&mut signal.pressure))
    }
}
