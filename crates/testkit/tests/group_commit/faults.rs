//! Exactly once, whatever is lost on the way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use sluice_meta::{
    batch::{Batcher, Interrupt},
    engine::{Commit, Engine, EngineError, Hold, Write},
    mem::MemEngine,
    ops::{self, compact::Compact},
    schema::{Key, Row},
};
use sluice_testkit::wrap::{Chances, Faulty, Hooked, Injected};
use sluice_types::{Attr, FileType, FsError, Ino, Rng, Slice, Time};

use crate::fixture::{
    Append, Create, DIRS, Increment, appended, assert_consistent, batcher, fence, log, node, store,
    with_timeout, within,
};

const THREADS: u64 = 8;
const OPS: u64 = 30;

/// Each thread creates, one by one and many at once, and increments; some names clash on purpose.
fn run_clients(batcher: &Arc<Batcher>, seed: u64) -> (Vec<u64>, u32) {
    let never = Interrupt::never();
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (batcher, never) = (batcher.clone(), never.clone());
            thread::spawn(move || {
                let mut rng = Rng::seeded(seed * 1000 + thread);
                let (mut created, mut increments) = (Vec::new(), 0);
                for op in 0..OPS {
                    let ino = 1000 * (thread + 1) + 10 * op;
                    let create = |rng: &mut Rng, at: u64| Create {
                        dir: 1 + rng.below(DIRS),
                        name: if rng.below(4) == 0 {
                            format!("clash {}", rng.below(10))
                        } else {
                            format!("{ino} {at}")
                        },
                        ino: ino + at,
                    };
                    let answers = match rng.below(3) {
                        0 => {
                            let answer = batcher.submit(Increment { ino: 2, hold: Hold::Lock }, &never);
                            answer.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
                            increments += 1;
                            continue;
                        }
                        1 => batcher.submit_all((0..5).map(|at| create(&mut rng, at)).collect(), &never),
                        _ => vec![batcher.submit(create(&mut rng, 0), &never)],
                    };
                    for answer in answers {
                        match answer {
                            Ok(ino) => created.push(ino),
                            Err(FsError::Exists) => {}
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                    }
                }
                (created, increments)
            })
        })
        .collect();
    let mut all = (Vec::new(), 0);
    for thread in threads {
        let (created, increments) = thread.join().unwrap();
        all.0.extend(created);
        all.1 += increments;
    }
    all
}

fn exactly_once(seed: u64, chances: Chances) -> Injected {
    let engine = store();
    let faulty = Faulty::new(Arc::new(engine.clone()), seed, chances);
    let batcher = batcher(Arc::new(faulty.clone()));
    let (mut created, increments) =
        within(Duration::from_mins(3), "the stress test", move || run_clients(&batcher, seed));
    let mut done = log(&engine);
    created.sort_unstable();
    done.sort_unstable();
    let context = format!("seed {seed}, {:?}", faulty.injected());
    assert_eq!(created, done, "what was acknowledged and what happened: {context}");
    // Take the increments of directory 2 out before the links are compared.
    let attr = node(&engine, 2).unwrap();
    let fixed = sluice_types::Attr { nlink: attr.nlink - increments, ..attr };
    let writes = vec![Write::Put(Row::Node(Ino(2), fixed))];
    engine.commit(&Commit { writes, ..Default::default() }).unwrap();
    assert_consistent(&engine, &context);
    faulty.injected()
}

#[test]
fn every_operation_happens_exactly_once_under_all_faults() {
    let mut seen = Injected::default();
    for seed in 1..=6 {
        let injected = exactly_once(seed, Chances::ALL);
        seen.reads += injected.reads;
        seen.unavailable += injected.unavailable;
        seen.conflicts += injected.conflicts;
        seen.lost_applied += injected.lost_applied;
        seen.lost += injected.lost;
        seen.late += injected.late;
        seen.late_applied += injected.late_applied;
        seen.late_refused += injected.late_refused;
    }
    let counts = [seen.reads, seen.unavailable, seen.conflicts, seen.lost_applied, seen.lost, seen.late];
    assert!(counts.iter().all(|n| *n > 0) && seen.late_applied > 0 && seen.late_refused > 0, "{seen:?}");
}

