//! What the engine says when the server does not do what it should.

mod server;

use std::{process::Command, time::Duration};

use redis::Commands;
use server::Server;
use sluice_meta::{
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, Read, Step, Write},
    schema::{Change, Counter, Key, Notice, Row},
};
use sluice_meta_redis::{Config, RedisEngine};
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};

fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

fn commit(engine: &RedisEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

fn get(engine: &RedisEngine, key: Key) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(key)])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}

fn signal(server: &Server, name: &str) {
    let sent =
        Command::new("kill").args([name, &server.pid().to_string()]).status().expect("kill is installed");
    assert!(sent.success());
}

#[test]
fn a_dead_server_is_unavailable_and_the_answer_it_owes_is_in_doubt() {
    let mut server = Server::start();
    let engine = RedisEngine::open(&format!("{}&read-timeout=200ms", server.url(0))).expect("valid");
    engine.prepare().expect("up");
    commit(&engine, vec![Write::Insert(dir(1)), Write::Insert(Row::Writer(4, 0, 0))]).expect("up");

    signal(&server, "-STOP");
    let step = Step { writer: 4, lane: 0, from: 0, to: 1 };
    let lost = Commit { step: Some(step), writes: vec![Write::Insert(dir(2))], ..Commit::default() };
    let outcome = engine.commit(&lost);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    assert!(matches!(get(&engine, Key::Node(Ino(1))), Err(EngineError::Unavailable { .. })));
    signal(&server, "-CONT");

    // Whoever comes first, only one of the two takes the number.
    let again = engine.commit(&lost);
    if let Err(error) = &again {
        let EngineError::Conflict(keys) = error else { panic!("{error}") };
        assert!(keys.contains(&Key::Writer(4, 0)), "{keys:?}");
    }
    assert_eq!(get(&engine, Key::Writer(4, 0)).expect("up"), Some(Row::Writer(4, 0, 1)));
    assert_eq!(get(&engine, Key::Node(Ino(2))).expect("up"), Some(dir(2)));

    server.kill();
    let outcome = engine.commit(&lost);
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "no connection: {outcome:?}");
    let outcome = engine.commit(&lost);
    let doubtful =
        matches!(outcome, Err(EngineError::Indeterminate { .. } | EngineError::Unavailable { .. }));
    assert!(doubtful, "a connection that broke: {outcome:?}");
    assert!(matches!(get(&engine, Key::Node(Ino(1))), Err(EngineError::Unavailable { .. })));
}

#[test]
fn scripts_and_connections_that_the_server_forgot_are_made_again() {
    let server = Server::start();
    let engine = server.engine(0);
    commit(&engine, vec![Write::Insert(dir(1))]).expect("commit");
    server.call(&["SCRIPT", "FLUSH"]).expect("up");
    commit(&engine, vec![Write::Insert(dir(2))]).expect("the source is sent again");
    server.call(&["SCRIPT", "FLUSH"]).expect("up");
    let follow = Read::Follow(Ino(1), Name::stored(b"x"));
    let found = engine.read(&[follow, Read::Get(Key::Node(Ino(2)))]).expect("read");
    assert_eq!(found, [Found::Rows(vec![]), Found::Row(Some(dir(2)))]);
    server.call(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]).expect("up");
    assert_eq!(get(&engine, Key::Node(Ino(1))).expect("a new connection"), Some(dir(1)));
}

