//! Writes that add, from many threads at once: every one counts exactly once.

use std::{
    sync::{Arc, Barrier},
    thread,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_meta::{
    engine::{Commit, EngineError, Expect, Found, Hold, List, Moment, Read, Step, Write},
    schema::{Counter, DirStat, FlockKind, Key, LockOwner, Quota, QuotaKey, Row},
};
use sluice_types::{Attr, Ino, Slice, Time};

use super::{
    Factory,
    sample::{dir_attr, dir_row, entry_row, file_attr, file_row},
    store::{Store, name, node, persist},
};

const THREADS: u64 = 8;
const ROUNDS: u64 = 40;
const WRITER: u64 = 77;

/// Lets every thread commit what `writes` says for it and each of its rounds, under numbered steps.
fn crowd(store: &Store, writes: impl Fn(u64, u64) -> Vec<Write> + Send + Sync + 'static) {
    let lanes = store.engine.limits().lanes.max(1);
    store.insert((0..lanes as u16).map(|lane| Row::Writer(WRITER, lane, 0)).collect());
    let steps: Arc<Vec<Mutex<u64>>> = Arc::new((0..lanes).map(|_| Mutex::new(0)).collect());
    let (writes, start) = (Arc::new(writes), Arc::new(Barrier::new(THREADS as usize)));
    let threads = (0..THREADS).map(|thread| {
        let (store, steps, writes, start) = (store.clone(), steps.clone(), writes.clone(), start.clone());
        thread::spawn(move || {
            start.wait();
            for round in 0..ROUNDS {
                let lane = store.lane(thread as usize);
                let mut from = steps[usize::from(lane)].lock();
                persist(|| {
                    let step = Step { writer: WRITER, lane, from: *from, to: *from + 1 };
                    let commit = Commit { step: Some(step), expects: vec![], writes: writes(thread, round) };
                    store.engine.commit(&commit)
                });
                *from += 1;
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    for thread in threads {
        thread.join().expect("a thread failed");
    }
}

/// nlink adds up and the latest time stands.
pub fn bumps_of_many_threads_add_up(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2), dir_row(3)]);
    let time = |thread, round| Time { sec: 1_800_000_000 + (round * 7 % ROUNDS) as i64, nsec: thread as u32 };
    crowd(&store, move |thread, round| {
        vec![
            Write::Bump { ino: Ino(2), nlink: 1, time: Some(time(thread, round)) },
            Write::Bump { ino: Ino(3), nlink: if round % 2 == 0 { 3 } else { -3 }, time: None },
        ]
    });
    let last = Time { sec: 1_800_000_000 + ROUNDS as i64 - 1, nsec: THREADS as u32 - 1 };
    let sum = Attr { nlink: 2 + (THREADS * ROUNDS) as u32, mtime: last, ctime: last, ..dir_attr() };
    store.assert_row(&node(2), Some(&Row::Node(Ino(2), sum)));
    store.assert_row(&node(3), Some(&dir_row(3)));
}

/// Counters add up, also those that did not exist.
pub fn counters_of_many_threads_add_up(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![Row::Counter(Counter::NextInode, 100)]);
    crowd(&store, |thread, _| {
        vec![
            Write::Count(Counter::NextInode, 1),
            Write::Count(Counter::UsedSpace, 4096 * thread as i64),
            Write::Count(Counter::TotalInodes, -1),
        ]
    });
    let (all, threads) = ((THREADS * ROUNDS) as i64, THREADS as i64);
    for (counter, wanted) in [
        (Counter::NextInode, 100 + all),
        (Counter::UsedSpace, 4096 * ROUNDS as i64 * threads * (threads - 1) / 2),
        (Counter::TotalInodes, -all),
    ] {
        store.assert_row(&Key::Counter(counter), Some(&Row::Counter(counter, wanted)));
    }
}

/// Every slice arrives once, those of one thread in their order.
pub fn appends_of_many_threads_all_arrive(factory: &Factory<'_>) {
    let store = Store::new(factory);
    crowd(&store, |thread, round| {
        let id = thread * 1000 + round + 1;
        vec![Write::Append(Ino(5), 0, vec![Slice::whole(0, id, 1), Slice::whole(1, id, 2)])]
    });
    let Some(Row::Chunk(_, _, records)) = store.get(&Key::Chunk(Ino(5), 0)) else { panic!("no chunk") };
    assert_eq!(records.len() as u64, 2 * THREADS * ROUNDS);
    for thread in 0..THREADS {
        let mine = records.iter().filter(|slice| (slice.id - 1) / 1000 == thread);
        let wanted = (0..ROUNDS).flat_map(|round| {
            let id = thread * 1000 + round + 1;
            [Slice::whole(0, id, 1), Slice::whole(1, id, 2)]
        });
        assert!(mine.copied().eq(wanted), "the slices of thread {thread} came out of order");
    }
}

/// References and links add up.
pub fn references_and_links_of_many_threads_add_up(factory: &Factory<'_>) {
    let shared = Row::Node(Ino(9), Attr { parent: Ino::NONE, ..file_attr() });
    let store = Store::with(factory, vec![dir_row(2), dir_row(3), shared, Row::SliceRef(1, 2, 5)]);
    crowd(&store, |thread, round| {
        let dir = 2 + round % 2;
        vec![
            Write::Refer(1, 2, 1),
            Write::Refer(3, 4, 2),
            Write::Insert(entry_row(dir, &name(&format!("{thread} {round}")), 9)),
            Write::Link(Ino(9), Ino(dir), 1),
            Write::Bump { ino: Ino(9), nlink: 1, time: None },
        ]
    });
    let all = (THREADS * ROUNDS) as i64;
    store.assert_row(&Key::SliceRef(1, 2), Some(&Row::SliceRef(1, 2, 5 + all)));
    store.assert_row(&Key::SliceRef(3, 4), Some(&Row::SliceRef(3, 4, 1 + 2 * all)));
    let parents = [Row::Parents(Ino(9), Ino(2), all / 2), Row::Parents(Ino(9), Ino(3), all / 2)];
    assert_eq!(store.all(List::Parents(Ino(9))), parents);
}

/// Usage adds up.
pub fn usage_of_many_threads_adds_up(factory: &Factory<'_>) {
    let key = QuotaKey::Dir(Ino(2));
    let quota = Quota { max_space: 1, max_inodes: 2, used_space: 3, used_inodes: 4 };
    let store = Store::with(factory, vec![Row::DirStat(Ino(2), DirStat::default()), Row::Quota(key, quota)]);
    crowd(&store, move |_, _| {
        vec![
            Write::Use(Ino(2), DirStat { length: 5, space: 4096, inodes: 1 }),
            Write::Use(Ino(3), DirStat { length: 5, space: 4096, inodes: 1 }),
            Write::Charge(key, 4096, 1),
            // None of them has a record: whoever comes first makes it, and nobody's part is lost.
            Write::Charge(QuotaKey::User(7), 4096, 1),
            Write::Charge(QuotaKey::Group(u32::MAX), -4096, -1),
        ]
    });
    let n = (THREADS * ROUNDS) as i64;
    let stat = DirStat { length: 5 * n, space: 4096 * n, inodes: n };
    store.assert_row(&Key::DirStat(Ino(2)), Some(&Row::DirStat(Ino(2), stat)));
    store.assert_row(&Key::DirStat(Ino(3)), None);
    let used = Quota { used_space: 3 + 4096 * n, used_inodes: 4 + n, ..quota };
    store.assert_row(&Key::Quota(key), Some(&Row::Quota(key, used)));
    for (key, n) in [(QuotaKey::User(7), n), (QuotaKey::Group(u32::MAX), -n)] {
        let used = Quota { used_space: 4096 * n, used_inodes: n, ..Quota::UNLIMITED };
        store.assert_row(&Key::Quota(key), Some(&Row::Quota(key, used)));
    }
}

/// Many take from two quotas, one below the other, as long as there is room: they are full to the
/// last inode then, and never fuller.
pub fn quotas_of_many_threads_are_filled_and_no_more(factory: &Factory<'_>) {
    let keys = [QuotaKey::Dir(Ino(2)), QuotaKey::User(7)];
    let limits = [(THREADS * ROUNDS / 2) as i64, (THREADS * ROUNDS / 3) as i64];
    let quota = |at: usize| Quota { max_inodes: limits[at], ..Quota::UNLIMITED };
    let store = Store::with(factory, (0..2).map(|at| Row::Quota(keys[at], quota(at))).collect());
    let lanes: Vec<Mutex<()>> = (0..store.engine.limits().lanes.max(1)).map(|_| Mutex::new(())).collect();
    let took = Mutex::new([0; 2]);
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (store, lanes, took) = (&store, &lanes, &took);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    // Every second one asks for both.
                    let asks = if (number + round) % 2 == 0 { &keys[..] } else { &keys[..1] };
                    let expects = asks.iter().map(|key| Expect::QuotaAllows(*key, 0, 1)).collect();
                    let writes = asks.iter().map(|key| Write::Charge(*key, 4096, 1)).collect();
                    let commit = Commit { expects, writes, ..Commit::default() };
                    loop {
                        let lane = lanes[usize::from(store.lane(number as usize))].lock();
                        let done = store.engine.commit(&commit);
                        drop(lane);
                        match done {
                            Ok(()) => asks.iter().enumerate().for_each(|(at, _)| took.lock()[at] += 1),
                            Err(EngineError::Conflict(full)) if !full.is_empty() => {
                                assert!(full.iter().all(|key| matches!(key, Key::Quota(_))), "{full:?}");
                            }
                            Err(EngineError::Conflict(_) | EngineError::Unavailable { .. }) => continue,
                            Err(error) => panic!("{error}"),
                        }
                        break;
                    }
                }
            });
        }
    });
    let took = took.into_inner();
    for at in 0..2 {
        let used = Quota { used_space: 4096 * took[at], used_inodes: took[at], ..quota(at) };
        store.assert_row(&Key::Quota(keys[at]), Some(&Row::Quota(keys[at], used)));
        assert!(took[at] <= limits[at], "{took:?} of {limits:?}");
    }
    assert_eq!(took[0], limits[0], "there was room");
}

