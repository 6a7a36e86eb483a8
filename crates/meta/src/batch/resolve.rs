//! Finds out whether a commit happened, if its answer was lost.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use rustc_hash::FxHashSet;
use sluice_types::wait;

use super::{Batcher, failed::Failed, queued_op::AnyQueuedOp};
use crate::{
    engine::{Commit, EngineError, Expect, Found, Read, Step, Write},
    schema::{EXPIRED, Extra, Key, LastCommits, Row, Session},
};

/// How long a session lasts that came back before its heartbeat, seconds.
const UNTIL_HEARTBEAT: i64 = 300;

impl Batcher {
    /// The answer to commit `lost` was lost. Tries to take the number *after* it in its stead: if
    /// that succeeds the lost commit can never happen any more; if it fails, the number found tells
    /// which of the two did.
    ///
    /// This goes on as long as anybody waits: to give up means that the operations may or may not
    /// have happened.
    pub(super) fn resolve_commit(
        &self,
        commit: &Commit,
        lost: Step,
        group: &[Arc<AnyQueuedOp>],
    ) -> Result<(), Failed> {
        let step = Step { to: lost.to + 1, ..lost };
        self.doubt(step);
        let instead = Commit { step: Some(step), ..Commit::default() };
        self.note_void(lost, step);
        let again = || Failed::Again { culprits: FxHashSet::default() };
        for tries in 0.. {
            let taken = self.engine.commit(&instead);
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
                    Ok(None) => return self.resolve_expired(commit, lost, group),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            wait_or_give_up(tries, group, error)?;
        }
        Err(again())
    }

    /// A commit whose answer was lost has happened. It is not acknowledged before it is as safe as
    /// the answer would have said.
    fn found_done(&self, commit: &Commit, step: Step, group: &[Arc<AnyQueuedOp>]) -> Result<(), Failed> {
        self.committed(commit, step, None);
        // What the operations learned of places is lost with their attempt.
        self.env.parents.forget();
        retry(group, || self.engine.harden())
    }

    /// [`Self::resolve_commit`] after another client fenced this client. Whoever did it kept the
    /// number that tells.
    fn resolve_expired(&self, commit: &Commit, lost: Step, group: &[Arc<AnyQueuedOp>]) -> Result<(), Failed> {
        let last = Read::Get(Key::Extra(Extra::LastCommits, lost.writer));
        let found = retry(group, || self.engine.read(std::slice::from_ref(&last)))?;
        retry(group, || self.resynchronise(lost))?;
        let last = match &found[..] {
            [Found::Row(Some(Row::Extra(_, _, json)))] => LastCommits::parse(&json.0),
            _ => None,
        };
        match last.and_then(|last| last.lanes.get(&lost.lane).copied()) {
            Some(n) if n == lost.to => self.found_done(commit, lost, group),
            Some(_) => Err(Failed::Again { culprits: FxHashSet::default() }),
            None => Err(Failed::Unknown(EngineError::Indeterminate {
                engine: self.engine.name().into(),
                reason: "its session expired long ago, and nobody knows whether the commit happened".into(),
            })),
        }
    }

    /// What the engine holds as the number of the last commit of a lane.
    fn stored_step(&self, step: Step) -> Result<Option<u64>, EngineError> {
        let read = Read::Get(Key::Writer(step.writer, step.lane));
        Ok(match self.engine.read(&[read])?.pop() {
            Some(Found::Row(Some(Row::Writer(_, _, n)))) => Some(n),
            _ => None,
        })
    }

    /// The engine's number is not ours: either it lost commits, or another client fenced this
    /// client and removed its records. Both are reported, and the lane goes on from what the engine
    /// holds.
    pub(super) fn resynchronise(&self, step: Step) -> Result<(), EngineError> {
        if let Some(n) = self.stored_step(step)? {
            if n < step.from {
                let lost = step.from - n;
                tracing::error!(
                    lane = step.lane,
                    lost,
                    "the metadata engine lost commits it had acknowledged"
                );
                // Others have seen these numbers: given out again they would look known, and so
                // would the records that were taken back.
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
        // The session went with the records of all lanes. It comes back with the first of them,
        // which tells the others that it was counted; the next heartbeat completes it.
        let _fence = wait::lock(&self.fence);
        let session = Read::Get(Key::Session(step.writer));
        let found = self.engine.read(&[session])?.pop();
        let there =
            matches!(&found, Some(Found::Row(Some(Row::Session(_, session)))) if session.expire != EXPIRED);
        if !there {
            tracing::error!(
                sid = step.writer,
                "the session of this client expired; its locks and open deleted files are lost"
            );
            self.env.fenced();
            let expire = self.env.clock.now().sec + UNTIL_HEARTBEAT;
            commit.writes.push(Write::Put(Row::Session(step.writer, Session { expire, info: None })));
        }
        self.doubt(step);
        // Nothing else was committed, and what expects that there is no record may be tried again.
        self.engine.commit(&commit).map_err(|error| match error {
            EngineError::Indeterminate { engine, reason } => EngineError::Unavailable { engine, reason },
            error => error,
        })?;
        self.reached(step.lane, step.to);
        Ok(())
    }
}

/// Asks until there is an answer: until then it is unknown whether the commit of these operations
/// happened.
fn retry<T>(
    group: &[Arc<AnyQueuedOp>],
    mut ask: impl FnMut() -> Result<T, EngineError>,
) -> Result<T, Failed> {
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
fn wait_or_give_up(tries: u32, group: &[Arc<AnyQueuedOp>], error: EngineError) -> Result<(), Failed> {
    let now = wait::now();
    if group.iter().all(|op| op.submitter.interrupt.is_set() || now >= op.submitter.until) {
        return Err(Failed::Unknown(error));
    }
    wait::sleep(Duration::from_millis(10 << tries.min(7)));
    Ok(())
}
