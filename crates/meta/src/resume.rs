//! Takes over the session of a dead process. It takes its identity, makes its late commits fail,
//! and finds out which of its commits happened.
//!
//! What must stay true: once a session is taken over, no commit of the dead process can happen any
//! more. For each commit that was sent, it is known whether it happened, unless the client was
//! fenced.

use std::time::{Duration, Instant};

use sluice_types::wait;

use crate::{
    effect_log::{EffectLog, Resumed},
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Step, Write},
    options::Options,
    register::register,
    schema::{EXPIRED, Key, Row, Session, WriterId},
};

/// What became of a session that was taken up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TakenUp {
    /// Whether it was gone: others took the client for dead, and what it held is lost.
    pub fenced: bool,
    /// What each lane had reached before it was fenced.
    reached: Vec<u64>,
    voids: Vec<Vec<(u64, u64)>>,
}

impl TakenUp {
    /// Of a session that was gone.
    pub(crate) fn lost() -> Self {
        Self { fenced: true, ..Self::default() }
    }

    /// Whether commit `n` of `lane` happened; `None` if nobody knows.
    pub fn happened(&self, lane: u16, n: u64) -> Option<bool> {
        let lane = usize::from(lane);
        let reached = *self.reached.get(lane).filter(|_| !self.fenced)?;
        let void = |(from, to): &(u64, u64)| reached >= *to && (*from < n && n <= *to);
        Some(n <= reached && !self.voids[lane].iter().any(void))
    }
}

/// How a client begins.
#[derive(Default)]
pub(crate) struct Start {
    pub(crate) sid: u64,
    pub(crate) fences: i64,
    /// What each lane has reached; 0 where none is told.
    pub(crate) numbers: Vec<u64>,
    pub(crate) taken_up: Option<TakenUp>,
}

impl Start {
    /// With a new session, or that of a process that died.
    ///
    /// `logs` says whether the volume has a change log.
    pub(crate) fn of(engine: &dyn Engine, options: &Options, logs: bool) -> Result<Self, EngineError> {
        let Some(past) = &options.resume else {
            return Ok(Self { sid: register(engine, options, logs)?, ..Self::default() });
        };
        let fences = past.fences;
        if let Some(taken) = take_up(engine, options, past, options.effect_log.as_deref())? {
            tracing::info!(sid = past.sid, "the session of the last server goes on");
            let (numbers, taken_up) = (taken.numbers, Some(taken.outcome));
            return Ok(Self { sid: past.sid, fences, numbers, taken_up });
        }
        tracing::error!(
            sid = past.sid,
            "the session of this client expired; its locks and open deleted files are lost"
        );
        let taken_up = Some(TakenUp::lost());
        let sid = register(engine, options, logs)?;
        Ok(Self { sid, fences: fences + 1, numbers: Vec::new(), taken_up })
    }
}

/// A session that is this client's from now on.
struct Taken {
    /// What each lane has reached.
    numbers: Vec<u64>,
    outcome: TakenUp,
}

/// Takes a session up: renews it, and fences every lane. `None` if it is gone.
fn take_up(
    engine: &dyn Engine,
    options: &Options,
    past: &Resumed,
    effect_log: Option<&dyn EffectLog>,
) -> Result<Option<Taken>, EngineError> {
    let until = wait::now() + options.timeout;
    // Whoever found it expired would bury it between the lanes.
    if !retry(until, || renew(engine, options, past.sid))? {
        return Ok(None);
    }
    let lanes = (engine.limits().lanes.max(1)).max(past.lanes.len());
    let mut taken = Taken { numbers: Vec::new(), outcome: TakenUp::default() };
    for lane in 0..lanes as u16 {
        let known = past.lanes.get(usize::from(lane)).cloned().unwrap_or_default();
        let highest = known.voids.iter().map(|(_, to)| *to).fold(known.attempted, u64::max);
        let mut tried = None;
        let fenced = retry(until, || fence(engine, (past.sid, lane), highest, &mut tried, effect_log))?;
        let Some((before, now)) = fenced else { return Ok(None) };
        taken.numbers.push(now);
        taken.outcome.reached.push(before);
        taken.outcome.voids.push(known.voids);
    }
    Ok(Some(taken))
}

