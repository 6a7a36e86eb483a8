//! A thread that shows that a client lives, for programs that hold a volume open without a mount.
//!
//! What must stay true: it has ended before the session ends, or its last heartbeat would put the
//! session back.

use std::{
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::Duration,
};

use sluice_types::wait;

use crate::{batch::Interrupt, meta::Meta};

/// The thread, while there is one.
pub(crate) struct Beater {
    stop: Interrupt,
    thread: JoinHandle<()>,
}

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
        let (stop, meta, pause) = (Interrupt::default(), Arc::downgrade(self), self.options.heartbeat);
        let heard = stop.clone();
        let thread = wait::spawn("heartbeat", move || beats(&meta, pause, &heard))?;
        *beater = Some(Beater { stop, thread });
        Ok(())
    }

    /// Ends the thread, after the heartbeat under way.
    pub(crate) fn stop_beating(&self) {
        let Some(Beater { stop, thread }) = self.beater.lock().take() else { return };
        stop.set();
        if thread.join().is_err() {
            tracing::error!("the thread of the heartbeats panicked");
        }
    }
}

fn beats(meta: &Weak<Meta>, pause: Duration, stop: &Interrupt) {
    loop {
        stop.sleep(pause);
        if stop.is_set() {
            return;
        }
        let Some(meta) = meta.upgrade() else { return };
        match meta.beat() {
            Ok(Ok(())) => {}
            Ok(Err(ended)) => return tracing::error!(%ended, "no more heartbeats"),
            Err(error) => tracing::warn!(%error, "the heartbeat failed; it is tried again"),
        }
    }
}