#[test]
fn conflicts_without_a_reason_do_not_repeat_a_late_commit() {
    // The lost commit arrives late, and the commit that asks for its fate meets conflicts that say
    // nothing.
    for seed in 100..110 {
        exactly_once(seed, Chances { late: 200, conflict: 300, ..Chances::default() });
    }
}

#[test]
fn an_operation_on_a_dead_engine_times_out_and_leaves_no_trace() {
    let engine = store();
    let dead = Chances { unavailable: 1000, ..Chances::default() };
    let faulty = Faulty::new(Arc::new(engine.clone()), 1, dead);
    let batcher = with_timeout(Arc::new(faulty.clone()), Duration::from_millis(50));
    let create = Create { dir: 1, name: "a".into(), ino: 100 };
    let answer = batcher.submit(create.clone(), &Interrupt::never());
    assert!(matches!(answer, Err(FsError::Io(_))), "{answer:?}");
    assert!(batcher.counts().retries.unavailable.get() > 0);
    assert!(log(&engine).is_empty());
    faulty.set(Chances::default());
    assert_eq!(batcher.submit(create, &Interrupt::never()), Ok(100));
    assert_consistent(&engine, "after the outage");
}

/// One batch of six waits for a dead engine, run by caller `leader`; all callers but one give up,
/// then the engine comes back.
fn all_but_one_give_up(leader: usize, survivor: usize) {
    let engine = store();
    let faulty = Faulty::new(Arc::new(engine.clone()), 1, Chances::default());
    let (open, opened) = std::sync::mpsc::channel::<()>();
    let opened = parking_lot::Mutex::new(opened);
    let gate = move |commit: &Commit| {
        if commit.writes.iter().any(|write| matches!(write, Write::Append(Ino(50), ..))) {
            opened.lock().recv().unwrap();
        }
        Ok(())
    };
    let hooked = Hooked::new(Arc::new(faulty.clone())).limited(1, 100).before_commit(gate);
    let batcher = batcher(Arc::new(hooked));
    let first = {
        let batcher = batcher.clone();
        thread::spawn(move || batcher.submit(Append::new(50, 1), &Interrupt::never()))
    };
    while batcher.stats().ops == 0 {
        thread::yield_now();
    }
    let interrupts: Vec<Interrupt> = (0..6).map(|_| Interrupt::default()).collect();
    let mut threads: Vec<_> = (0..6)
        .map(|nth| {
            let at = (leader + nth) % 6;
            let (waiter, interrupt, ino) = (batcher.clone(), interrupts[at].clone(), 100 + at as u64);
            let create = Create { dir: 1 + ino % DIRS, name: format!("f{at}"), ino };
            let thread = thread::spawn(move || waiter.submit(create, &interrupt));
            // The first in the queue is the one who will run the batch.
            while batcher.queued() <= nth {
                thread::yield_now();
            }
            thread
        })
        .collect();
    threads.rotate_right(leader);
    faulty.set(Chances { read: 1000, ..Chances::default() });
    open.send(()).unwrap();
    first.join().unwrap().unwrap();
    while batcher.stats().ops < 7 || faulty.injected().reads < 2 {
        thread::yield_now();
    }
    for (_, interrupt) in interrupts.iter().enumerate().filter(|(at, _)| *at != survivor) {
        interrupt.set();
    }
    for (at, thread) in threads.into_iter().enumerate() {
        if at == survivor {
            faulty.set(Chances::default());
        }
        let answer = within(Duration::from_mins(1), "an operation", move || thread.join().unwrap());
        // Those after the survivor may have been served by the engine that came back.
        match answer {
            Ok(ino) => assert!(at >= survivor && ino == 100 + at as u64),
            Err(error) => assert!(at != survivor && error == FsError::Interrupted, "{at}: {error}"),
        }
    }
    assert!(log(&engine).contains(&(100 + survivor as u64)));
    assert_consistent(&engine, "after the interrupts");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_dead_engine_for_its_own_operation_only() {
    for leader in 0..6 {
        for survivor in 0..6 {
            all_but_one_give_up(leader, survivor);
        }
    }
}

#[test]
fn a_refused_operation_fails_alone() {
    let engine = store();
    let refuse = |commit: &Commit| {
        let bad = commit.writes.iter().any(|write| matches!(write, Write::Append(Ino(666), ..)));
        let refused = || EngineError::Refused { engine: "mem".into(), reason: "too large".into() };
        if bad { Err(refused()) } else { Ok(()) }
    };
    let batcher = batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).before_commit(refuse)));
    let ops = (1..=10).map(|id| Append::new(if id == 4 { 666 } else { 500 }, id)).collect();
    let answers = batcher.submit_all(ops, &Interrupt::never());
    for (answer, id) in answers.iter().zip(1..) {
        assert_eq!(answer.is_err(), id == 4, "{id}: {answer:?}");
    }
    assert_eq!(appended(&engine, 500), [1, 2, 3, 5, 6, 7, 8, 9, 10], "in order");
    assert!(appended(&engine, 666).is_empty());
}

