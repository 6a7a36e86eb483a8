//! One attempt to run a batch: reads until every operation has decided, then one commit.
//!
//! A commit happens at most once. If its answer is lost, the writer record of the lane tells
//! whether it happened. Until that is known, nothing else is tried.

use std::{
    hash::{BuildHasher as _, Hash},
    sync::{Arc, atomic::Ordering},
};

use rustc_hash::{FxBuildHasher, FxHashSet};
use sluice_types::FsError;

use super::{
    Batcher,
    failed::Failed,
    queued_op::{AnyQueuedOp, Ran},
    steps::forget,
};
use crate::{
    announce::announce,
    engine::{EngineError, Hold, Moment, Read, Write},
    fact::Fact,
    op::ConflictKey,
    outcome::Outcome,
    record_cache::RecordCache,
    schema::{Change, Counter, Key},
    view::{Batch, View},
    want::Want,
};

/// A limit on the trips of a batch. Even an operation that reads one ancestor of a directory after
/// the other needs fewer. It stops an operation that never ends.
const MAX_TRIPS: usize = 10_000;

/// Reads of a large batch.
const MANY: usize = 64;

impl Batcher {
    /// Runs a batch on cached records if possible, else on those of the engine. A commit compares
    /// the cached records; reads alone have none, so they need those of the engine. `again` says
    /// that the batch had a conflict before.
    pub(super) fn attempt(&self, lane: u16, group: &[Arc<AnyQueuedOp>], again: bool) -> Result<(), Failed> {
        if let Some(record_cache) = &self.env.record_cache
            && self.env.starts_from_cache
            && !self.reads
            && !again
        {
            match self.attempt_on(lane, group, Some(record_cache), again) {
                Err(Failed::Again { .. }) => {}
                ended => return ended,
            }
        }
        self.attempt_on(lane, group, None, again)
    }

    /// One attempt. With `record_cache`, the first trip is saved if everything that is requested is
    /// cached.
    fn attempt_on(
        &self,
        lane: u16,
        group: &[Arc<AnyQueuedOp>],
        record_cache: Option<&RecordCache>,
        again: bool,
    ) -> Result<(), Failed> {
        let mut moment = Moment::default();
        let mut batch = Batch::new(&self.env);
        batch.again = again;
        let mut touched = Touched::default();
        let mut open: Vec<usize> = (0..group.len()).filter(|&at| !self.comes_too_late(&group[at])).collect();
        let mut cached = false;
        for trip in 0.. {
            let round = decide(group, &mut batch, &mut open, &mut touched);
            if cached && round.failed {
                // Only records of the engine may be a reason to fail.
                return Err(Failed::Again { culprits: FxHashSet::default() });
            }
            if open.is_empty() {
                break;
            }
            if trip == MAX_TRIPS {
                let error =
                    FsError::io("an operation asks without end; please report this as a fault of sluice");
                open.drain(..).for_each(|at| group[at].fail(error.clone()));
                break;
            }
            let seen = if trip == 0 {
                record_cache.and_then(|record_cache| record_cache.answer(&round.wants))
            } else {
                None
            };
            if let Some(seen) = seen {
                cached = true;
                batch.learn(Want::split(round.wants), seen);
                continue;
            }
            self.fetch(&mut moment, &mut batch, round.wants).map_err(|error| touched.blame(error))?;
        }
        let learned = std::mem::take(&mut batch.learned);
        let above: Vec<_> = learned.iter().filter_map(Fact::place).collect();
        self.env.learn(learned);
        let step = self.next_step(lane);
        // A thread that opens one of these files waits until this commit is over.
        let _pending_deletes = batch.pending_deletes.take();
        let Some(mut commit) = batch.into_commit(step) else {
            // Without a commit, nothing would check the cached records.
            return if cached { Err(Failed::Again { culprits: FxHashSet::default() }) } else { Ok(()) };
        };
        let lost = self.numbers[usize::from(lane)].lost.load(Ordering::Relaxed);
        announce(&mut commit, self.notices, lost);
        let sent = self.env.record_cache.as_ref().map(RecordCache::sent);
        let logged = self.log_effects(step, group);
        match self.engine.commit_at(&commit, moment) {
            Ok(()) => {
                self.committed(&commit, step, sent);
                self.learn_places(&commit, above);
                if lost {
                    self.numbers[usize::from(lane)].lost.store(false, Ordering::Relaxed);
                }
            }
            Err(EngineError::Indeterminate { reason, .. }) => {
                self.counts.retries.lost_answer.add(1);
                tracing::warn!(%reason, "the answer to a commit was lost; finding out whether it happened");
                if let Some(record_cache) = &self.env.record_cache {
                    forget(record_cache, &commit);
                }
                let resolved = self.resolve_commit(&commit, step, group);
                self.log_resolved(step, logged, &resolved);
                return resolved;
            }
            Err(EngineError::Conflict(keys)) if keys.contains(&Key::Writer(step.writer, lane)) => {
                self.withdraw_effects(logged);
                self.resynchronise(step)?;
                return Err(Failed::Again { culprits: FxHashSet::default() });
            }
            Err(error) => {
                self.withdraw_effects(logged);
                if let EngineError::Conflict(keys) = &error {
                    if let Some(record_cache) = &self.env.record_cache {
                        record_cache.forget(keys);
                    }
                    if keys.contains(&Key::Counter(Counter::DirMoves)) {
                        self.env.parents.forget();
                    }
                }
                return Err(touched.blame(error));
            }
        }
        Ok(())
    }

