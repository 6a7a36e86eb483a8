//! One attempt to bring a batch through: read trips until every operation has decided, then one commit.
//!
//! A commit happens once. When its answer is lost the lane's writer record tells whether it happened, and until that
//! is known nothing else is tried.

use std::{
    hash::{BuildHasher as _, Hash},
    sync::{Arc, atomic::Ordering},
    thread,
    time::{Duration, Instant},
};

use rustc_hash::{FxBuildHasher, FxHashSet};
use sluice_types::FsError;

use super::{
    Batcher,
    ticket::{AnyTicket, Ran},
};
use crate::{
    announce::announce,
    engine::{Commit, EngineError, Expect, Found, Hold, Read, Step, Txn, Write},
    op::Lane,
    recall::{Recall, Sent},
    schema::{BURIED, Change, Counter, Key, Row, Session},
    view::{Batch, Outcome, View},
};

/// Why an attempt came to nothing.
pub(super) enum Failed {
    /// Nothing was committed: records changed under the operations at these places of the batch.
    Again { culprits: FxHashSet<usize> },
    /// Nothing was committed: the engine could not be asked.
    Unavailable(EngineError),
    /// Nothing was committed: the engine will not do it.
    Refused(EngineError),
    /// Whether it was committed could not be found out.
    Unknown(EngineError),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Unavailable { .. } => Self::Unavailable(error),
            EngineError::Indeterminate { .. } => Self::Unknown(error),
            EngineError::Conflict(_) => Self::Again { culprits: FxHashSet::default() },
            EngineError::Full(_) | EngineError::Corrupt { .. } | EngineError::Refused { .. } => {
                Self::Refused(error)
            }
        }
    }
}

/// How long a session lasts that came back before its heartbeat, seconds.
const UNTIL_HEARTBEAT: i64 = 300;

/// More trips than any operation needs, be it one that asks for each of the directories above another: a limit against
/// an operation that asks for ever.
const MAX_TRIPS: usize = 10_000;

/// Questions of a batch that is large.
const MANY: usize = 64;

impl Batcher {
    /// Brings a batch through, if it can from what was seen last, else from what the engine says; `again` if it met a
    /// conflict before.
    pub(super) fn attempt(&self, lane: u16, group: &[Arc<AnyTicket>], again: bool) -> Result<(), Failed> {
        if let Some(recall) = &self.env.recall
            && self.env.starts_from_recall
            && !again
        {
            match self.attempt_on(lane, group, Some(recall), again) {
                Err(Failed::Again { .. }) => {}
                ended => return ended,
            }
        }
        self.attempt_on(lane, group, None, again)
    }