#[test]
fn culprits_of_a_conflict_go_alone_and_nobody_overtakes_in_a_lane() {
    let engine = store();
    let commits = Arc::new(parking_lot::Mutex::new(Vec::new()));
    let refusals = Arc::new(AtomicUsize::new(0));
    let hook = {
        let (commits, refusals) = (commits.clone(), refusals.clone());
        move |commit: &Commit| {
            let inos: Vec<u64> = commit
                .writes
                .iter()
                .filter_map(|write| match write {
                    Write::Insert(Row::Node(ino, _)) => Some(ino.0),
                    _ => None,
                })
                .collect();
            let bad: Vec<Key> =
                inos.iter().filter(|ino| *ino % 10 == 3).map(|ino| Key::Node(Ino(*ino))).collect();
            if inos.len() > 1 && !bad.is_empty() {
                refusals.fetch_add(1, Ordering::Relaxed);
                return Err(EngineError::Conflict(bad));
            }
            commits.lock().push(inos);
            Ok(())
        }
    };
    let batcher = batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).before_commit(hook)));
    let ops: Vec<Create> =
        (100..140).map(|ino| Create { dir: 1 + ino % DIRS, name: format!("f{ino}"), ino }).collect();
    let answers = batcher.submit_all(ops, &Interrupt::never());
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    assert_eq!(refusals.load(Ordering::Relaxed), 1, "one conflict, then without the culprits");
    let counts = batcher.counts();
    let restarts: Vec<u64> = counts.restarts.iter().map(|(_, named)| named.count.get()).collect();
    assert_eq!((counts.retries.conflict.get(), restarts), (1, vec![4]), "the culprits ran again");
    assert_eq!([&counts.operations, &counts.queued].map(sluice_types::metrics::Histogram::count), [40, 40]);
    let commits = commits.lock();
    for culprit in [103, 113, 123, 133] {
        assert!(commits.contains(&vec![culprit]), "#{culprit} went with others: {commits:?}");
    }
    assert!(commits[0].len() > 20, "the innocent go first, together: {commits:?}");
    assert!(commits.len() <= 9, "no more parts than needed: {commits:?}");
    for dir in 0..DIRS {
        let lane: Vec<u64> = log(&engine).into_iter().filter(|ino| ino % DIRS == dir).collect();
        assert!(lane.is_sorted(), "out of order in a lane: {lane:?}");
    }
    assert_consistent(&engine, "after conflicts");
}

#[test]
fn a_fenced_client_notices_and_goes_on() {
    let engine = store();
    let batcher = batcher(Arc::new(engine.clone()));
    let create = |ino: u64| Create { dir: 1, name: format!("f{ino}"), ino };
    assert_eq!(batcher.submit(create(100), &Interrupt::never()), Ok(100));
    fence(&engine, true);
    for ino in 101..110 {
        assert_eq!(batcher.submit(create(ino), &Interrupt::never()), Ok(ino));
    }
    assert_eq!(log(&engine), (100..110).collect::<Vec<_>>());
    assert_consistent(&engine, "after it was fenced");
}