    /// Reads what the operations requested. Fails with a conflict if records changed between two
    /// trips.
    fn fetch(&self, at: &mut Moment, batch: &mut Batch<'_>, wants: Vec<Want>) -> Result<(), EngineError> {
        let moment = self.env.record_cache.as_ref().map_or(0, RecordCache::moment);
        let (reads, holds) = Want::split(wants);
        let found = self.engine.read_at(&reads, at)?;
        if let Some(record_cache) = &self.env.record_cache {
            record_cache.learn(&reads, &found, moment);
        }
        // Small batches take what they need.
        if reads.len() > MANY {
            batch.expect_many(2 * reads.len());
        }
        batch.learn((reads, holds), found);
        let dangling = batch.dangling();
        if !dangling.is_empty() {
            let changed = batch.recheck_dangling(&self.engine.read_at(&dangling, at)?);
            if !changed.is_empty() {
                return Err(EngineError::Conflict(changed));
            }
        }
        if batch.unrepeatable.is_empty() {
            Ok(())
        } else {
            Err(EngineError::Conflict(std::mem::take(&mut batch.unrepeatable)))
        }
    }

    /// The engine or an operation panicked while it worked for this lane. It is unknown whether the
    /// commit happened.
    pub(super) fn panicked(&self, lane: u16) -> Failed {
        tracing::error!(lane, "a panic in the middle of a batch; please report this as a fault of sluice");
        self.doubt(self.next_step(lane));
        if let Some(record_cache) = &self.env.record_cache {
            record_cache.hear(&[Change::Any]);
        }
        let reason = "sluice broke off in the middle of it (see what it printed); please report this".into();
        Failed::Unknown(EngineError::Indeterminate { engine: self.engine.name().into(), reason })
    }
}

/// How a round of decisions ended.
struct Round {
    /// The reads that undecided operations request.
    wants: Vec<Want>,
    /// Whether an operation failed.
    failed: bool,
}

/// Runs every undecided operation on what is known.
fn decide(
    group: &[Arc<AnyQueuedOp>],
    batch: &mut Batch<'_>,
    open: &mut Vec<usize>,
    touched: &mut Touched,
) -> Round {
    let mut failed = false;
    // In the order of the operations, which suits the engine. If two reads have the same hash, the
    // second one goes on the next trip.
    let (mut wanted, mut asked) = (Vec::new(), FxHashSet::default());
    let mut waiting: FxHashSet<ConflictKey> = FxHashSet::default();
    open.retain(|&at| {
        let op = &group[at];
        let mut view = View::new(batch);
        let ran = op.run(&mut view);
        let outcome = view.into_outcome();
        match ran {
            Ran::More(wants) => {
                touched.wants(at, &wants);
                wanted.extend(wants.into_iter().filter(|want| asked.insert(hash(want))));
            }
            // Operations that share a conflict key with one still waiting keep their order.
            _ if op.conflict_keys.iter().any(|key| waiting.contains(key)) => {}
            Ran::Done => {
                touched.decided(at, &outcome);
                batch.accept(outcome);
                return false;
            }
            Ran::Failed => {
                // The commit does not compare the parents of directories.
                let lasting = outcome.learned.into_iter().filter(|fact| fact.place().is_none());
                batch.learned.extend(lasting);
                failed = true;
                return false;
            }
        }
        waiting.extend(op.conflict_keys.iter().copied());
        true
    });
    Round { wants: wanted, failed }
}

/// Which records each operation of a batch depends on: its index in the batch, and hashes of keys.
/// If two keys have the same hash, an innocent operation runs alone once, no more.
#[derive(Default)]
struct Touched(Vec<(usize, u64)>);

impl Touched {
    fn wants(&mut self, at: usize, wants: &[Want]) {
        self.0.extend(wants.iter().filter_map(|Want { read, hold }| {
            let key = match read {
                Read::Get(key) if *hold > Hold::None => hash(key),
                Read::Follow(dir, name) if *hold > Hold::None => hash(&Key::Entry(*dir, name.clone())),
                Read::Names { dir, .. } => hash(&Key::Node(*dir)),
                _ => return None,
            };
            Some((at, key))
        }));
    }

    /// Adds what it wrote and what it holds, even if another operation read that.
    fn decided(&mut self, at: usize, outcome: &Outcome) {
        let held = outcome.held.iter().filter(|(_, hold)| *hold > Hold::None).map(|(key, _)| hash(key));
        let empty_dirs = outcome.empty_dirs.iter().map(|dir| hash(&Key::Node(*dir)));
        let written = outcome.writes.iter().filter_map(Write::key).map(|key| hash(&key));
        self.0.extend(held.chain(empty_dirs).chain(written).map(|key| (at, key)));
    }

    /// Finds the operations that caused a failure.
    fn blame(&self, error: EngineError) -> Failed {
        let EngineError::Conflict(keys) = error else { return error.into() };
        // All operations under a quota depend on these, so none of them is the cause.
        let common = |key: &&Key| matches!(key, Key::Counter(Counter::DirMoves) | Key::Quota(_));
        let broken: FxHashSet<u64> = keys.iter().filter(|key| !common(key)).map(hash).collect();
        let guilty = self.0.iter().filter(|(_, key)| broken.contains(key));
        Failed::Again { culprits: guilty.map(|(at, _)| *at).collect() }
    }
}

fn hash(thing: &impl Hash) -> u64 {
    FxBuildHasher.hash_one(thing)
}
