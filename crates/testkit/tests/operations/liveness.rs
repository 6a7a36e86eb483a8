//! Who lives, who is dead, and who may say so.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use sluice_meta::{
    Interrupt, Meta, Options,
    engine::{Commit, Engine, EngineError, Found, List, Read, Write},
    ops::{
        getattr::GetAttr,
        session::{DropLastCommits, DropLocks, DropSession, ListSustained},
        sustained::DropSustained,
        unlink::Unlink,
    },
    schema::{Counter, Extra, FlockKind, Key, LastCommits, LockOwner, Row},
};
use sluice_testkit::{
    operations::{at, create},
    wrap::Hooked,
};
use sluice_types::{Caller, Clock, FileType, FsError, Ino, ManualClock, Time};

const NOW: Time = Time { sec: 1_700_000_000, nsec: 0 };
/// Longer than a session lasts.
const LONG: Duration = Duration::from_mins(3);

fn options(clock: &ManualClock) -> Options {
    Options { clock: Arc::new(clock.clone()), ..Options::default() }
}

/// When a session expires, if there is one.
fn expire(engine: &dyn Engine, sid: u64) -> Option<i64> {
    match engine.read(&[Read::Get(Key::Session(sid))]).unwrap().pop() {
        Some(Found::Row(Some(Row::Session(_, session)))) => Some(session.expire),
        _ => None,
    }
}

#[test]
fn a_renewal_that_had_to_wait_lasts_from_when_it_went_through() {
    let (store, clock) = (crate::fresh(), ManualClock::new(NOW));
    store.format(0);
    let (time, waited) = (clock.clone(), AtomicBool::new(false));
    let engine = Hooked::new(store.open()).before_commit(move |commit: &Commit| {
        let renews = |write: &Write| matches!(write, Write::Put(Row::Session(..)));
        let first = commit.step.is_some() && commit.writes.iter().any(renews);
        if first && !waited.swap(true, Ordering::SeqCst) {
            time.advance(LONG);
            return Err(EngineError::Unavailable { engine: "test".into(), reason: "full".into() });
        }
        Ok(())
    });
    let meta = Meta::open(Arc::new(engine), options(&clock)).unwrap();
    meta.beat().unwrap().unwrap();
    assert_eq!(expire(store.open().as_ref(), meta.sid()), Some(clock.now().sec + 60));
}

#[test]
fn a_client_among_many_that_start_at_once_gets_its_session_in_the_end() {
    let (store, clock) = (crate::fresh(), ManualClock::new(NOW));
    store.format(0);
    let others = AtomicU32::new(0);
    let engine = Hooked::new(store.open()).before_commit(move |commit: &Commit| {
        let registers = commit.writes.iter().any(|write| matches!(write, Write::Put(Row::Session(..))));
        let is_late = registers && others.fetch_add(1, Ordering::SeqCst) < 60;
        if is_late { Err(EngineError::Conflict(vec![Key::Counter(Counter::NextSession)])) } else { Ok(()) }
    });
    let meta = Meta::open(Arc::new(engine), options(&clock)).unwrap();
    assert_eq!(expire(store.open().as_ref(), meta.sid()), Some(NOW.sec + 60));
}

#[test]
fn a_session_that_came_back_keeps_what_it_has_open() {
    let (store, clock, never) = (crate::fresh(), ManualClock::new(NOW), Interrupt::never());
    store.format(0);
    let [one, two] = [(); 2].map(|()| Meta::open(store.open(), options(&clock)).unwrap());
    one.run(create(1, "f", 10, FileType::File), &never).unwrap();
    one.register_open(Ino(10));
    one.run(Unlink { at: at(1, "f"), only: None, skip_trash: true, caller: Caller::client() }, &never)
        .unwrap();
    let sid = one.sid();
    assert_eq!(two.read(&ListSustained(sid), &never), Ok(vec![Ino(10)]));
    // Who cleans up found the session dead, but it is back by now.
    let drop_before =
        |before| two.run(DropSustained { sid, ino: Ino(10), dead_before: Some(before) }, &never);
    assert_eq!(drop_before(NOW.sec), Ok(None));
    assert_eq!(one.read(&GetAttr(Ino(10)), &never).map(drop), Ok(()));
    assert_eq!(two.read(&ListSustained(sid), &never), Ok(vec![Ino(10)]));
    let late = NOW.sec + 61;
    assert_eq!(two.run(DropLocks { sid, dead_before: Some(late) }, &never), Ok(true));
    drop_before(late).unwrap();
    assert_eq!(two.read(&GetAttr(Ino(10)), &never).map(drop), Err(FsError::NotFound));
    two.run(DropSession { sid, dead_before: Some(late), keep_writer: false }, &never).unwrap();
    let buried = two.run(DropLocks { sid, dead_before: Some(late) }, &never);
    assert_eq!(buried, Ok(false), "it is gone, and may be back at any moment");
}

/// What was kept of the commits of a session that was fenced.
fn last_commits(engine: &dyn Engine, sid: u64) -> Option<LastCommits> {
    match engine.read(&[Read::Get(Key::Extra(Extra::LastCommits, sid))]).unwrap().pop() {
        Some(Found::Row(Some(Row::Extra(_, _, json)))) => LastCommits::parse(&json.0),
        _ => None,
    }
}

