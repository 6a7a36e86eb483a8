//! Breaks an engine in every way the contract allows, by a seed.
//!
//! It never breaks the contract itself: a commit that it reports as not happened did not happen,
//! and a commit whose answer is lost may have happened, may happen later, or may never happen.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Expect, Found, Limits, Moment, Page, Read, Scan,
        Watch, Write,
    },
    schema::Key,
};
use sluice_types::Rng;

/// How often something goes wrong, in a thousand calls each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chances {
    /// A read, a page or a beginning is not answered.
    pub read: u16,
    /// A commit does not reach the engine, and the engine says so.
    pub unavailable: u16,
    /// A commit conflicts for no visible reason, on one of its keys or on none.
    pub conflict: u16,
    /// A commit happens and its answer is lost.
    pub lost_applied: u16,
    /// A commit does not happen and its answer is lost.
    pub lost: u16,
    /// A commit's answer is lost, and it reaches the engine only when a later one of its lane is
    /// begun or done.
    pub late: u16,
}

impl Chances {
    /// All of it, often.
    pub const ALL: Self =
        Self { read: 30, unavailable: 50, conflict: 50, lost_applied: 60, lost: 60, late: 60 };
}

/// What was broken so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected {
    /// Reads not answered.
    pub reads: u64,
    /// Commits refused as unavailable.
    pub unavailable: u64,
    /// Conflicts made up.
    pub conflicts: u64,
    /// Commits that happened without an answer.
    pub lost_applied: u64,
    /// Commits that did not happen, without an answer.
    pub lost: u64,
    /// Commits held back.
    pub late: u64,
    /// Of those, the ones that happened when they arrived.
    pub late_applied: u64,
    /// And the ones that were refused because of their number.
    pub late_refused: u64,
}

struct State {
    rng: Rng,
    chances: Chances,
    injected: Injected,
    /// Commits under way, with their lanes.
    late: Vec<(u16, Commit)>,
}

/// An engine that fails by a seed. Clones share the fault.
#[derive(Clone)]
pub struct Faulty {
    inner: Arc<dyn Engine>,
    state: Arc<Mutex<State>>,
}

enum Fault {
    Good,
    Unavailable,
    Conflict(Vec<Key>),
    LostApplied,
    Lost,
    Late,
}

impl Faulty {
    /// Breaks `inner` by `seed`; print the seed when a test fails.
    pub fn new(inner: Arc<dyn Engine>, seed: u64, chances: Chances) -> Self {
        let state =
            State { rng: Rng::seeded(seed), chances, injected: Injected::default(), late: Vec::new() };
        Self { inner, state: Arc::new(Mutex::new(state)) }
    }

    /// Changes the chances from now on; [`Chances::default`] breaks nothing.
    pub fn set(&self, chances: Chances) {
        self.state.lock().chances = chances;
    }

    /// What was broken so far.
    pub fn injected(&self) -> Injected {
        self.state.lock().injected
    }

    fn roll(&self, chance: u16) -> bool {
        self.state.lock().rng.below(1000) < u64::from(chance)
    }

    fn readable(&self) -> Result<(), EngineError> {
        let chance = self.state.lock().chances.read;
        if self.roll(chance) {
            self.state.lock().injected.reads += 1;
            return Err(self.unavailable("a read was broken on purpose"));
        }
        Ok(())
    }

    fn unavailable(&self, reason: &str) -> EngineError {
        EngineError::Unavailable { engine: self.inner.name().into(), reason: reason.into() }
    }

    fn fault(&self, commit: &Commit) -> Fault {
        let mut state = self.state.lock();
        let State { rng, chances, injected, .. } = &mut *state;
        let mut roll = rng.below(1000) as u16;
        let mut falls = |chance: u16| {
            let hit = roll < chance;
            roll = roll.saturating_sub(if hit { 0 } else { chance });
            hit
        };
        if falls(chances.unavailable) {
            injected.unavailable += 1;
            return Fault::Unavailable;
        }
        if falls(chances.conflict) {
            injected.conflicts += 1;
            let keys = keys(commit);
            let pick = rng.below(keys.len() as u64 + 1) as usize;
            return Fault::Conflict(keys.into_iter().nth(pick).into_iter().collect());
        }
        if falls(chances.lost_applied) {
            injected.lost_applied += 1;
            return Fault::LostApplied;
        }
        if falls(chances.lost) {
            injected.lost += 1;
            return Fault::Lost;
        }
        // Only a commit with a number is refused when it comes too late.
        if commit.step.is_some() && falls(chances.late) {
            injected.late += 1;
            return Fault::Late;
        }
        Fault::Good
    }

    /// Delivers what was held back in `lane`.
    fn deliver(&self, lane: u16) {
        let late: Vec<Commit> = {
            let mut state = self.state.lock();
            let (mine, others) = std::mem::take(&mut state.late).into_iter().partition(|(at, _)| *at == lane);
            state.late = others;
            mine.into_iter().map(|(_, commit): (u16, Commit)| commit).collect()
        };
        for commit in late {
            let answer = self.inner.commit(&commit);
            let injected = &mut self.state.lock().injected;
            match answer {
                Ok(()) => injected.late_applied += 1,
                Err(_) => injected.late_refused += 1,
            }
        }
    }
}

/// Keys that a commit could conflict on, but for its number.
fn keys(commit: &Commit) -> Vec<Key> {
    let expects = commit.expects.iter().map(Expect::key);
    let writes = commit.writes.iter().filter_map(|write| match write {
        Write::Insert(row) | Write::Put(row) => Some(row.key()),
        Write::Delete(key) => Some(key.clone()),
        Write::Bump { ino, .. } => Some(Key::Node(*ino)),
        _ => None,
    });
    expects.chain(writes).collect()
}

impl Engine for Faulty {
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
        self.readable()?;
        self.inner.read(reads)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.commit_at(commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        self.readable()?;
        self.inner.read_at(reads, moment)
    }

    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        let lane = commit.step.map_or(0, |step| step.lane);
        if self.roll(500) {
            self.deliver(lane);
        }
        let silence = |reason: &str| EngineError::Indeterminate {
            engine: self.inner.name().into(),
            reason: reason.into(),
        };
        let answer = match self.fault(commit) {
            Fault::Good => self.inner.commit_at(commit, moment),
            Fault::Unavailable => Err(self.unavailable("a commit was broken on purpose")),
            Fault::Conflict(keys) => Err(EngineError::Conflict(keys)),
            // A commit that is refused tells so, or is lost too.
            Fault::LostApplied => self.inner.commit_at(commit, moment).and(Err(silence("it happened"))),
            Fault::Lost => Err(silence("it did not happen")),
            Fault::Late => {
                self.state.lock().late.push((lane, commit.clone()));
                return Err(silence("it will arrive later"));
            }
        };
        if self.roll(500) {
            self.deliver(lane);
        }
        answer
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.readable()?;
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