fn lost(reason: &str) -> EngineError {
    EngineError::Indeterminate { engine: "mem".into(), reason: reason.into() }
}

#[test]
fn a_number_tells_of_one_commit_only() {
    let engine = store();
    let interrupt = Interrupt::default();
    let late = Arc::new(parking_lot::Mutex::new(None));
    let commits = AtomicUsize::new(0);
    let hook = {
        let (interrupt, late) = (interrupt.clone(), late.clone());
        move |commit: &Commit| match commits.fetch_add(1, Ordering::Relaxed) {
            0 => {
                *late.lock() = Some(commit.clone());
                Err(lost("it is under way"))
            }
            1 => {
                // Who waits for it gives up before anybody knows.
                interrupt.set();
                Err(EngineError::Unavailable { engine: "mem".into(), reason: "gone".into() })
            }
            2 => Err(lost("it went nowhere")),
            _ => Ok(()),
        }
    };
    let batcher =
        batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)));
    let create = |ino: u64| Create { dir: 1, name: format!("f{ino}"), ino };
    assert_eq!(batcher.submit(create(100), &interrupt), Err(FsError::Interrupted));
    let late = late.lock().take().unwrap();
    engine.commit(&late).unwrap();
    assert_eq!(batcher.submit(create(101), &Interrupt::never()), Ok(101));
    assert_eq!(log(&engine), [100, 101], "what arrived late is not taken for what came after it");
    assert_consistent(&engine, "after both");
}

#[test]
fn a_fenced_client_asks_until_it_knows_what_became_of_a_commit() {
    let engine = store();
    let (commits, broken) = (AtomicUsize::new(0), Arc::new(std::sync::OnceLock::<Faulty>::new()));
    let hook = {
        let (engine, broken) = (engine.clone(), broken.clone());
        move |commit: &Commit| match commits.fetch_add(1, Ordering::Relaxed) {
            0 => {
                engine.commit(commit).unwrap();
                fence(&engine, true);
                Err(lost("it happened"))
            }
            // What asks for its fate.
            1 => {
                broken.get().unwrap().set(Chances { read: 1000, ..Chances::default() });
                Ok(())
            }
            _ => Ok(()),
        }
    };
    let hooked = Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook);
    let faulty = Faulty::new(Arc::new(hooked), 1, Chances::default());
    broken.set(faulty.clone()).ok().unwrap();
    let batcher = batcher(Arc::new(faulty.clone()));
    let create = Create { dir: 1, name: "f".into(), ino: 100 };
    let answer = thread::spawn(move || batcher.submit(create, &Interrupt::never()));
    while faulty.injected().reads == 0 {
        thread::yield_now();
    }
    faulty.set(Chances::default());
    assert_eq!(answer.join().unwrap(), Ok(100));
    assert_eq!(log(&engine), [100]);
    assert_consistent(&engine, "after it was fenced");
}

/// An engine that does the first commit, which has a number, and loses the answer; before the
/// client can ask, it is fenced. Afterwards there are no records of slices that have one
/// reference: some engines keep none.
fn doing_and_fencing(engine: &MemEngine) -> Hooked {
    let (inner, commits) = (engine.clone(), AtomicUsize::new(0));
    let hook = move |commit: &Commit| {
        if commits.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        inner.commit(commit).unwrap();
        fence(&inner, true);
        let refs = commit.writes.iter().filter_map(|write| match write {
            Write::Insert(row @ Row::SliceRef(_, _, 1)) => Some(Write::Discard(row.key())),
            _ => None,
        });
        inner.commit(&Commit { writes: refs.collect(), ..Commit::default() }).unwrap();
        Err(lost("it happened"))
    };
    Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)
}