/// Renews a session; whether it is there.
fn renew(engine: &dyn Engine, options: &Options, sid: WriterId) -> Result<bool, EngineError> {
    let found = engine.read(&[Read::Get(Key::Session(sid))])?.pop();
    let Some(Found::Row(Some(Row::Session(_, session)))) = found else { return Ok(false) };
    if session.expire == EXPIRED {
        return Ok(false);
    }
    let expire = options.clock.now().sec + options.session_lifetime();
    let renewed = Session { expire, info: Some(options.info.to_json()) };
    let commit = Commit {
        step: None,
        expects: vec![Expect::Row(Row::Session(sid, session), Hold::Lock)],
        writes: vec![Write::Put(Row::Session(sid, renewed))],
    };
    engine.commit(&commit).map(|()| true)
}

/// Takes a number after all that the dead process gave to a commit, so that none of these happens
/// any more. What the lane had reached before, and what it has now; `None` if the session is gone.
/// `tried` keeps what was tried without an answer.
fn fence(
    engine: &dyn Engine,
    (sid, lane): (WriterId, u16),
    highest: u64,
    tried: &mut Option<(u64, u64)>,
    effect_log: Option<&dyn EffectLog>,
) -> Result<Option<(u64, u64)>, EngineError> {
    loop {
        let found = engine.read(&[Read::Get(Key::Writer(sid, lane))])?.pop();
        let mut commit = Commit::default();
        let Some(Found::Row(Some(Row::Writer(_, _, before)))) = found else {
            if highest > 0 || lane == 0 {
                return Ok(None);
            }
            // A lane that the dead process did not have.
            commit.expects.push(Expect::Absent(Key::Writer(sid, lane)));
            commit.writes.push(Write::Insert(Row::Writer(sid, lane, 0)));
            match engine.commit(&commit) {
                Err(EngineError::Conflict(_)) => continue,
                done => return done.map(|()| Some((0, 0))),
            }
        };
        // An answer of ours was lost.
        if let Some((from, to)) = *tried
            && to == before
        {
            return Ok(Some((from, to)));
        }
        let to = highest.max(before) + 1;
        commit.step = Some(Step { writer: sid, lane, from: before, to });
        if let Some(effect_log) = effect_log {
            effect_log.voids(lane, before, to);
        }
        match engine.commit(&commit) {
            Ok(()) => return Ok(Some((before, to))),
            Err(EngineError::Conflict(_)) => {}
            Err(EngineError::Indeterminate { .. }) => *tried = Some((before, to)),
            Err(error) => return Err(error),
        }
    }
}

/// Asks until the engine answers, or the timeout is over.
pub(crate) fn retry<T>(
    until: Instant,
    mut ask: impl FnMut() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    loop {
        match ask() {
            Err(
                error @ (EngineError::Unavailable { .. }
                | EngineError::Indeterminate { .. }
                | EngineError::Conflict(_)),
            ) => {
                if wait::now() >= until {
                    return Err(error);
                }
                wait::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_taken_in_stead_of_a_commit_is_not_its_own() {
        let mut taken = TakenUp { reached: vec![7], voids: vec![vec![(4, 6)]], fenced: false };
        let happened = |taken: &TakenUp| (4..=8).map(|n| taken.happened(0, n)).collect::<Vec<_>>();
        let known = |all: [bool; 5]| all.map(Some).to_vec();
        assert_eq!(happened(&taken), known([true, false, false, true, false]));
        // What was to be taken was not: the commit before it had happened.
        taken.reached = vec![5];
        assert_eq!(happened(&taken), known([true, true, false, false, false]));
        assert_eq!(taken.happened(1, 1), None, "no such lane");
        taken.fenced = true;
        assert_eq!(taken.happened(0, 4), None);
    }
}
