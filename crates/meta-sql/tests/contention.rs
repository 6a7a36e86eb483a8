//! Several connections, threads and processes on one database.

mod support;

use std::{
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Write},
    schema::{Counter, Key, Notice, Row},
};
use sluice_meta_sql::SqliteEngine;
use support::{commit, fresh, get, open, url};

const COUNTER: Key = Key::Counter(Counter::NextSession);

fn value(engine: &SqliteEngine) -> i64 {
    match get(engine, COUNTER) {
        Some(Row::Counter(_, value)) => value,
        _ => 0,
    }
}

/// Adds one by reading first, as nothing should; what the commit expects makes it right.
fn increment(engine: &SqliteEngine) -> Result<(), EngineError> {
    loop {
        let (expect, now) = match engine.read(&[Read::Get(COUNTER)])?.pop() {
            Some(Found::Row(Some(row @ Row::Counter(_, value)))) => (Expect::Row(row, Hold::Lock), value),
            _ => (Expect::Absent(COUNTER), 0),
        };
        let writes = vec![Write::Put(Row::Counter(Counter::NextSession, now + 1))];
        match engine.commit(&Commit { expects: vec![expect], writes, ..Commit::default() }) {
            Err(EngineError::Conflict(_)) => {}
            ended => return ended,
        }
    }
}

const EACH: i64 = 300;

#[test]
fn connections_that_contend_lose_no_update() {
    let (dir, engine) = fresh();
    let path = dir.path().join("volume.db");
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let engine = open(&path);
                (0..EACH).for_each(|_| increment(&engine).expect("increment"));
            });
        }
        for _ in 0..2 {
            scope.spawn(|| (0..EACH).for_each(|_| increment(&engine).expect("increment")));
        }
    });
    assert_eq!(value(&engine), 5 * EACH);
}

/// Runs only as the child of the test below.
#[test]
fn the_other_process() {
    if let Ok(url) = std::env::var("SLUICE_TEST_URL") {
        let engine = SqliteEngine::open(&url).expect("open");
        (0..EACH).for_each(|_| increment(&engine).expect("increment"));
    }
}

#[test]
fn processes_that_contend_lose_no_update() {
    let (dir, engine) = fresh();
    let mut child = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "the_other_process"])
        .env("SLUICE_TEST_URL", url(&dir.path().join("volume.db")))
        .stdout(Stdio::null())
        .spawn()
        .expect("another process");
    (0..EACH).for_each(|_| increment(&engine).expect("increment"));
    assert!(child.wait().expect("its end").success());
    assert_eq!(value(&engine), 2 * EACH);
}

#[test]
fn who_holds_the_lock_too_long_makes_others_unavailable() {
    let (dir, engine) = fresh();
    let other =
        SqliteEngine::open(&format!("{}?_timeout=50", url(&dir.path().join("volume.db")))).expect("open");
    increment(&engine).expect("there is a table");
    let holder = rusqlite::Connection::open(dir.path().join("volume.db")).expect("open");
    holder.execute_batch("BEGIN IMMEDIATE").expect("the write lock");
    let since = Instant::now();
    assert!(matches!(increment(&other), Err(EngineError::Unavailable { .. })));
    assert!(since.elapsed() >= Duration::from_millis(50));
    assert_eq!(value(&other), 1, "reading needs no lock");
    drop(holder);
    increment(&other).expect("now it is free");
}

#[test]
fn readers_see_whole_commits_only() {
    let (_dir, engine) = fresh();
    let stop = AtomicBool::new(false);
    let pair = [Counter::UsedSpace, Counter::TotalInodes];
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                commit(&engine, pair.map(|counter| Write::Count(counter, 1)).to_vec()).expect("commit");
            }
            stop.store(true, Ordering::Release);
        });
        while !stop.load(Ordering::Acquire) {
            let reads = pair.map(|counter| Read::Get(Key::Counter(counter)));
            let found = engine.read(&reads).expect("read");
            let value = |at: usize| match &found[at] {
                Found::Row(Some(Row::Counter(_, value))) => *value,
                _ => 0,
            };
            assert_eq!(value(0), value(1));
        }
    });
}

#[test]
fn a_watch_hears_others_and_not_ourselves() {
    let (dir, engine) = fresh();
    let other = open(&dir.path().join("volume.db"));
    let mut watch = engine.watch().expect("watch");
    for _ in 0..5 {
        increment(&engine).expect("our own");
        assert_eq!(watch.next(Duration::ZERO).expect("next"), []);
        increment(&other).expect("another's");
        assert_eq!(watch.next(Duration::from_mins(1)).expect("next"), [Notice::anything()]);
        assert_eq!(watch.next(Duration::from_millis(30)).expect("next"), [], "told once");
    }
}

#[test]
fn sync_works_before_and_after_commits_and_in_every_journal_mode() {
    for journal in ["WAL", "DELETE"] {
        let dir = tempfile::tempdir().expect("a directory");
        let engine =
            SqliteEngine::open(&format!("{}?_journal={journal}", url(&dir.path().join("volume.db"))))
                .expect("open");
        engine.prepare().expect("prepare");
        engine.sync().expect("sync");
        for round in 1..=3 {
            increment(&engine).expect("increment");
            engine.sync().expect("sync");
            assert_eq!(value(&engine), round);
        }
    }
}

/// The last one to close the database leaves one file, which can be copied.
#[test]
fn the_log_goes_when_the_database_is_closed() {
    let (dir, engine) = fresh();
    increment(&engine).expect("increment");
    assert_eq!(value(&engine), 1);
    assert!(dir.path().join("volume.db-wal").exists(), "in use");
    drop(engine);
    let files: Vec<_> = dir.path().read_dir().expect("the directory").flatten().collect();
    assert_eq!(files.len(), 1, "{files:?}");
    assert_eq!(value(&open(&dir.path().join("volume.db"))), 1);
}