/// Lines of the change log arrive, each once and with a number of its own.
pub fn lines_of_many_threads_all_arrive(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![Row::Counter(Counter::NextInode, 100)]);
    crowd(&store, |thread, round| (0..3).map(|at| Write::Log(format!("{thread} {round} {at}"))).collect());
    let Some(log) = store.engine.change_log() else { return };
    let (mut at, mut texts) = (0, Vec::new());
    loop {
        let page = log.lines(at, 1000).expect("lines");
        let Some(last) = page.last() else { break };
        at = last.number;
        texts.extend(page.into_iter().map(|line| line.text));
    }
    let mut wanted: Vec<Bytes> = (0..THREADS)
        .flat_map(|thread| (0..ROUNDS).map(move |round| (thread, round)))
        .flat_map(|(thread, round)| (0..3).map(move |at| format!("{thread} {round} {at}").into()))
        .collect();
    texts.sort_unstable();
    wanted.sort_unstable();
    assert_eq!(texts, wanted);
}

/// All try to insert the same entry; one wins, and only its other writes are there.
pub fn one_of_many_inserts_wins(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2), Row::Counter(Counter::TotalInodes, 0)]);
    let lanes: Vec<Mutex<()>> = (0..store.engine.limits().lanes.max(1)).map(|_| Mutex::new(())).collect();
    for round in 0..ROUNDS {
        let called = name(&format!("race {round}"));
        let wins = Mutex::new(Vec::new());
        let start = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, called, wins, start, lanes) = (&store, &called, &wins, &start, &lanes);
                scope.spawn(move || {
                    start.wait();
                    let lane = store.lane(thread as usize);
                    let _alone = lanes[usize::from(lane)].lock();
                    let ino = 1000 * (round + 1) + thread;
                    let writes = vec![
                        Write::Insert(entry_row(2, called, ino)),
                        Write::Insert(file_row(ino)),
                        Write::Insert(Row::Symlink(Ino(ino), Bytes::from_static(b"t"))),
                        Write::Bump { ino: Ino(2), nlink: 1, time: None },
                        Write::Count(Counter::TotalInodes, 1),
                    ];
                    match store.engine.commit(&Commit { writes, ..Commit::default() }) {
                        Ok(()) => wins.lock().push(ino),
                        Err(EngineError::Conflict(_) | EngineError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        let wins = wins.into_inner();
        assert_eq!(wins.len(), 1, "round {round}: {wins:?}");
        store.assert_row(&Key::Entry(Ino(2), called.clone()), Some(&entry_row(2, &called, wins[0])));
        for thread in 0..THREADS {
            let ino = 1000 * (round + 1) + thread;
            assert_eq!(store.get(&node(ino)).is_some(), ino == wins[0]);
            assert_eq!(store.get(&Key::Symlink(Ino(ino))).is_some(), ino == wins[0]);
        }
    }
    let total = Row::Counter(Counter::TotalInodes, ROUNDS as i64);
    store.assert_row(&total.key(), Some(&total));
    store.assert_row(&node(2), Some(&Row::Node(Ino(2), Attr { nlink: 2 + ROUNDS as u32, ..dir_attr() })));
}

/// Read with a lock, add one, put: no update is lost.
pub fn locked_counters_lose_no_update(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![Row::Counter(Counter::NextTrash, 0)]);
    let key = Key::Counter(Counter::NextTrash);
    let lanes: Vec<Mutex<()>> = (0..store.engine.limits().lanes.max(1)).map(|_| Mutex::new(())).collect();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (store, key, lanes) = (&store, &key, &lanes);
            scope.spawn(move || {
                let lane = store.lane(thread as usize);
                for _ in 0..ROUNDS {
                    persist(|| {
                        let _alone = lanes[usize::from(lane)].lock();
                        let mut moment = Moment::default();
                        let found = store.engine.read_at(&[Read::Get(key.clone())], &mut moment)?;
                        let [Found::Row(Some(was @ Row::Counter(counter, n)))] = &found[..] else {
                            panic!("{found:?}");
                        };
                        let commit = Commit {
                            step: None,
                            expects: vec![Expect::Row(was.clone(), Hold::Lock)],
                            writes: vec![Write::Put(Row::Counter(*counter, n + 1))],
                        };
                        store.engine.commit_at(&commit, moment)
                    });
                }
            });
        }
    });
    store.assert_row(&key, Some(&Row::Counter(Counter::NextTrash, (THREADS * ROUNDS) as i64)));
}

