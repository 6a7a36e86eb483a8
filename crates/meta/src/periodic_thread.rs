//! A thread that repeats a task until it is stopped.

use std::{thread::JoinHandle, time::Duration};

use sluice_types::wait;

use crate::batch::Interrupt;

/// The thread.
pub(crate) struct PeriodicThread {
    stop: Interrupt,
    thread: JoinHandle<()>,
}

impl PeriodicThread {
    /// Calls `beat` after each `pause` until it answers false.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(crate) fn start(
        pause: Duration,
        mut beat: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let stop = Interrupt::default();
        let heard = stop.clone();
        let thread = wait::spawn("heartbeat", move || {
            loop {
                heard.sleep(pause);
                if heard.is_set() || !beat() {
                    return;
                }
            }
        })?;
        Ok(Self { stop, thread })
    }

    /// Ends the thread, after the call under way.
    pub(crate) fn stop(self) {
        self.stop.set();
        if self.thread.join().is_err() {
            tracing::error!("the thread of the heartbeats panicked");
        }
    }
}
