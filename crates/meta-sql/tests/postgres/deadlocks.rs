//! Clients that want the same records wait for each other, but never deadlock.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    thread,
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, List, Read, Step, Write},
    schema::{Change, Counter, DirStat, Entry, Key, LockOwner, Quota, QuotaKey, Row, Session},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::{
    operations::{SharedStore, seeds},
    server,
};
use sluice_types::{FileType, Ino, Name, Rng, Slice, Time};

use super::{dir, open};

const THREADS: u64 = 8;
const COMMITS: u64 = 60;
/// Few rows, so that many want the same.
const NODES: u64 = 12;
/// The first nodes are replaced and removed, the others are added to. Both at once is a test of its
/// own, see [`changes_of_nodes_that_are_added_to_hardly_ever_deadlock`].
const REPLACED: u64 = 6;
/// So few that each commit meets others.
const FEW_NODES: u64 = 3;

fn entry(at: u64, to: u64) -> Row {
    let name = Name::new(format!("n{at}").as_bytes()).expect("a name");
    Row::Entry(Ino(1 + at % 3), name, Entry { kind: FileType::Dir, ino: Ino(to) })
}

/// Rows of which some exist at any moment, made and removed in every way there is.
fn row(rng: &mut Rng) -> Row {
    let at = rng.below(NODES);
    let owner = LockOwner { sid: 1 + at % 2, owner: at / 6 };
    match rng.below(11) {
        0 => dir(at % REPLACED),
        1 | 2 => entry(at, rng.below(NODES)),
        3 => Row::Symlink(Ino(at), b"there".to_vec().into()),
        4 => {
            let name = Name::new(format!("user.{at}").as_bytes()).expect("a name");
            Row::Xattr(Ino(at % 2), name, b"value".to_vec().into())
        }
        5 => Row::Chunk(Ino(at % 2), at as u32, vec![Slice::hole(0, 9)]),
        6 => Row::SliceRef(at, 1, 1 + rng.below(3) as i64),
        7 => Row::DelFile(Ino(at), rng.below(2), 3),
        8 => Row::Session(at, Session { expire: 1, info: None }),
        9 => Row::Plock(Ino(at % 2), owner, Vec::new()),
        _ => Row::Quota(QuotaKey::User(at as u32), Quota::default()),
    }
}

/// One write of a random kind to a random record.
fn write(rng: &mut Rng) -> Write {
    let at = rng.below(NODES);
    // The last of them does not exist.
    let ino = Ino(REPLACED + at % (NODES - REPLACED + 1));
    let stat = DirStat { length: 1, space: 2, inodes: 3 };
    let quota = if at < 6 { QuotaKey::Dir(Ino(at)) } else { QuotaKey::User(at as u32) };
    match rng.below(24) {
        0..6 => Write::Put(row(rng)),
        6..10 => Write::Discard(row(rng).key()),
        10 if at == 0 => Write::Insert(row(rng)),
        // What is new has a number that nobody else gives out.
        10 => Write::Insert(dir(1000 + rng.next_u64() % 1_000_000_000)),
        11 if at == 0 => Write::Delete(row(rng).key()),
        11 => Write::Put(Row::DirStat(Ino(at), stat)),
        12..14 => Write::Bump { ino, nlink: 1, time: Some(Time { sec: 7, nsec: at as u32 }) },
        14 => Write::Bump { ino, nlink: -1, time: None },
        15 => Write::Count([Counter::UsedSpace, Counter::TotalInodes, Counter::DirMoves][at as usize % 3], 1),
        16 | 17 => Write::Refer(at, 1, 1),
        18 => Write::Use(Ino(at), stat),
        19 | 20 => Write::Charge(quota, 1, 1),
        21 => Write::Append(Ino(at % 2), at as u32, vec![Slice::hole(0, 9)]),
        22 => Write::Append(Ino(at), 0, vec![Slice::hole(0, 9)]),
        _ => Write::Clear(match at % 4 {
            0 => List::Xattrs(Ino(at % 2)),
            1 => List::Chunks(Ino(at % 2), at as u32 / 2, at as u32),
            2 => List::Plocks(Ino(at % 2)),
            _ => List::Lanes(1 + at % 2),
        }),
    }
}