#[test]
fn keys_of_another_type_are_named_and_nothing_is_written() {
    let server = Server::start();
    let engine = server.engine(0);
    let mut raw = server.connection(0).expect("up");
    let () = raw.set("c7_0", "no list").expect("set");
    let () = raw.rpush("c7_1", "short").expect("pushed");
    let () = raw.set("totalInodes", "many").expect("set");
    let () = raw.set("delfiles", "no set").expect("set");
    let () = raw.set("x7", "no hash").expect("set");
    let () = raw.hset("dirUsedSpace", "7", "1e3").expect("set");
    let () = raw.hset("dirUsedInodes", "7", "1").expect("set");
    let name = Name::stored(b"user.a");
    for (write, record) in [
        (Write::Append(Ino(7), 0, vec![Slice::hole(0, 1)]), "c7_0"),
        (Write::Append(Ino(7), 1, vec![Slice::hole(0, 1)]), "c7_1"),
        (Write::Count(Counter::TotalInodes, 1), "totalInodes"),
        (Write::Put(Row::DelFile(Ino(7), 0, 1)), "delfiles"),
        (Write::Put(Row::Xattr(Ino(7), name.clone(), vec![1].into())), "x7"),
        (Write::Discard(Key::Xattr(Ino(7), name)), "x7"),
        (Write::Use(Ino(7), sluice_meta::schema::DirStat { length: 1, space: 1, inodes: 1 }), "dirUsedSpace"),
    ] {
        let outcome = commit(&engine, vec![Write::Insert(dir(1)), write, Write::Insert(dir(3))]);
        let Err(EngineError::Corrupt { record: named, .. }) = outcome else {
            panic!("{record}: {outcome:?}")
        };
        assert_eq!(named, record);
        assert_eq!(get(&engine, Key::Node(Ino(1))).expect("up"), None, "{record}");
    }
    let () = raw.set("i9", "short").expect("set");
    let () = raw.hset("d9", "odd", "entry").expect("set");
    let outcome = get(&engine, Key::Node(Ino(9)));
    assert!(matches!(&outcome, Err(EngineError::Corrupt { record, .. }) if record == "i9"), "{outcome:?}");
    let outcome = engine.read(&[Read::Follow(Ino(9), Name::stored(b"odd"))]);
    assert!(
        matches!(&outcome, Err(EngineError::Corrupt { record, .. }) if record == "d9 odd"),
        "{outcome:?}"
    );
}

#[test]
fn more_records_than_a_script_can_take_go_to_a_chunk_at_once() {
    let server = Server::start();
    let engine = server.engine(0);
    let records: Vec<Slice> = (1..=20_001).map(|id| Slice::whole(0, id, 1)).collect();
    commit(&engine, vec![Write::Append(Ino(7), 0, records.clone())]).expect("appended");
    let found = get(&engine, Key::Chunk(Ino(7), 0)).expect("up");
    assert_eq!(found, Some(Row::Chunk(Ino(7), 0, records)));
}

#[test]
fn passwords_are_asked_for_and_never_shown() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Server::start_open(dir, &["--requirepass", "correct-horse"], Some("correct-horse"));
    let mut config = Config::parse(&server.url(0)).expect("valid");
    let outcome = RedisEngine::with_config(config.clone()).expect("valid").prepare();
    assert!(matches!(outcome, Err(EngineError::Refused { .. })), "{outcome:?}");
    config.password = Some("battery-staple".into());
    let outcome = RedisEngine::with_config(config.clone()).expect("valid").prepare();
    let Err(error @ EngineError::Refused { .. }) = outcome else { panic!("{outcome:?}") };
    assert!(!format!("{error} {error:?} {config:?}").contains("battery"), "{error}");
    config.password = Some("correct-horse".into());
    RedisEngine::with_config(config).expect("valid").prepare().expect("the right one");
}