#[test]
fn a_slice_without_a_record_does_not_say_that_a_commit_did_not_happen() {
    let file = Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time::default());
    let old = [Slice::whole(0, 11, 4096), Slice::whole(4096, 12, 4096)];
    let new = Slice::whole(0, 13, 8192);
    let store = || {
        let engine = store();
        let rows = [Row::Node(Ino(50), file), Row::Chunk(Ino(50), 0, old.to_vec())];
        let writes = rows.map(Write::Insert).to_vec();
        engine.commit(&Commit { writes, ..Commit::default() }).unwrap();
        engine
    };
    let never = Interrupt::never();

    let engine = store();
    let compact = Compact { ino: Ino(50), index: 0, old: old.to_vec(), keep: 0, new };
    let answer = batcher(Arc::new(doing_and_fencing(&engine))).submit(compact, &never);
    assert!(answer.is_ok(), "the blocks of the new slice would be deleted: {answer:?}");
    assert_eq!(appended(&engine, 50), [13]);

    let engine = store();
    let write = ops::write::Write { ino: Ino(50), index: 0, slices: vec![new], mtime: Time::default() };
    let answer = batcher(Arc::new(doing_and_fencing(&engine))).submit(write, &never);
    assert!(answer.is_ok(), "{answer:?}");
    assert_eq!(appended(&engine, 50), [11, 12, 13], "once");
}

#[test]
fn a_fenced_client_whose_return_is_not_answered_comes_back_again() {
    for happens in [false, true] {
        let engine = store();
        fence(&engine, true);
        let (inner, returns, commits) = (engine.clone(), AtomicUsize::new(0), AtomicUsize::new(0));
        let hook = move |commit: &Commit| {
            let number = if commit.step.is_some() { &commits } else { &returns };
            match (commit.step, number.fetch_add(1, Ordering::Relaxed)) {
                (None, 0) if happens => {
                    inner.commit(commit).unwrap();
                    Err(lost("it happened"))
                }
                // The number that the client came back with does not speak for the commit after it.
                (None, 0) | (Some(_), 1) => Err(lost("it did not happen")),
                _ => Ok(()),
            }
        };
        let batcher =
            batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)));
        for ino in 100..103 {
            let create = Create { dir: 1, name: format!("f{ino}"), ino };
            assert_eq!(batcher.submit(create, &Interrupt::never()), Ok(ino), "{happens}");
        }
        assert_eq!(log(&engine), [100, 101, 102]);
        assert_consistent(&engine, "after it was fenced");
    }
}

#[test]
fn a_panic_fails_its_batch_and_nobody_waits_for_ever() {
    for happens in [false, true] {
        let engine = store();
        let (open, opened) = std::sync::mpsc::channel::<()>();
        let opened = parking_lot::Mutex::new(opened);
        let (inner, panics) = (engine.clone(), AtomicUsize::new(0));
        let hook = move |commit: &Commit| {
            if commit.writes.iter().any(|write| matches!(write, Write::Append(Ino(50), ..))) {
                opened.lock().recv().unwrap();
            } else if panics.fetch_add(1, Ordering::Relaxed) == 0 {
                if happens {
                    inner.commit(commit).unwrap();
                }
                panic!("on purpose");
            }
            Ok(())
        };
        let batcher =
            batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)));
        let submit = |ino: u64| {
            let batcher = batcher.clone();
            let create = Create { dir: 1 + ino % DIRS, name: format!("f{ino}"), ino };
            thread::spawn(move || batcher.submit(create, &Interrupt::never()))
        };
        let first = {
            let batcher = batcher.clone();
            thread::spawn(move || batcher.submit(Append::new(50, 1), &Interrupt::never()))
        };
        while batcher.stats().ops == 0 {
            thread::yield_now();
        }
        let waiting: Vec<_> = (100..104).map(submit).collect();
        while batcher.queued() < waiting.len() {
            thread::yield_now();
        }
        open.send(()).unwrap();
        first.join().unwrap().unwrap();
        for thread in waiting {
            let answer = within(Duration::from_mins(1), "an operation", move || thread.join().unwrap());
            assert!(matches!(answer, Err(FsError::Io(_))), "{answer:?}");
        }
        assert_eq!(log(&engine).len(), if happens { 4 } else { 0 });
        assert_eq!(submit(104).join().unwrap(), Ok(104), "the lane is free again");
        assert_consistent(&engine, "after a panic");
    }
}
