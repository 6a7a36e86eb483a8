//! What the engine says when the servers do not do what they should.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Commit, Cursor, Engine, EngineError, Expect, Found, Hold, Read, Scan, Step, Write},
    schema::{Key, Row},
};
use sluice_meta_kv::TikvEngine;
use sluice_testkit::server::{Tikv, TikvOptions, TikvPart};
use sluice_types::{Attr, FileType, Ino, Time};

use crate::persist::persist;

use super::server::{self, raw::Raw};

fn own() -> Tikv {
    Tikv::start(TikvOptions::default()).expect("TiKV starts")
}

fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

fn commit(engine: &TikvEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

fn get(engine: &TikvEngine, key: Key) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(key)])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}

fn step(from: u64, ino: u64) -> Commit {
    let step = Step { writer: 4, lane: 0, from, to: from + 1 };
    Commit { step: Some(step), writes: vec![Write::Insert(dir(ino))], ..Commit::default() }
}

#[test]
fn nobody_there_is_unavailable_and_soon_said() {
    let start = Instant::now();
    let engine = TikvEngine::open("tikv://127.0.0.1:1/nobody").expect("valid");
    let outcomes =
        [engine.prepare(), get(&engine, Key::Setting).map(drop), commit(&engine, vec![Write::Put(dir(1))])];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(46), "{:?}", start.elapsed());
    let lost =
        TikvEngine::open("tikv://127.0.0.1:1/x?ca=/none/ca&cert=/none/cert&key=/none/key").expect("valid");
    let outcome = lost.prepare();
    assert!(
        matches!(&outcome, Err(EngineError::Refused { reason, .. }) if reason.contains("/none/ca")),
        "{outcome:?}"
    );
}

#[test]
fn a_store_that_died_is_waited_for_and_has_lost_nothing() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(dir(1)), Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    // The store keeps locks in memory only: whatever is read is committed in all its keys.
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 0))));
    server.kill(TikvPart::Kv);
    let outcome = get(&engine, Key::Node(Ino(1)));
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    let outcome = engine.commit(&step(0, 2));
    let doubtful =
        matches!(outcome, Err(EngineError::Unavailable { .. } | EngineError::Indeterminate { .. }));
    assert!(doubtful, "{outcome:?}");
    server.restart(TikvPart::Kv).expect("it starts again");
    assert_eq!(persist(|| get(&engine, Key::Node(Ino(1)))), Some(dir(1)));
    // Whatever became of the first try, one of the two took the number.
    let again = engine.commit(&step(0, 2));
    assert!(again.is_ok() || matches!(again, Err(EngineError::Conflict(_))), "{again:?}");
    assert_eq!(persist(|| get(&engine, Key::Writer(4, 0))), Some(Row::Writer(4, 0, 1)));
    assert_eq!(persist(|| get(&engine, Key::Node(Ino(2)))), Some(dir(2)));
}

#[test]
fn a_placement_driver_that_died_is_waited_for() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(dir(1))]).expect("up");
    server.kill(TikvPart::Pd);
    let outcome = get(&engine, Key::Node(Ino(1)));
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    server.restart(TikvPart::Pd).expect("it starts again");
    assert_eq!(persist(|| get(&engine, Key::Node(Ino(1)))), Some(dir(1)));
    persist(|| commit(&engine, vec![Write::Put(dir(2))]));
}

#[test]
fn a_frozen_store_leaves_a_commit_in_doubt() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    server.fault("KvPrewrite", b"", "delay", 1, "60s").expect("up");
    let start = Instant::now();
    let outcome = engine.commit(&step(0, 2));
    assert!(
        matches!(outcome, Err(EngineError::Unavailable { .. } | EngineError::Indeterminate { .. }) | Ok(())),
        "{outcome:?}"
    );
    server.freeze(TikvPart::Kv);
    let outcome = engine.commit(&step(1, 3));
    assert!(
        matches!(outcome, Err(EngineError::Unavailable { .. } | EngineError::Indeterminate { .. })),
        "{outcome:?}"
    );
    assert!(start.elapsed() < Duration::from_mins(1), "calls have deadlines: {:?}", start.elapsed());
    server.thaw(TikvPart::Kv);
    assert!(persist(|| get(&engine, Key::Writer(4, 0))).is_some());
}

