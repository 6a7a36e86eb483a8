//! Creates a new session.

use std::time::Duration;

use sluice_types::wait;

use crate::{
    change_log::Line,
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Moment, Read, Write},
    env::REGISTERED,
    options::Options,
    schema::{Counter, Key, Row, Session},
};

/// Tries without a pause.
const AT_ONCE: u32 = 50;
/// Longest pause after that, milliseconds. It depends on the clock, so that clients which start at
/// the same moment do not all try again at the same moment.
const MOST_PAUSE: u64 = 200;

/// Registers a new session with its writer records, and returns its id. Tries again until the
/// timeout of the options while other clients do the same. `logs` says whether the volume has a
/// change log.
pub(crate) fn register(engine: &dyn Engine, options: &Options, logs: bool) -> Result<u64, EngineError> {
    let lanes = engine.limits().lanes.max(1) as u16;
    let until = wait::now() + options.timeout;
    let mut tries = 0;
    loop {
        let mut moment = Moment::default();
        let counters = [Counter::NextSession, Counter::DirMoves];
        let mut found = engine
            .read_at(&counters.map(|counter| Read::Get(Key::Counter(counter))), &mut moment)?
            .into_iter()
            .map(|found| if let Found::Row(row) = found { row } else { None });
        let (before, moves) = (found.next().flatten(), found.next().flatten());
        let last = if let Some(Row::Counter(_, last)) = before { last } else { 0 };
        let sid = last as u64 + 1;
        let now = options.clock.now();
        let expire = now.sec + options.session_lifetime();
        let info = options.info.to_json();
        let mut commit = Commit::default();
        commit.expects.push(match before {
            Some(row) => Expect::Row(row, Hold::Lock),
            None => Expect::Absent(Key::Counter(Counter::NextSession)),
        });
        commit.writes.push(Write::Put(Row::Counter(Counter::NextSession, last + 1)));
        // JuiceFS does not make it, and a record that is not there cannot be locked.
        if moves.is_none() {
            commit.writes.push(Write::Insert(Row::Counter(Counter::DirMoves, 0)));
        }
        commit.writes.push(Write::Put(Row::Session(sid, Session { expire, info: Some(info.clone()) })));
        commit.writes.extend((0..lanes).map(|lane| Write::Insert(Row::Writer(sid, lane, 0))));
        if logs {
            let lines = [Line::Count(Counter::NextSession, 1), Line::NewSession { sid, expire, info }];
            // The lines of this process go on after them.
            let numbered = lines.iter().zip(1..=REGISTERED);
            commit.writes.extend(numbered.map(|(line, number)| Write::Log(line.text(now, sid, number))));
        }
        match engine.commit_at(&commit, moment) {
            Ok(()) => return Ok(sid),
            // A lost answer costs a session id, and leaves a session that nobody refreshes.
            Err(EngineError::Conflict(_) | EngineError::Indeterminate { .. })
                if tries < AT_ONCE || wait::now() < until =>
            {
                tries += 1;
                if tries > AT_ONCE {
                    wait::sleep(Duration::from_millis(u64::from(now.nsec) / 1000 % MOST_PAUSE + 1));
                }
            }
            Err(error) => return Err(error),
        }
    }
}
