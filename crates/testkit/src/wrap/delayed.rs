//! Makes an engine slow, as one at the other end of a network is.

use std::{sync::Arc, thread, time::Duration};

use parking_lot::Mutex;
use sluice_meta::engine::{
    ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Moment, Page, Read, Scan, Watch,
};

/// How long calls take besides what the engine needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Delays {
    /// Before each read and each page.
    pub read: Duration,
    /// Before each commit reaches the engine.
    pub commit: Duration,
    /// Between a commit and its answer.
    pub answer: Duration,
}

impl Delays {
    /// Every trip takes `trip` longer.
    pub fn per_trip(trip: Duration) -> Self {
        Self { read: trip, commit: trip, answer: Duration::ZERO }
    }
}

/// An engine that takes its time. Clones share the delays.
#[derive(Clone)]
pub struct Delayed {
    inner: Arc<dyn Engine>,
    delays: Arc<Mutex<Delays>>,
}

impl Delayed {
    /// Slows `inner` down.
    pub fn new(inner: Arc<dyn Engine>, delays: Delays) -> Self {
        Self { inner, delays: Arc::new(Mutex::new(delays)) }
    }

    /// Changes the delays of all calls from now on.
    pub fn set(&self, delays: Delays) {
        *self.delays.lock() = delays;
    }

    fn delays(&self) -> Delays {
        *self.delays.lock()
    }
}

fn wait(pause: Duration) {
    if !pause.is_zero() {
        thread::sleep(pause);
    }
}

impl Engine for Delayed {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.inner.prepare()
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.read_at(reads, &mut Moment::default())
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        wait(self.delays().read);
        self.inner.read_at(reads, moment)
    }

    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        let delays = self.delays();
        wait(delays.commit);
        let answer = self.inner.commit_at(commit, moment);
        wait(delays.answer);
        answer
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        wait(self.delays().read);
        self.inner.scan(scan, from, limit)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.inner.sync()
    }

    fn harden(&self) -> Result<(), EngineError> {
        self.inner.harden()
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.inner.remove_volume()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.inner.watch()
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.inner.change_log()
    }
}