#[test]
fn a_lost_answer_is_asked_for_again() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    for (from, method) in (0..).zip(["KvPrewrite", "KvCommit", "KvBatchGet"]) {
        server.fault(method, b"", "drop-after", 1, "").expect("up");
        engine.commit(&step(from, 10 + from)).expect(method);
        assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, from + 1))));
        assert_eq!(get(&engine, Key::Node(Ino(10 + from))), Ok(Some(dir(10 + from))));
    }
}

#[test]
fn a_commit_whose_answers_are_all_lost_is_in_doubt_and_happened_once() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    server.fault("KvCommit", b"", "drop-after", -1, "").expect("up");
    let outcome = engine.commit(&step(0, 2));
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    server.clear_faults().expect("up");
    assert_eq!(persist(|| get(&engine, Key::Writer(4, 0))), Some(Row::Writer(4, 0, 1)));
    assert_eq!(get(&engine, Key::Node(Ino(2))), Ok(Some(dir(2))));
    let outcome = engine.commit(&step(0, 2));
    assert!(
        matches!(&outcome, Err(EngineError::Conflict(keys)) if keys.contains(&Key::Writer(4, 0))),
        "{outcome:?}"
    );
}

#[test]
fn what_never_reached_the_store_is_in_doubt_and_leaves_nothing() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    for (method, action) in [
        ("KvCommit", "drop-before"),
        ("KvPrewrite", "drop-before"),
        ("KvPrewrite", "drop-after"),
        ("KvPrewrite", "busy"),
    ] {
        server.fault(method, b"", action, -1, "").expect("up");
        let outcome = engine.commit(&step(0, 2));
        // Nobody but the first key of the transaction knows, and it cannot be asked: to undo the
        // others might tear it.
        assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{method} {action}: {outcome:?}");
        server.clear_faults().expect("up");
        assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 0))), "{method} {action}");
        assert_eq!(get(&engine, Key::Node(Ino(2))), Ok(None), "{method} {action}");
    }
    engine.commit(&step(0, 2)).expect("nothing is left of the others");
}

#[test]
fn regions_that_move_and_servers_that_are_busy_for_a_moment_are_not_noticed() {
    let server = own();
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    let mut from = 0;
    for action in ["notleader", "epoch"] {
        for method in ["KvBatchGet", "KvPrewrite", "KvCommit"] {
            server.fault(method, b"", action, 2, "").expect("up");
            let done = engine.commit(&step(from, 100 + from));
            done.unwrap_or_else(|error| panic!("{method} {action}: {error}"));
            from += 1;
            assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, from))));
        }
    }
    server.fault("KvBatchGet", b"", "busy", 3, "").expect("up");
    server.fault("KvScan", b"", "busy", 3, "").expect("up");
    let found = engine.read(&[Read::Get(Key::Node(Ino(100))), Read::Names { dir: Ino(1), limit: 5 }]);
    assert_eq!(found, Ok(vec![Found::Row(Some(dir(100))), Found::Names(Vec::new())]));
}

/// A client that ends between its two phases leaves locks; one that had reached only some servers
/// leaves locks that belong to nothing. Neither blocks anybody for long.
#[test]
fn locks_of_a_dead_client_go() {
    let server = own();
    let url = server.url("v");
    let engine = server::open(&url);
    // More than one request carries, so that they fare differently.
    let row = |ino: u64| Row::Symlink(Ino(ino), vec![b'x'; 4000].into());
    let rows: Vec<Row> = (100..140).map(row).collect();
    commit(&engine, rows.iter().cloned().map(Write::Insert).collect()).expect("up");
    server.fault("KvBatchRollback", b"", "drop-before", -1, "").expect("up");
    server.fault("KvCommit", b"", "drop-before", -1, "").expect("up");
    // The request with the first key never arrives, the others do.
    let first = [&b"v\xfdA"[..], &100_u64.to_le_bytes()].concat();
    server.fault("KvPrewrite", &first, "drop-before", -1, "").expect("up");
    let dead = server::open(&url);
    let writes = rows.iter().cloned().map(Write::Put).collect();
    let outcome = commit(&dead, writes);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    drop(dead);
    server.clear_faults().expect("up");
    let keys: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
    let found = persist(|| engine.read(&keys));
    assert!(found.iter().zip(&rows).all(|(found, row)| *found == Found::Row(Some(row.clone()))));
    persist(|| commit(&engine, vec![Write::Put(row(139)), Write::Put(row(100))]));
}