    /// One attempt. With `recall` the first trip is saved if everything asked for was seen before.
    fn attempt_on(
        &self,
        lane: u16,
        group: &[Arc<AnyTicket>],
        recall: Option<&Recall>,
        again: bool,
    ) -> Result<(), Failed> {
        let mut txn = self.engine.begin(lane)?;
        let mut batch = Batch::new(&self.env);
        batch.again = again;
        let mut touched = Touched::default();
        let mut open: Vec<usize> = (0..group.len()).filter(|&at| !self.comes_too_late(&group[at])).collect();
        let mut recalled = false;
        for trip in 0.. {
            let round = decide(group, &mut batch, &mut open, &mut touched);
            if recalled && round.failed {
                // Only what the engine says may be a reason to fail.
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
            let seen = if trip == 0 { recall.and_then(|recall| recall.answer(&round.reads)) } else { None };
            if let Some(seen) = seen {
                recalled = true;
                batch.learn(round.reads, seen);
                continue;
            }
            self.fetch(txn.as_mut(), &mut batch, round.reads).map_err(|error| touched.blame(error))?;
        }
        let step = self.next_step(lane);
        // Whoever opens one of these files waits until this commit is over.
        let _doomed = batch.doomed.take();
        let Some(mut commit) = batch.into_commit(step) else {
            // Without a commit nothing would check what was recalled.
            return if recalled { Err(Failed::Again { culprits: FxHashSet::default() }) } else { Ok(()) };
        };
        let lost = self.numbers[usize::from(lane)].lost.load(Ordering::Relaxed);
        announce(&mut commit, self.news, lost);
        let sent = self.env.recall.as_ref().map(Recall::sent);
        let noted = self.note(step, group);
        match txn.commit(&commit) {
            Ok(()) => {
                self.committed(&commit, step, sent);
                if lost {
                    self.numbers[usize::from(lane)].lost.store(false, Ordering::Relaxed);
                }
            }
            Err(EngineError::Indeterminate { reason, .. }) => {
                tracing::warn!(%reason, "the answer to a commit was lost; finding out whether it happened");
                if let Some(recall) = &self.env.recall {
                    forget(recall, &commit);
                }
                let settled = self.settle(&commit, step, group);
                self.note_settled(step, noted, &settled);
                return settled;
            }
            Err(EngineError::Conflict(keys)) if keys.contains(&Key::Writer(step.writer, lane)) => {
                self.withdraw_note(noted);
                self.resynchronise(step)?;
                return Err(Failed::Again { culprits: FxHashSet::default() });
            }
            Err(error) => {
                self.withdraw_note(noted);
                if let (Some(recall), EngineError::Conflict(keys)) = (&self.env.recall, &error) {
                    recall.forget(keys);
                }
                return Err(touched.blame(error));
            }
        }
        Ok(())
    }

    /// Fails an operation that was asked for under locks that this client has lost since; whether it did.
    fn comes_too_late(&self, ticket: &AnyTicket) -> bool {
        let late = ticket.fences.is_some_and(|fences| fences < self.env.fences());
        if late {
            ticket.fail(FsError::LockLost);
        }
        late
    }

    /// Reads what the operations asked for. Fails with a conflict if records changed between two trips.
    fn fetch(&self, txn: &mut dyn Txn, batch: &mut Batch<'_>, reads: Vec<Read>) -> Result<(), EngineError> {
        let moment = self.env.recall.as_ref().map_or(0, Recall::moment);
        let found = txn.read(&reads)?;
        if let Some(recall) = &self.env.recall {
            recall.learn(&reads, &found, moment);
        }
        // Small batches take what they need.
        if reads.len() > MANY {
            batch.expect_many(2 * reads.len());
        }
        batch.learn(reads, found);
        let doubts = batch.doubts();
        if !doubts.is_empty() {
            let changed = batch.dispel(&txn.read(&doubts)?);
            if !changed.is_empty() {
                return Err(EngineError::Conflict(changed));
            }
        }
        if batch.torn.is_empty() {
            Ok(())
        } else {
            Err(EngineError::Conflict(std::mem::take(&mut batch.torn)))
        }
    }

    /// Takes note of a commit, and when it was sent if that is known.
    fn committed(&self, commit: &Commit, step: Step, sent: Option<Sent>) {
        self.reached(step.lane, step.to);
        match (&self.env.recall, sent) {
            (Some(recall), Some(sent)) => recall.committed(&commit.writes, sent),
            (Some(recall), None) => forget(recall, commit),
            (None, _) => {}
        }
        for write in &commit.writes {
            match write {
                Write::Count(Counter::UsedSpace, by) => self.env.counting().add(*by, 0),
                Write::Count(Counter::TotalInodes, by) => self.env.counting().add(0, *by),
                Write::Charge(key, space, inodes) => self.env.counting().charge(*key, *space, *inodes),
                Write::Insert(Row::Acl(id, rule)) => drop(self.env.learn_acl(*id, rule.clone())),
                Write::Put(Row::Node(dir, attr)) if attr.is_dir() => self.env.above.learn(*dir, attr.parent),
                Write::Put(Row::Sustained(sid, ino)) if *sid == self.env.sid => self.env.sustains(*ino, true),
                Write::Delete(Key::Sustained(sid, ino)) if *sid == self.env.sid => {
                    self.env.sustains(*ino, false);
                }
                _ => {}
            }
        }
    }

    fn next_step(&self, lane: u16) -> Step {
        let numbers = &self.numbers[usize::from(lane)];
        let from = numbers.reached.load(Ordering::Relaxed);
        let used = from.max(numbers.doubtful.load(Ordering::Relaxed));
        Step { writer: self.writer, lane, from, to: used + 1 }
    }

    fn reached(&self, lane: u16, n: u64) {
        self.numbers[usize::from(lane)].reached.store(n, Ordering::Relaxed);
    }

    /// Whether the commit with this number happened, or will, is unknown.
    fn doubt(&self, step: Step) {
        self.numbers[usize::from(step.lane)].doubtful.fetch_max(step.to, Ordering::Relaxed);
    }

    /// The answer to commit `lost` was lost. Tries to take the number *after* it in its stead: if that succeeds the
    /// lost commit can never happen any more; if it fails, the number found tells which of the two did.
    ///
    /// This goes on as long as anybody waits: to give up means that the operations may or may not have happened.
    fn settle(&self, commit: &Commit, lost: Step, group: &[Arc<AnyTicket>]) -> Result<(), Failed> {
        let step = Step { to: lost.to + 1, ..lost };
        self.doubt(step);
        let instead = Commit { step: Some(step), ..Commit::default() };
        self.note_void(lost, step);
        let again = || Failed::Again { culprits: FxHashSet::default() };
        for tries in 0.. {
            let taken = self.engine.begin(lost.lane).and_then(|txn| txn.commit(&instead));
            let error = match taken {
                Ok(()) => {
                    self.reached(step.lane, step.to);
                    return Err(again());
                }
                Err(error @ EngineError::Conflict(_)) => match self.stored_step(lost) {
                    Ok(Some(n)) if n == lost.to => return self.found_done(commit, lost, group),
                    // Neither happened yet: the conflict had another reason.
                    Ok(Some(n)) if n == lost.from => error,
                    Ok(Some(_)) => {
                        self.resynchronise(lost)?;
                        return Err(again());
                    }
                    Ok(None) => return self.settle_fenced(commit, lost, group),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            wait_or_give_up(tries, group, error)?;
        }
        Err(again())
    }

    /// A commit whose answer was lost has happened. It is not acknowledged before it is as safe as the answer would have
    /// said.
    fn found_done(&self, commit: &Commit, step: Step, group: &[Arc<AnyTicket>]) -> Result<(), Failed> {
        self.committed(commit, step, None);
        insist(group, || self.engine.harden())
    }

    /// [`Self::settle`] after somebody took this client for dead and removed the number that would have told. A record
    /// that nobody else can have made tells as well if it is there, and that of a node if it is not: of a slice with one
    /// reference some engines keep none. Where nothing tells, the commit is sent again as it is: it states what it found
    /// and removes or replaces that, so that it cannot happen twice.
    fn settle_fenced(&self, commit: &Commit, lost: Step, group: &[Arc<AnyTicket>]) -> Result<(), Failed> {
        insist(group, || self.resynchronise(lost))?;
        let own = commit.writes.iter().filter_map(|write| match write {
            Write::Insert(row @ (Row::Node(..) | Row::SliceRef(..))) => Some(row.key()),
            _ => None,
        });
        if let Some(key) = own.max_by_key(|key| matches!(key, Key::Node(_))) {
            let found = insist(group, || self.engine.read(&[Read::Get(key.clone(), Hold::None)]))?;
            if let [Found::Row(Some(_))] = found.as_slice() {
                return self.found_done(commit, lost, group);
            }
            if let Key::Node(_) = key {
                return Err(Failed::Again { culprits: FxHashSet::default() });
            }
        }
        let unknown = || EngineError::Indeterminate {
            engine: self.engine.name().into(),
            reason: "this client was taken for dead before it was known whether the commit happened".into(),
        };
        if group.iter().any(|ticket| self.comes_too_late(ticket)) {
            return Err(Failed::Unknown(unknown()));
        }
        let step = self.next_step(lost.lane);
        let again = Commit { step: Some(step), ..commit.clone() };
        self.note(step, group);
        let error = match self.engine.begin(lost.lane).and_then(|txn| txn.commit(&again)) {
            Ok(()) => {
                self.committed(commit, step, None);
                return Ok(());
            }
            Err(EngineError::Conflict(_)) => unknown(),
            Err(error) => error,
        };
        // Whatever became of this one, the first is unknown.
        self.doubt(step);
        Err(Failed::Unknown(error))
    }

    /// What the engine holds as the number of the last commit of a lane.
    fn stored_step(&self, step: Step) -> Result<Option<u64>, EngineError> {
        let read = Read::Get(Key::Writer(step.writer, step.lane), Hold::None);
        Ok(match self.engine.read(&[read])?.pop() {
            Some(Found::Row(Some(Row::Writer(_, _, n)))) => Some(n),
            _ => None,
        })
    }

    /// The engine's number is not ours: either it lost commits, or somebody took this process for dead and removed
    /// its records. Both are reported, and the lane goes on from what the engine holds.
    fn resynchronise(&self, step: Step) -> Result<(), EngineError> {
        if let Some(n) = self.stored_step(step)? {
            if n < step.from {
                let lost = step.from - n;
                tracing::error!(
                    lane = step.lane,
                    lost,
                    "the metadata engine lost commits it had acknowledged"
                );
                // Others have seen these numbers: given out again they would look known, and so would the records that
                // were taken back.
                self.doubt(Step { to: step.from, ..step });
                self.numbers[usize::from(step.lane)].lost.store(true, Ordering::Relaxed);
            }
            self.reached(step.lane, n);
            return Ok(());
        }
        let mut commit = Commit {
            step: None,
            expects: vec![Expect::Absent(Key::Writer(step.writer, step.lane))],
            writes: vec![Write::Insert(Row::Writer(step.writer, step.lane, step.to))],
        };
        // The session went with the records of all lanes. It comes back with the first of them, which tells the others
        // that it was counted; the next heartbeat completes it.
        let _fence = self.fence.lock();
        let session = Read::Get(Key::Session(step.writer), Hold::None);
        let found = self.engine.read(&[session])?.pop();
        let there =
            matches!(&found, Some(Found::Row(Some(Row::Session(_, session)))) if session.expire != BURIED);
        if !there {
            tracing::error!(
                sid = step.writer,
                "this client was taken for dead; its locks and open deleted files are lost"
            );
            self.env.fenced();
            let expire = self.env.clock.now().sec + UNTIL_HEARTBEAT;
            commit.writes.push(Write::Put(Row::Session(step.writer, Session { expire, info: None })));
        }
        self.doubt(step);
        // Nothing else was committed, and what expects that there is no record may be tried again.
        self.engine.begin(step.lane)?.commit(&commit).map_err(|error| match error {
            EngineError::Indeterminate { engine, reason } => EngineError::Unavailable { engine, reason },
            error => error,
        })?;
        self.reached(step.lane, step.to);
        Ok(())
    }

    /// The engine, or an operation, panicked while it worked for this lane: where the commit had got to, nobody knows.
    pub(super) fn panicked(&self, lane: u16) -> Failed {
        tracing::error!(lane, "a panic in the middle of a batch; please report this as a fault of sluice");
        self.doubt(self.next_step(lane));
        if let Some(recall) = &self.env.recall {
            recall.hear(&[Change::Any]);
        }
        let reason = "sluice broke off in the middle of it (see what it printed); please report this".into();
        Failed::Unknown(EngineError::Indeterminate { engine: self.engine.name().into(), reason })
    }
}

/// Forgets what a commit changed, or may have.
fn forget(recall: &Recall, commit: &Commit) {
    recall.forget(&commit.writes.iter().filter_map(Write::key).collect::<Vec<_>>());
}

/// Asks until there is an answer: until then it is unknown whether the commit of these operations happened.
fn insist<T>(group: &[Arc<AnyTicket>], mut ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, Failed> {
    let mut tries = 0;
    loop {
        match ask() {
            Ok(answer) => return Ok(answer),
            Err(error) => wait_or_give_up(tries, group, error)?,
        }
        tries += 1;
    }
}

/// Waits before the next question about a commit, or fails if nobody waits for the answer any more.
fn wait_or_give_up(tries: u32, group: &[Arc<AnyTicket>], error: EngineError) -> Result<(), Failed> {
    let now = Instant::now();
    if group.iter().all(|ticket| ticket.turn.interrupt.is_set() || now >= ticket.turn.until) {
        return Err(Failed::Unknown(error));
    }
    thread::sleep(Duration::from_millis(10 << tries.min(7)));
    Ok(())
}

/// How a round of decisions ended.
struct Round {
    /// What those that have not decided ask for.
    reads: Vec<Read>,
    /// Whether an operation failed.
    failed: bool,
}

/// Lets every open operation run on what is known.
fn decide(
    group: &[Arc<AnyTicket>],
    batch: &mut Batch<'_>,
    open: &mut Vec<usize>,
    touched: &mut Touched,
) -> Round {
    let mut failed = false;
    // In the order of the operations: they come in an order that makes sense to the engine. Should two questions have one
    // hash, the other is asked on the next trip.
    let (mut wanted, mut asked) = (Vec::new(), FxHashSet::default());
    let mut waiting: FxHashSet<Lane> = FxHashSet::default();
    open.retain(|&at| {
        let ticket = &group[at];
        let mut view = View::new(batch);
        let ran = ticket.run(&mut view);
        let outcome = view.into_outcome();
        match ran {
            Ran::More(reads) => {
                touched.reads(at, &reads);
                wanted.extend(reads.into_iter().filter(|read| asked.insert(hash(read))));
            }
            // Those that share a lane with one still waiting keep their order.
            _ if ticket.lanes.iter().any(|lane| waiting.contains(lane)) => {}
            Ran::Done => {
                touched.decided(at, &outcome);
                batch.accept(outcome);
                return false;
            }
            Ran::Failed => {
                failed = true;
                return false;
            }
        }
        waiting.extend(ticket.lanes.iter().copied());
        true
    });
    Round { reads: wanted, failed }
}

/// Which records each operation of a batch depends on: places in the batch and hashes of keys. Two keys of one hash cost
/// an innocent operation a turn alone, no more.
#[derive(Default)]
struct Touched(Vec<(usize, u64)>);

impl Touched {
    fn reads(&mut self, at: usize, reads: &[Read]) {
        self.0.extend(reads.iter().filter_map(|read| {
            let key = match read {
                Read::Get(key, hold) if *hold > Hold::None => hash(key),
                Read::Follow(dir, name, hold) if *hold > Hold::None => hash(&Key::Entry(*dir, name.clone())),
                Read::Names { dir, .. } => hash(&Key::Node(*dir)),
                _ => return None,
            };
            Some((at, key))
        }));
    }

    /// What it wrote and what it holds, be it that another operation asked for that.
    fn decided(&mut self, at: usize, outcome: &Outcome) {
        let held = outcome.held.iter().filter(|(_, hold)| *hold > Hold::None).map(|(key, _)| hash(key));
        let vacant = outcome.vacant.iter().map(|dir| hash(&Key::Node(*dir)));
        let written = outcome.writes.iter().filter_map(Write::key).map(|key| hash(&key));
        self.0.extend(held.chain(vacant).chain(written).map(|key| (at, key)));
    }

    /// Finds whose fault a failure is.
    fn blame(&self, error: EngineError) -> Failed {
        let EngineError::Conflict(keys) = error else { return error.into() };
        let broken: FxHashSet<u64> = keys.iter().map(hash).collect();
        let guilty = self.0.iter().filter(|(_, key)| broken.contains(key));
        Failed::Again { culprits: guilty.map(|(at, _)| *at).collect() }
    }
}

fn hash(thing: &impl Hash) -> u64 {
    FxBuildHasher.hash_one(thing)
}