fn key(write: &Write) -> Option<Key> {
    Some(match write {
        Write::Put(row) | Write::Insert(row) => unique(row.key()),
        Write::Delete(key) | Write::Discard(key) => unique(key.clone()),
        Write::Bump { ino, .. } => Key::Node(*ino),
        Write::Count(counter, _) => Key::Counter(*counter),
        Write::Refer(id, size, _) => Key::SliceRef(*id, *size),
        Write::Use(ino, _) => Key::DirStat(*ino),
        Write::Charge(key, ..) => Key::Quota(*key),
        Write::Append(ino, index, _) => Key::Chunk(*ino, *index),
        _ => return None,
    })
}

/// Some tables have fewer rows than there are keys.
fn unique(key: Key) -> Key {
    if let Key::DelFile(ino, _) = key { Key::DelFile(ino, 0) } else { key }
}

/// Reads what it then expects and writes, in any order.
fn change(engine: &PostgresEngine, rng: &mut Rng, step: Option<Step>) -> Result<(), EngineError> {
    let (mut clears, mut writes) = (Vec::new(), BTreeMap::new());
    for _ in 0..2 + rng.below(8) {
        let write = write(rng);
        match key(&write) {
            Some(key) => drop(writes.insert(key, write)),
            None => clears.push(write),
        }
    }
    let mut reads: Vec<(Key, Hold)> = (0..rng.below(4))
        .map(|_| {
            let hold = if rng.below(2) == 0 { Hold::Guard } else { Hold::Lock };
            let nodes = if hold == Hold::Guard { NODES } else { REPLACED };
            (if rng.below(3) == 0 { row(rng).key() } else { Key::Node(Ino(rng.below(nodes))) }, hold)
        })
        .collect();
    if rng.below(3) == 0 {
        reads.push((Key::Counter(Counter::DirMoves), Hold::Lock));
    }
    // As operations do, nothing replaces an entry without an expectation.
    let entries = writes.values().filter_map(|write| match write {
        Write::Put(row @ Row::Entry(..)) => Some((row.key(), Hold::Lock)),
        _ => None,
    });
    let entries: Vec<_> = entries.filter(|(key, _)| reads.iter().all(|(read, _)| read != key)).collect();
    reads.extend(entries);
    let questions: Vec<Read> = reads.iter().map(|(key, _)| Read::Get(key.clone())).collect();
    let found = engine.read(&questions)?;
    let expects = reads.iter().zip(found).filter_map(|((key, hold), found)| match found {
        Found::Row(Some(row)) => Some(Expect::Row(row, *hold)),
        Found::Row(None) => Some(Expect::Absent(key.clone())),
        _ => None,
    });
    clears.extend(writes.into_values());
    clears.push(Write::Notify(Change::Any));
    engine.commit(&Commit { step, expects: expects.collect(), writes: clears })
}

/// What one thread does; how many of its commits succeeded.
fn run(engine: &PostgresEngine, seed: u64, thread: u64) -> u64 {
    let mut rng = Rng::seeded(seed * 1000 + thread);
    let (writer, lane, mut from, mut committed) = (1 + thread % 2, (thread / 2) as u16, 0, 0);
    for _ in 0..COMMITS {
        let step = (rng.below(2) == 0).then_some(Step { writer, lane, from, to: from + 1 });
        match change(engine, &mut rng, step) {
            Ok(()) => {
                committed += 1;
                from += u64::from(step.is_some());
            }
            Err(EngineError::Conflict(keys)) => {
                assert!(!keys.is_empty(), "seed {seed}: a deadlock");
                // Somebody cleared the lane.
                if keys == [Key::Writer(writer, lane)] {
                    let writes = vec![Write::Put(Row::Writer(writer, lane, from))];
                    engine.commit(&Commit { writes, ..Commit::default() }).expect("a lane");
                }
            }
            Err(error) => panic!("seed {seed}: {error}"),
        }
    }
    committed
}

