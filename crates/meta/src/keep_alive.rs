//! Heartbeats of programs that hold a volume open without a mount.
//!
//! What must stay true: the last heartbeat has ended before the session ends. Otherwise the
//! heartbeat would write the record of the session again.

use std::sync::Arc;

use crate::{meta::Meta, periodic_thread::PeriodicThread};

impl Meta {
    /// Beats each heartbeat from a thread of its own, until the volume is closed: for programs that
    /// may take longer than a session lasts. It ends by itself if the volume is gone.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub fn keep_alive(self: &Arc<Self>) -> std::io::Result<()> {
        let mut beater = self.beater.lock();
        if self.sid() == 0 || beater.is_some() {
            return Ok(());
        }
        let meta = Arc::downgrade(self);
        *beater = Some(PeriodicThread::start(self.options.heartbeat, move || {
            meta.upgrade().is_some_and(|meta| meta.beats_on())
        })?);
        Ok(())
    }

    /// Ends the thread, after the heartbeat under way.
    pub(crate) fn stop_beating(&self) {
        let beater = self.beater.lock().take();
        if let Some(beater) = beater {
            beater.stop();
        }
    }

    /// One heartbeat; whether there are to be more.
    fn beats_on(&self) -> bool {
        match self.beat() {
            Ok(Ok(())) => {}
            Ok(Err(ended)) => {
                tracing::error!(%ended, "no more heartbeats");
                return false;
            }
            Err(error) => tracing::warn!(%error, "the heartbeat failed; it is tried again"),
        }
        true
    }
}