#[test]
fn a_user_without_rights_to_the_channel_is_told_and_a_commit_that_tells_nobody_is_whole() {
    let server = Server::start();
    let grant = |channels| {
        let rules = ["ACL", "SETUSER", "u", "on", ">p", "~*", "+@all", channels];
        server.call(&rules).expect("Redis 6.2 or newer");
    };
    let mut config = Config::parse(&server.url(3)).expect("valid");
    (config.user, config.password) = (Some("u".into()), Some("p".into()));
    let engine = RedisEngine::with_config(config).expect("valid");
    grant("resetchannels");
    let outcome = engine.prepare();
    let Err(EngineError::Refused { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    let (_, rule) = reason.split_once("ACL SETUSER u ").expect("what to do");
    grant(rule.split(' ').next().expect("a pattern"));
    engine.prepare().expect("that was all");
    grant("resetchannels");
    let notify = Write::Notify(Change::Lock(Ino(1)));
    commit(&engine, vec![Write::Insert(dir(1)), notify]).expect("it happened");
    assert_eq!(get(&engine, Key::Node(Ino(1))).expect("up"), Some(dir(1)));
}

/// Database 0 may be another volume's.
#[test]
fn a_user_who_may_not_choose_the_database_is_refused_and_one_who_may_not_ask_for_information_is_not() {
    let server = Server::start();
    let url = server.url(3).replace("unix://", "unix://u:p@");
    for (denied, fits) in [("-select", false), ("-info", true)] {
        let rules = ["ACL", "SETUSER", "u", "reset", "on", ">p", "~*", "&*", "+@all", denied];
        server.call(&rules).expect("Redis 7");
        let engine = RedisEngine::open(&url).expect("valid");
        match get(&engine, Key::Node(Ino(1))) {
            Err(EngineError::Refused { reason, .. }) if !fits => {
                assert!(reason.contains("lacks a permission"), "{reason}");
            }
            found => assert!(fits && matches!(found, Ok(None)), "{denied}: {found:?}"),
        }
    }
}

#[test]
fn a_full_memory_refuses_whole_commits() {
    let server = Server::start();
    let engine = server.engine(0);
    let policy = server.call(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"]);
    assert!(policy.is_some());
    engine.prepare().expect("up");
    let policy = format!("{:?}", server.call(&["CONFIG", "GET", "maxmemory-policy"]));
    assert!(policy.contains("noeviction"), "{policy}");
    commit(&engine, vec![Write::Insert(dir(1)), Write::Insert(dir(2))]).expect("room");
    server.call(&["CONFIG", "SET", "maxmemory", "1"]).expect("up");
    let bump = Write::Bump { ino: Ino(1), nlink: 1, time: None };
    for first in [Write::Insert(dir(3)), Write::Put(dir(2)), bump] {
        let outcome = commit(&engine, vec![first, Write::Insert(dir(4))]);
        assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    }
    assert_eq!(get(&engine, Key::Node(Ino(1))).expect("reads go on"), Some(dir(1)));
    assert_eq!(get(&engine, Key::Node(Ino(3))).expect("reads go on"), None);
}

#[test]
fn a_listener_that_lost_its_connection_says_that_anything_may_have_changed() {
    let server = Server::start();
    let (engine, elsewhere) = (server.engine(2), server.engine(3));
    let mut watch = engine.watch().expect("up");
    let notify =
        |engine: &RedisEngine, ino| commit(engine, vec![Write::Notify(Change::Lock(Ino(ino)))]).expect("up");
    assert_eq!(watch.next(Duration::from_millis(1)).expect("up"), []);
    notify(&elsewhere, 1);
    notify(&engine, Ino::TRASH.0);
    let mut next = || loop {
        let changes = watch.next(Duration::from_secs(20)).expect("up");
        if !changes.is_empty() {
            return changes;
        }
    };
    assert_eq!(
        next(),
        [Notice::anonymous(vec![Change::Lock(Ino::TRASH)])],
        "databases do not hear each other"
    );
    server.call(&["CLIENT", "KILL", "TYPE", "pubsub"]).expect("up");
    assert_eq!(next(), [Notice::anything()]);
    notify(&engine, 8);
    assert_eq!(next(), [Notice::anonymous(vec![Change::Lock(Ino(8))])]);
}

/// Operations of several thousand arguments are split.
#[test]
fn commits_and_reads_of_ten_thousand_records() {
    let server = Server::start();
    let engine = server.engine(0);
    let rows: Vec<Row> = (10..10_010).map(dir).collect();
    commit(&engine, rows.iter().cloned().map(Write::Insert).collect()).expect("split");
    let reads: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
    let found = engine.read(&reads).expect("split");
    assert!(found.iter().zip(&rows).all(|(found, row)| *found == Found::Row(Some(row.clone()))));
    let expects = rows.iter().map(|row| Expect::Row(row.clone(), Hold::Lock)).collect();
    let writes = rows.iter().map(|row| Write::Delete(row.key())).collect();
    let all = Commit { expects, writes, step: None };
    engine.commit(&all).expect("split");
    let Err(EngineError::Conflict(keys)) = engine.commit(&all) else { panic!("gone") };
    assert_eq!(keys.len(), rows.len());
}