/// What all threads do on a database with nodes; how many of their commits succeeded.
fn run_all(url: &str, nodes: u64, run: impl Fn(&PostgresEngine, u64) -> u64 + Sync) -> u64 {
    let (engines, run) = ([open(url), open(url)], &run);
    let writes = (0..nodes).map(|ino| Write::Put(dir(ino))).collect();
    engines[0].commit(&Commit { writes, ..Commit::default() }).expect("nodes");
    thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|at| (&engines[at as usize % 2], at))
            .map(|(engine, at)| scope.spawn(move || run(engine, at)))
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

#[test]
fn random_commits_of_two_clients_never_deadlock() {
    let server = server::postgres().expect("a server");
    for seed in seeds(12) {
        let database = server.database().expect("a database");
        let committed =
            run_all(&server.unix_url(&database), NODES, |engine, thread| run(engine, seed, thread));
        assert!(committed > COMMITS, "seed {seed}: only {committed} commits");
        assert_eq!(server.deadlocks(&database).expect("a number"), 0, "seed {seed}");
    }
}

/// Adds to nodes, replaces or removes them, and writes what belongs to them.
fn change_nodes(engine: &PostgresEngine, rng: &mut Rng) -> Result<(), EngineError> {
    let (mut expects, mut writes) = (Vec::new(), Vec::new());
    let nodes: Vec<Ino> = (0..FEW_NODES).map(Ino).filter(|_| rng.below(3) > 0).collect();
    for ino in nodes {
        let mut found = engine.read(&[Read::Get(Key::Node(ino))])?;
        let Some(Found::Row(Some(row))) = found.pop() else {
            writes.push(Write::Put(dir(ino.0)));
            continue;
        };
        writes.push(Write::Append(ino, rng.below(2) as u32, vec![Slice::hole(0, 9)]));
        let (write, hold) = match rng.below(8) {
            0 => (Write::Put(row.clone()), Hold::Lock),
            1 => (Write::Put(dir(ino.0)), Hold::None),
            2 => (Write::Discard(Key::Node(ino)), Hold::None),
            _ => (Write::Bump { ino, nlink: 1, time: None }, Hold::Guard),
        };
        writes.push(write);
        expects.push(Expect::Row(row, hold));
    }
    engine.commit(&Commit { step: None, expects, writes })
}

/// PostgreSQL itself lets some commits deadlock here, see `plan/order.rs`: fewer than one of 5,000.
/// If clients lock nodes in different orders, or do not lock the key of a node first, there are
/// more than one for each 30 commits.
#[test]
fn changes_of_nodes_that_are_added_to_hardly_ever_deadlock() {
    let server = server::postgres().expect("a server");
    let (mut deadlocks, mut committed) = (0, 0);
    let seeds = seeds(6);
    for seed in seeds.clone() {
        let database = server.database().expect("a database");
        committed += run_all(&server.unix_url(&database), FEW_NODES, |engine, thread| {
            let mut rng = Rng::seeded(seed * 1000 + thread);
            (0..COMMITS).filter(|_| change_nodes(engine, &mut rng).is_ok()).count() as u64
        });
        deadlocks += server.deadlocks(&database).expect("a number");
    }
    assert!(deadlocks < committed / 200, "seeds {seeds:?}: {deadlocks} deadlocks, {committed} commits");
}

#[test]
fn operations_under_stress_never_deadlock() {
    let server = server::postgres().expect("a server");
    // Other tests of this process have deadlocks of their own.
    let databases = Arc::new(Mutex::new(Vec::new()));
    let fresh = || {
        let database = server.database().expect("a database");
        let url = server.unix_url(&database);
        databases.lock().expect("no panic").push(database);
        SharedStore::new(move || Arc::new(open(&url)))
    };
    sluice_testkit::operations::stress::stress_leaves_a_tree(&fresh);
    sluice_testkit::operations::races::directories_that_cross_build_no_cycle(&fresh);
    sluice_testkit::operations::quota_stress::stress_under_nested_quotas_is_counted(&fresh);
    for database in databases.lock().expect("no panic").iter() {
        assert_eq!(server.deadlocks(database).expect("a number"), 0, "{database}");
    }
}
