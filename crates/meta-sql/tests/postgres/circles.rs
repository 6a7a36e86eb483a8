//! Clients that want the same records wait for each other, but never in a circle.

use std::{collections::BTreeMap, thread};

use sluice_meta::{
    engine::{Change, Commit, Engine, EngineError, Expect, Found, Hold, Read, Write},
    schema::{Counter, DirStat, Entry, Key, QuotaKey, Row},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::{operations::SharedStore, server};
use sluice_types::{FileType, Ino, Name, Rng, Slice, Time};

use super::{dir, open};

const THREADS: u64 = 8;
const COMMITS: u64 = 120;
const NODES: u64 = 12;

fn entry(at: u64, to: u64) -> Row {
    let name = Name::new(format!("n{at}").as_bytes()).expect("a name");
    Row::Entry(Ino(1 + at % 3), name, Entry { kind: FileType::Dir, ino: Ino(to) })
}

/// One write of a random kind to a random record.
fn write(rng: &mut Rng) -> Write {
    let at = rng.below(NODES);
    let stat = DirStat { length: 1, space: 2, inodes: 3 };
    let quota = if at < 6 { QuotaKey::Dir(Ino(at)) } else { QuotaKey::User(at as u32) };
    match rng.below(14) {
        0 => Write::Put(dir(at)),
        1 => Write::Discard(Key::Node(Ino(at))),
        // What is new has a number that nobody else gives out.
        2 => Write::Insert(dir(1000 + rng.next_u64() % 1_000_000_000)),
        3 | 4 => Write::Bump { ino: Ino(at), nlink: 1, time: Some(Time { sec: 7, nsec: at as u32 }) },
        5 => Write::Bump { ino: Ino(at), nlink: -1, time: None },
        6 => Write::Put(entry(at, rng.below(NODES))),
        7 => Write::Discard(entry(at, 0).key()),
        8 => Write::Count([Counter::UsedSpace, Counter::TotalInodes, Counter::DirMoves][at as usize % 3], 1),
        9 | 10 => Write::Refer(at, 1, 1),
        11 => Write::Use(Ino(at), stat),
        12 => Write::Charge(quota, 1, 1),
        _ => Write::Append(Ino(at), 0, vec![Slice::hole(0, 9)]),
    }
}

fn key(write: &Write) -> Option<Key> {
    Some(match write {
        Write::Put(row) | Write::Insert(row) => row.key(),
        Write::Discard(key) => key.clone(),
        Write::Bump { ino, .. } => Key::Node(*ino),
        Write::Count(counter, _) => Key::Counter(*counter),
        Write::Refer(id, size, _) => Key::SliceRef(*id, *size),
        Write::Use(ino, _) => Key::DirStat(*ino),
        Write::Charge(key, ..) => Key::Quota(*key),
        Write::Append(ino, index, _) => Key::Chunk(*ino, *index),
        _ => return None,
    })
}

/// Reads what it then expects and writes, in any order.
fn change(engine: &PostgresEngine, rng: &mut Rng, lane: u16) -> Result<(), EngineError> {
    let mut writes = BTreeMap::new();
    for _ in 0..2 + rng.below(8) {
        let write = write(rng);
        writes.extend(key(&write).map(|key| (key, write)));
    }
    let mut reads: Vec<Read> = (0..rng.below(4))
        .map(|_| {
            let at = rng.below(NODES);
            let key = if rng.below(3) == 0 { entry(at, 0).key() } else { Key::Node(Ino(at)) };
            Read::Get(key, if rng.below(2) == 0 { Hold::Guard } else { Hold::Lock })
        })
        .collect();
    reads.push(Read::Get(Key::Counter(Counter::DirMoves), Hold::Lock));
    let mut txn = engine.begin(lane)?;
    let found = txn.read(&reads)?;
    let expects = reads.iter().zip(found).filter_map(|(read, found)| match (read, found) {
        (Read::Get(_, hold), Found::Row(Some(row))) => Some(Expect::Row(row, *hold)),
        _ => None,
    });
    let mut writes: Vec<Write> = writes.into_values().collect();
    writes.push(Write::Tell(Change::Any));
    txn.commit(&Commit { step: None, expects: expects.collect(), writes })
}

#[test]
fn random_commits_of_two_clients_never_deadlock() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let engines = [open(&server.unix_url(&database)), open(&server.unix_url(&database))];
    let seed = 20;
    let committed: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|at| {
                let engine = &engines[at as usize % 2];
                scope.spawn(move || {
                    let mut rng = Rng::seeded(seed + at);
                    let mut committed = 0;
                    for _ in 0..COMMITS {
                        match change(engine, &mut rng, (at / 2) as u16) {
                            Ok(()) => committed += 1,
                            Err(EngineError::Conflict(keys)) => {
                                assert!(!keys.is_empty(), "seed {seed}: a deadlock");
                            }
                            Err(error) => panic!("seed {seed}: {error}"),
                        }
                    }
                    committed
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    });
    assert!(committed > COMMITS, "seed {seed}: only {committed} commits");
    assert_eq!(server.deadlocks(&database).expect("a number"), 0, "seed {seed}");
}

#[test]
fn storms_of_operations_never_deadlock() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let storm = || {
        let url = server.unix_url(&server.database().expect("a database"));
        SharedStore::new(move || std::sync::Arc::new(open(&url)))
    };
    sluice_testkit::operations::storm::a_storm_leaves_a_tree(&storm);
    sluice_testkit::operations::races::directories_that_cross_build_no_cycle(&storm);
    let all = "SELECT sum(deadlocks) FROM pg_stat_database";
    assert_eq!(server.sql_in(&database, all).expect("a number"), "0");
}
