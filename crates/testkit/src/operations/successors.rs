//! A client whose process died, and the process that takes over its session.

use std::{collections::HashSet, sync::Arc, thread};

use parking_lot::Mutex;
use sluice_meta::{
    Asked, Effect, EffectLog, Interrupt, LanePast, LogSpan, Meta, Options, Resumed,
    engine::{Commit, Engine, EngineError, Found, Read, Step},
    ops::{
        flock::Flock,
        session::{DropLocks, DropSession},
    },
    schema::{FlockKind, Key, LockOwner, Row},
};
use sluice_types::{FileType, FsError, FsResult, Ino};

use super::{Factory, create, options};

const FILE: Ino = Ino(10_000);
const THREADS: u64 = 8;
const EACH: u64 = 20;

/// What is kept of a client.
#[derive(Debug, Default)]
struct Kept(Mutex<Past>);

#[derive(Debug, Default)]
struct Past {
    resumed: Resumed,
    /// Requests with lane and number of their commit.
    effects: Vec<(u64, u16, u64)>,
}

impl EffectLog for Kept {
    fn session(&self, sid: u64, lanes: u16, fences: i64) {
        let lanes = vec![LanePast::default(); usize::from(lanes)];
        self.0.lock().resumed = Resumed { sid, fences, lanes };
    }

    fn fenced(&self, fences: i64) {
        self.0.lock().resumed.fences = fences;
    }

    fn sending(&self, lane: u16, n: u64, effects: &[(u64, Effect)]) -> LogSpan {
        let mut past = self.0.lock();
        let attempted = &mut past.resumed.lanes[usize::from(lane)].attempted;
        *attempted = n.max(*attempted);
        let first = past.effects.len();
        past.effects.extend(effects.iter().map(|(unique, _)| (*unique, lane, n)));
        LogSpan { first: first as u64, count: effects.len() as u64 }
    }

    fn refused(&self, logged: LogSpan) {
        // Nothing has this number.
        let range = logged.first as usize..(logged.first + logged.count) as usize;
        self.0.lock().effects[range].iter_mut().for_each(|effect| effect.2 = u64::MAX);
    }

    fn voids(&self, lane: u16, from: u64, to: u64) {
        self.0.lock().resumed.lanes[usize::from(lane)].voids.push((from, to));
    }

    fn resolved(&self, lane: u16, to: u64) {
        self.0.lock().resumed.lanes[usize::from(lane)].voids.retain(|void| void.1 != to);
    }
}

fn lock(meta: &Meta, sid: u64) -> FsResult<()> {
    let op = Flock { ino: FILE, owner: LockOwner { sid, owner: 1 }, kind: Some(FlockKind::Write) };
    meta.run(op, &Interrupt::never())
}

/// What lanes of a session have reached.
fn reached(engine: &dyn Engine, sid: u64, lanes: usize) -> Vec<u64> {
    let reads: Vec<_> = (0..lanes as u16).map(|lane| Read::Get(Key::Writer(sid, lane))).collect();
    let found = engine.read(&reads).expect("read").into_iter();
    let number = |found| match found {
        Found::Row(Some(Row::Writer(_, _, n))) => n,
        found => panic!("no writer record: {found:?}"),
    };
    found.map(number).collect()
}

/// All that was acknowledged is known to have happened, locks stay, and what was on its way is
/// refused; until others take the client for dead.
pub fn a_session_goes_on_in_another_process(fresh: &Factory<'_>) {
    let store = fresh();
    let other = store.format(0);
    other.run(create(1, "file", FILE.0, FileType::File), &Interrupt::never()).expect("create");
    let kept = Arc::<Kept>::default();
    let with = |resume| Options { effect_log: Some(Arc::clone(&kept) as _), resume, ..options() };
    let first = Meta::open(store.open(), with(None)).expect("open");
    let sid = first.sid();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let first = &first;
            scope.spawn(move || {
                for number in thread * EACH..(thread + 1) * EACH {
                    let by = Interrupt::of_request(Asked { unique: number, again: false });
                    let op = create(1, &format!("d{number}"), 20_000 + number, FileType::Dir);
                    first.run(op, &by).expect("create");
                }
            });
        }
    });
    lock(&first, sid).expect("lock");

    let engine = store.open();
    let past = kept.0.lock().resumed.clone();
    let before = reached(engine.as_ref(), sid, past.lanes.len());
    let second = Meta::open(store.open(), with(Some(past))).expect("take up");
    assert_eq!(second.sid(), sid);
    let taken = second.taken_up().expect("taken up").clone();
    assert!(!taken.fenced);
    let effects = kept.0.lock().effects.clone();
    let done = effects.iter().filter(|(_, lane, n)| taken.happened(*lane, *n) == Some(true));
    let done: HashSet<u64> = done.map(|(unique, ..)| *unique).collect();
    assert_eq!(done.len() as u64, THREADS * EACH, "all that was acknowledged");
    for (lane, from) in before.into_iter().enumerate() {
        let lane = lane as u16;
        assert_eq!(taken.happened(lane, from + 1), Some(false));
        let step = Some(Step { writer: sid, lane, from, to: from + 1 });
        let late = engine.commit(&Commit { step, ..Commit::default() });
        assert!(matches!(late, Err(EngineError::Conflict(_))), "lane {lane}: {late:?}");
    }
    assert_eq!(lock(&other, other.sid()), Err(FsError::Again), "the lock is held");
    for number in 0..EACH {
        let op = create(1, &format!("e{number}"), 30_000 + number, FileType::Dir);
        second.run(op, &Interrupt::never()).expect("it goes on");
    }

    let dead_before = Some(i64::MAX);
    other.run(DropLocks { sid, dead_before }, &Interrupt::never()).expect("bury");
    other.run(DropSession { sid, dead_before, keep_writer: false }, &Interrupt::never()).expect("bury");
    let past = kept.0.lock().resumed.clone();
    let third = Meta::open(store.open(), with(Some(past))).expect("take up");
    assert!(third.taken_up().expect("it tried").fenced);
    assert_ne!(third.sid(), sid);
    assert_eq!(third.env().fences(), 1);
    assert_eq!(lock(&other, other.sid()), Ok(()));
}