#[test]
fn a_damaged_record_is_named_and_nothing_is_written() {
    let url = server::fresh_url();
    let engine = server::open(&url);
    let node = b"A\x09\0\0\0\0\0\0\0I".to_vec();
    Raw::new(&url).put(&[(node, b"short".to_vec()), (b"CtotalInodes".to_vec(), b"many".to_vec())]);
    let outcome = get(&engine, Key::Node(Ino(9)));
    assert!(
        matches!(&outcome, Err(EngineError::Corrupt { record, .. }) if record.starts_with("A\\x09")),
        "{outcome:?}"
    );
    let count = Write::Count(sluice_meta::schema::Counter::TotalInodes, 1);
    let outcome = commit(&engine, vec![Write::Insert(dir(1)), count]);
    assert!(
        matches!(&outcome, Err(EngineError::Corrupt { record, .. }) if record == "CtotalInodes"),
        "{outcome:?}"
    );
    assert_eq!(get(&engine, Key::Node(Ino(1))), Ok(None));
}

/// A commit of three thousand records goes in many requests and happens at once.
#[test]
fn commits_and_reads_of_three_thousand_records() {
    let engine = server::open(&server::fresh_url());
    let rows: Vec<Row> = (10..3010).map(dir).collect();
    commit(&engine, rows.iter().cloned().map(Write::Insert).collect()).expect("split");
    let reads: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
    let found = engine.read(&reads).expect("split");
    assert!(found.iter().zip(&rows).all(|(found, row)| *found == Found::Row(Some(row.clone()))));
    let expects = rows.iter().map(|row| Expect::Row(row.clone(), Hold::Lock)).collect();
    let writes = rows.iter().map(|row| Write::Delete(row.key())).collect();
    let all = Commit { expects, writes, step: None };
    engine.commit(&all).expect("split");
    let again = engine.commit(&all);
    let Err(EngineError::Conflict(keys)) = again else { panic!("they are gone: {again:?}") };
    assert!(keys.len() >= rows.len());
}

#[test]
fn loads_and_scans_that_a_store_refuses_once_are_not_noticed() {
    let server = own();
    let engine = server::open(&server.url("v"));
    let mut loaded = 0;
    for action in ["drop-before", "drop-after", "busy", "notleader", "epoch"] {
        let rows: Vec<Row> = (0..1500).map(|at| dir(100 + loaded + at)).collect();
        server.fault("KvPrewrite", b"", action, 1, "").expect("up");
        engine.load(&rows).unwrap_or_else(|error| panic!("{action}: {error}"));
        loaded += rows.len() as u64;
        server.fault("KvScan", b"", action, 1, "").expect("up");
        let page = |from: Option<&Cursor>| {
            engine.scan(Scan::Inodes, from, 4000).unwrap_or_else(|error| panic!("{action}: {error}"))
        };
        let mut pages = vec![page(None)];
        while let Some(next) = pages[pages.len() - 1].next.clone() {
            pages.push(page(Some(&next)));
        }
        let found: usize = pages.iter().map(|page| page.rows.len()).sum();
        assert_eq!(found as u64, loaded, "{action}");
    }
}

#[test]
fn rows_of_one_region_are_loaded_in_one_phase() {
    let server = own();
    let engine = server::open(&server.url("v"));
    let rows: Vec<Row> = (100..1000).map(dir).collect();
    server.clear_faults().expect("up");
    engine.load(&rows).expect("load");
    let requests = server.requests().expect("up");
    let count = |method: &str| requests.iter().find(|(of, _)| of == method).map_or(0, |(_, count)| *count);
    assert_eq!((count("KvPrewrite"), count("KvCommit")), (1, 0), "{requests:?}");
}