/// Each expects to be absent what the other one makes, and makes what the other expects to be
/// absent: not both can.
pub fn absences_that_are_not_made_exclude_each_other(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let lanes: Vec<Mutex<()>> = (0..store.engine.limits().lanes.max(1)).map(|_| Mutex::new(())).collect();
    let mut won = 0;
    for round in 0..ROUNDS {
        let called = [0, 1].map(|side| name(&format!("{side} {round}")));
        let wins = Mutex::new(Vec::new());
        let start = Barrier::new(2);
        thread::scope(|scope| {
            for side in 0..2 {
                let (store, called, wins, start, lanes) = (&store, &called, &wins, &start, &lanes);
                scope.spawn(move || {
                    start.wait();
                    let lane = store.lane(side);
                    let _alone = lanes[usize::from(lane)].lock();
                    let expects = vec![Expect::Absent(Key::Entry(Ino(2), called[1 - side].clone()))];
                    let writes = vec![Write::Insert(entry_row(2, &called[side], 9))];
                    match store.engine.commit(&Commit { step: None, expects, writes }) {
                        Ok(()) => wins.lock().push(side),
                        Err(EngineError::Conflict(_) | EngineError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        let wins = wins.into_inner();
        assert!(wins.len() < 2, "round {round}: both");
        for (side, name) in called.iter().enumerate() {
            let there = store.get(&Key::Entry(Ino(2), name.clone())).is_some();
            assert_eq!(there, wins.contains(&side), "round {round}");
        }
        won += wins.len();
    }
    assert!(won > 0, "nobody ever won");
}

/// All find no lock on a file or a directory and take one; one gets it.
pub fn one_of_many_lockers_wins(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2), file_row(3)]);
    let lanes: Vec<Mutex<()>> = (0..store.engine.limits().lanes.max(1)).map(|_| Mutex::new(())).collect();
    for (round, node) in (0..ROUNDS).flat_map(|round| [(round, dir_row(2)), (round, file_row(3))]) {
        let Row::Node(ino, _) = node else { unreachable!() };
        let wins = Mutex::new(0);
        let start = Barrier::new(THREADS as usize);
        thread::scope(|scope| {
            for thread in 0..THREADS {
                let (store, wins, start, lanes, node) = (&store, &wins, &start, &lanes, &node);
                scope.spawn(move || {
                    start.wait();
                    let lane = store.lane(thread as usize);
                    let _alone = lanes[usize::from(lane)].lock();
                    let expects = vec![
                        Expect::Row(node.clone(), Hold::Lock),
                        Expect::Same(List::Flocks(ino), Vec::new()),
                    ];
                    let owner = LockOwner { sid: thread + 1, owner: 7 };
                    let writes = vec![Write::Put(Row::Flock(ino, owner, FlockKind::Write))];
                    match store.engine.commit(&Commit { step: None, expects, writes }) {
                        Ok(()) => *wins.lock() += 1,
                        Err(EngineError::Conflict(_) | EngineError::Unavailable { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        let wins = wins.into_inner();
        assert!(wins < 2, "round {round}: {wins} have a lock on {ino}");
        let locks = store.all(List::Flocks(ino));
        assert_eq!(locks.len(), wins, "round {round}");
        store.write(locks.iter().map(|lock| Write::Delete(lock.key())).collect());
    }
}