/// The numbers in the writer records of a session.
fn numbers(engine: &dyn Engine, sid: u64) -> BTreeMap<u16, u64> {
    match engine.read(&[Read::All(List::Lanes(sid))]).unwrap().pop() {
        Some(Found::Rows(rows)) => rows
            .into_iter()
            .filter_map(|row| if let Row::Writer(_, lane, n) = row { Some((lane, n)) } else { None })
            .collect(),
        _ => BTreeMap::new(),
    }
}

#[test]
fn whoever_fences_a_client_keeps_what_it_had_committed() {
    let (store, clock, never) = (crate::fresh(), ManualClock::new(NOW), Interrupt::never());
    store.format(0);
    let [one, two] = [(); 2].map(|()| Meta::open(store.open(), options(&clock)).unwrap());
    one.run(create(1, "f", 10, FileType::File), &never).unwrap();
    let (sid, engine) = (one.sid(), store.open());
    let before = numbers(engine.as_ref(), sid);
    assert!(before.values().any(|n| *n > 0), "{before:?}");
    let late = Some(NOW.sec + 61);
    assert_eq!(two.run(DropLocks { sid, dead_before: late }, &never), Ok(true));
    let kept = LastCommits { fenced: NOW.sec, lanes: before.clone() };
    assert_eq!(last_commits(engine.as_ref(), sid), Some(kept.clone()));
    assert!(numbers(engine.as_ref(), sid).is_empty());
    two.run(DropSession { sid, dead_before: late, keep_writer: false }, &never).unwrap();
    assert_eq!(last_commits(engine.as_ref(), sid), Some(kept.clone()), "there was nothing else to keep");

    // It comes back with one of its lanes, and is fenced again.
    one.run(create(1, "g", 11, FileType::File), &never).unwrap();
    let back = numbers(engine.as_ref(), sid);
    assert!(back.len() == 1 && back.iter().all(|(lane, n)| before[lane] < *n), "{before:?}, then {back:?}");
    clock.advance(LONG);
    let fenced = clock.now().sec;
    assert_eq!(two.run(DropLocks { sid, dead_before: Some(fenced + 1000) }, &never), Ok(true));
    let lanes: BTreeMap<u16, u64> = before.into_iter().chain(back).collect();
    assert_eq!(last_commits(engine.as_ref(), sid), Some(LastCommits { fenced, lanes }));

    // It is not kept for ever.
    assert_eq!(two.run(DropLastCommits { sid, before: fenced }, &never), Ok(false));
    assert!(last_commits(engine.as_ref(), sid).is_some());
    assert_eq!(two.run(DropLastCommits { sid, before: fenced + 1 }, &never), Ok(true));
    assert_eq!(last_commits(engine.as_ref(), sid), None);
}

#[test]
fn a_lock_that_is_granted_while_its_session_is_buried_does_not_stay() {
    let (store, clock, never) = (crate::fresh(), ManualClock::new(NOW), Interrupt::never());
    store.format(0);
    let one = Meta::open(store.open(), options(&clock)).unwrap();
    one.run(create(1, "f", 10, FileType::File), &never).unwrap();
    let (sid, other) = (one.sid(), store.open());
    let lock = Row::Flock(Ino(10), LockOwner { sid, owner: 1 }, FlockKind::Write);
    let granted = lock.clone();
    let engine = Hooked::new(store.open()).before_commit(move |commit: &Commit| {
        // Behind the last look at its locks, before the session loses the right to commit.
        if commit.writes.contains(&Write::Clear(List::Lanes(sid)))
            && !commit.writes.contains(&Write::Discard(Key::Session(sid)))
        {
            let writes = vec![Write::Insert(granted.clone())];
            other.commit(&Commit { writes, ..Commit::default() }).unwrap();
        }
        Ok(())
    });
    let two = Meta::open(Arc::new(engine), options(&clock)).unwrap();
    let late = Some(NOW.sec + 61);
    assert_eq!(two.run(DropLocks { sid, dead_before: late }, &never), Ok(true));
    let engine = store.open();
    let locks = || engine.read(&[Read::All(List::LocksOf(sid))]).unwrap();
    assert_eq!(locks(), [Found::Rows(vec![lock])]);
    two.run(DropSession { sid, dead_before: late, keep_writer: false }, &never).unwrap();
    assert_eq!(locks(), [Found::Rows(vec![])]);
}

#[test]
fn a_program_without_a_mount_is_kept_alive_until_it_closes() {
    let (store, clock) = (crate::fresh(), ManualClock::new(NOW));
    store.format(0);
    let heartbeat = Duration::from_millis(10);
    let meta = Meta::open(store.open(), Options { heartbeat, ..options(&clock) }).unwrap();
    let engine = store.open();
    meta.keep_alive().unwrap();
    clock.advance(LONG);
    let deadline = Instant::now() + Duration::from_mins(2);
    while expire(engine.as_ref(), meta.sid()).is_some_and(|expire| expire < clock.now().sec) {
        assert!(Instant::now() < deadline, "nobody renews the session");
        std::thread::yield_now();
    }
    meta.close().unwrap();
    assert_eq!(expire(engine.as_ref(), meta.sid()), None);
    assert_eq!(meta.env().fences(), 0);
}
