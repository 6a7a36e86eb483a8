//! The engine of one client: each request and each answer is delayed, and each call may fail.
//!
//! It guarantees no more than the contract: the records of a list have no order and may be of
//! different times, a listing may repeat entries, and a page may be empty. It never violates the
//! contract. A commit that it reports as failed did not happen and will not happen. A commit whose
//! answer is lost may have happened, may happen later, or may never happen.

use std::{sync::Arc, time::Duration};

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Expect, Found, Limits, Page, Read, Scan, Watch, Write,
    },
    schema::{Key, Notice},
};
use sluice_types::wait;

use crate::{plan::ClientPlan, world::World};

/// One way of a message, usually.
const WAY: Duration = Duration::from_micros(50);
/// Until a client notices that there is no answer.
const SILENCE: Duration = Duration::from_millis(2);
/// How long a client waits for a dead engine: longer than any outage lasts. Whoever waits for such
/// a client asks again and again, and what a dead one waits for never comes.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(10);

/// The engine as one client sees it.
#[derive(Clone)]
pub(crate) struct SimEngine {
    world: Arc<World>,
    client: usize,
}

impl SimEngine {
    /// That of a client by its place in the plan.
    pub(crate) fn new(world: Arc<World>, client: usize) -> Self {
        Self { world, client }
    }

    fn way(&self) -> Duration {
        WAY * self.world.plan.clients[self.client].distance
    }

    /// The way there and back around something that only looks.
    fn ask<T>(&self, ask: impl FnOnce() -> Result<T, EngineError>) -> Result<T, EngineError> {
        self.world.sched.take_time(self.way());
        if !self.world.reaches(self.client) || self.world.sched.falls(self.world.plan.chances.read) {
            self.world.sched.take_time(SILENCE);
            return Err(unavailable());
        }
        let answer = ask()?;
        self.world.sched.take_time(self.way());
        if self.world.reaches(self.client) { Ok(answer) } else { Err(unavailable()) }
    }

    fn send(&self, lane: u16, commit: &Commit) -> Result<(), EngineError> {
        let (world, sched) = (&self.world, &self.world.sched);
        let chances = world.plan.chances;
        sched.take_time(self.way());
        if !world.reaches(self.client) || sched.falls(chances.unavailable) {
            sched.take_time(SILENCE);
            return Err(unavailable());
        }
        if sched.falls(chances.conflict) {
            return Err(EngineError::Conflict(self.some_keys(commit)));
        }
        if sched.falls(chances.lost_before) {
            sched.take_time(SILENCE);
            return Err(silence());
        }
        // Only a commit with a number is refused when it comes too late.
        if commit.step.is_some() && sched.falls(chances.late) {
            world.delay(self.client, lane, commit);
            sched.take_time(SILENCE);
            return Err(silence());
        }
        let answer = world.commit(self.client, lane, commit);
        sched.take_time(self.way());
        if sched.falls(chances.lost_after) || !world.reaches(self.client) {
            sched.take_time(SILENCE);
            return Err(silence());
        }
        answer
    }

    /// One of the keys that a commit could conflict on, or none.
    fn some_keys(&self, commit: &Commit) -> Vec<Key> {
        let expected = commit.expects.iter().map(Expect::key);
        let keys: Vec<Key> = expected.chain(commit.writes.iter().filter_map(Write::key)).collect();
        let chosen = self.world.sched.below(keys.len() as u64 + 1) as usize;
        keys.into_iter().nth(chosen).into_iter().collect()
    }
}

fn unavailable() -> EngineError {
    EngineError::Unavailable { engine: "sim".into(), reason: "nobody answers".into() }
}

fn silence() -> EngineError {
    EngineError::Indeterminate { engine: "sim".into(), reason: "the answer was lost".into() }
}

impl Engine for SimEngine {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn limits(&self) -> Limits {
        let ClientPlan { lanes, batch, .. } = self.world.plan.clients[self.client];
        Limits { lanes, batch, ..self.world.mem.limits() }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        Ok(())
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.ask(|| self.world.mem.read(reads))
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.send(commit.step.map_or(0, |step| step.lane), commit)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        let sched = &self.world.sched;
        if sched.below(8) == 0 {
            // The same place again, or the beginning.
            let next = Some(from.cloned().unwrap_or(Cursor(Vec::new())));
            return self.ask(|| Ok(Page { rows: Vec::new(), damaged: Vec::new(), next }));
        }
        // Small pages, so that much happens between them.
        let limit = limit.min(1 + sched.below(4) as usize);
        let mut page = self.ask(|| self.world.mem.scan(scan, from, limit))?;
        if matches!(scan, Scan::Entries { .. }) && sched.below(4) == 0 {
            page.rows.extend_from_within(..);
        }
        Ok(page)
    }

    fn sync(&self) -> Result<(), EngineError> {
        self.ask(|| Ok(()))
    }

    fn harden(&self) -> Result<(), EngineError> {
        self.ask(|| Ok(()))
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.ask(|| self.world.mem.remove_volume())
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        let inner = self.ask(|| self.world.mem.watch())?;
        Ok(Box::new(SimWatch { engine: self.clone(), inner }))
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.world.mem.change_log()
    }
}

struct SimWatch {
    engine: SimEngine,
    inner: Box<dyn Watch>,
}

impl Watch for SimWatch {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let world = &self.engine.world;
        let until = wait::now() + timeout;
        loop {
            if !world.reaches(self.engine.client) {
                return Err(unavailable());
            }
            let notice = self.inner.next(Duration::ZERO)?;
            let left = until.saturating_duration_since(wait::now());
            if !notice.is_empty() || left.is_zero() {
                return Ok(notice);
            }
            let waits = [Duration::from_micros(200), Duration::from_millis(2), timeout];
            world.sched.pass(left.min(waits[world.sched.below(3) as usize]));
        }
    }
}
