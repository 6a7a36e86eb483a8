//! What the engine says when the server does not do what it should.

mod mysql;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use mysql::{commit, get, open, server};
use sluice_meta::{
    Interrupt, Meta, Options,
    engine::{Commit, Engine, EngineError, Expect, Hold, Step, Write},
    ops::{self, compact::Compact},
    schema::{Change, Counter, Entry, Key, Notice, Row, VolumeFormat},
};
use sluice_meta_sql::MysqlEngine;
use sluice_testkit::server::{Behaviour, Mariadb, MariadbOptions, Proxy, mariadb::USER};
use sluice_types::{Attr, FileType, FsError, Ino, Name, Slice, Time};

fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

fn refused(outcome: Result<impl std::fmt::Debug, EngineError>, wanted: &str) {
    match outcome {
        Err(EngineError::Refused { engine, reason }) => {
            assert!(reason.contains(wanted), "{reason}");
            assert!(!engine.contains("secret") && !reason.contains("secret"), "{engine} {reason}");
        }
        other => panic!("wanted a refusal for {wanted}, got {other:?}"),
    }
}

fn unavailable(outcome: Result<impl std::fmt::Debug, EngineError>, wanted: &str) {
    match outcome {
        Err(EngineError::Unavailable { reason, .. }) => assert!(reason.contains(wanted), "{reason}"),
        other => panic!("wanted: not available for {wanted}, got {other:?}"),
    }
}

fn setting(url: &str) -> Result<Option<Row>, EngineError> {
    get(&open(url), Key::Setting)
}

#[test]
fn wrong_names_are_refused_by_what_they_are() {
    let server = server();
    let database = server.database().expect("a database");
    assert_eq!(setting(&server.url(&database)), Ok(None), "an empty database is no volume yet");
    let commit_there = commit(&open(&server.url(&database)), vec![Write::Insert(dir(1))]);
    refused(commit_there, "sluice format");
    refused(setting(&format!("mysql://{USER}:secret@({})/{database}", server.addr())), "password");
    refused(setting(&server.url("nowhere")), "CREATE DATABASE nowhere");
    server.sql("CREATE USER guest IDENTIFIED BY 'secret'").expect("a user");
    refused(setting(&format!("mysql://guest:secret@({})/{database}", server.addr())), "GRANT");
    refused(setting(&format!("{}?tls=true", server.url(&database))), "tls=false");
    assert_eq!(setting(&format!("{}?tls=preferred", server.url(&database))), Ok(None));
    let wrong = setting(&format!("{}?no_such_variable=1", server.url(&database)));
    refused(wrong, "has no option \"no_such_variable\"; there are max_open_conns");
    // Nobody listens at a port that was just free.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    unavailable(setting(&format!("mysql://{USER}:x@({free})/{database}")), "refused");
}

#[test]
fn values_that_do_not_fit_are_refused_and_change_nothing() {
    let engine = mysql::fresh();
    let large = Row::Xattr(Ino(5), Name::stored(b"user.a"), vec![7; 65_536].into());
    refused(commit(&engine, vec![Write::Insert(dir(5)), Write::Insert(large)]), "larger");
    // No text.
    let odd = Row::Xattr(Ino(5), Name::stored(b"user.\xff"), vec![7].into());
    refused(commit(&engine, vec![Write::Insert(dir(5)), Write::Insert(odd)]), "text");
    assert_eq!(get(&engine, Key::Node(Ino(5))), Ok(None));
    assert_eq!(get(&engine, Key::Xattr(Ino(5), Name::stored(b"user.\xff"))), Ok(None), "it is not there");
    commit(&engine, vec![Write::Insert(dir(5))]).expect("the engine goes on");
}

#[test]
fn a_commit_larger_than_a_packet_goes_in_several_and_is_one() {
    let mut server = Mariadb::start(&MariadbOptions {
        arguments: vec!["--max-allowed-packet=1M".into()],
        ..MariadbOptions::default()
    })
    .expect("start");
    let engine = open(&server.url(&server.database().expect("a database")));
    engine.prepare().expect("prepare");
    let name = |n: u32| Name::stored(format!("user.{n}").as_bytes());
    let value = |n: u32| Row::Xattr(Ino(5), name(n), vec![n as u8; 60_000].into());
    let many = || (0..40).map(|n| Write::Insert(value(n)));
    let last = Write::Delete(Key::Node(Ino(404)));
    let outcome = commit(&engine, many().chain([last]).collect());
    assert_eq!(outcome, Err(EngineError::Conflict(vec![Key::Node(Ino(404))])));
    assert_eq!(get(&engine, Key::Xattr(Ino(5), name(0))), Ok(None), "all or nothing");
    commit(&engine, many().collect()).expect("commit");
    assert_eq!(get(&engine, Key::Xattr(Ino(5), name(39))), Ok(Some(value(39))));
    server.kill();
}

#[test]
fn damaged_rows_are_named_and_hide_no_others() {
    let server = server();
    let database = server.database().expect("a database");
    let engine = open(&server.unix_url(&database));
    engine.prepare().expect("prepare");
    let entry = Row::Entry(Ino(1), Name::stored(b"a"), Entry { kind: FileType::Dir, ino: Ino(5) });
    let chunk = Row::Chunk(Ino(5), 3, vec![Slice::whole(0, 1, 1)]);
    commit(&engine, [dir(5), entry.clone(), chunk.clone()].map(Write::Insert).to_vec()).expect("insert");
    server
        .sql(&format!(
            "USE {database}; UPDATE jfs_node SET type=9; UPDATE jfs_edge SET type=0; \
             UPDATE jfs_chunk SET slices=x'00112233'"
        ))
        .expect("damage");
    for (row, name) in [(dir(5), "jfs_node 5"), (entry, "jfs_edge 1 a"), (chunk, "jfs_chunk 5 3")] {
        match get(&engine, row.key()) {
            Err(EngineError::Corrupt { record, .. }) => assert_eq!(record, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert_eq!(get(&engine, Key::Session(1)), Ok(None), "the rest stays readable");
    // What would be appended could never be read.
    let append = |index| {
        vec![Write::Count(Counter::NextTrash, 1), Write::Append(Ino(5), index, vec![Slice::whole(0, 2, 1)])]
    };
    match commit(&engine, append(3)) {
        Err(EngineError::Corrupt { record, .. }) => assert_eq!(record, "jfs_chunk 5 3"),
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&engine, Key::Counter(Counter::NextTrash)), Ok(None), "all or nothing");
    commit(&engine, append(4)).expect("its other chunks are sound");
}

#[test]
fn a_chunk_without_room_is_named_until_it_is_compacted() {
    let engine = Arc::new(mysql::fresh());
    let settings = VolumeFormat { name: "full".into(), trash_days: 0, ..VolumeFormat::default() };
    Meta::format(engine.as_ref(), &settings, Time { sec: 1, nsec: 0 }).expect("format");
    let (key, never) = (Key::Chunk(Ino(5), 3), Interrupt::never());
    let file = Row::Node(Ino(5), Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }));
    let old: Vec<Slice> = (1..=2700).map(|id| Slice::whole(0, id, 1)).collect();
    let append = |index, slices: Vec<Slice>| Write::Append(Ino(5), index, slices);
    commit(&engine, vec![Write::Insert(file), append(3, old.clone())]).expect("as many as fit");
    let more: Vec<Slice> = (3001..=3100).map(|id| Slice::whole(0, id, 1)).collect();
    let beside = Write::Count(Counter::NextTrash, 1);
    let full = commit(&engine, vec![beside.clone(), append(3, more.clone()), append(4, more.clone())]);
    assert_eq!(full, Err(EngineError::Full(vec![key.clone()])));
    assert_eq!(get(&engine, beside_key()), Ok(None), "all or nothing");
    let far_too_many = commit(&engine, vec![append(4, vec![Slice::whole(0, 1, 1); 2731])]);
    assert_eq!(far_too_many, Err(EngineError::Full(vec![Key::Chunk(Ino(5), 4)])));

    let meta = Meta::open(engine.clone(), Options::default()).expect("open");
    let write = |index| ops::write::Write {
        ino: Ino(5),
        index,
        slices: more.clone(),
        mtime: Time { sec: 9, nsec: 0 },
    };
    assert_eq!(meta.run(write(3), &never).map(drop), Err(FsError::TooBig), "the caller can make room");
    let compact = Compact { ino: Ino(5), index: 3, old, keep: 0, new: Slice::whole(0, 9000, 1) };
    meta.run(compact, &never).expect("compact");
    meta.run(write(3), &never).expect("there is room");
    let Ok(Some(Row::Chunk(_, _, slices))) = get(&engine, key) else { panic!("no chunk") };
    assert_eq!(slices.len(), 101);
    meta.close().expect("close");
}

fn beside_key() -> Key {
    Key::Counter(Counter::NextTrash)
}

#[test]
fn a_lost_commit_that_is_seen_is_made_as_safe_as_others() {
    let server = Mariadb::start(&MariadbOptions {
        durable: true,
        arguments: vec!["--innodb-flush-log-at-timeout=2700".into()],
    })
    .expect("start");
    let engine = open(&server.url(&server.database().expect("a database")));
    engine.prepare().expect("prepare");
    let flushing = |how| server.sql(&format!("SET GLOBAL innodb_flush_log_at_trx_commit={how}"));
    // Seen, and not flushed yet.
    flushing(0).expect("set");
    commit(&engine, vec![Write::Insert(dir(5))]).expect("up");
    assert_eq!(get(&engine, Key::Node(Ino(5))), Ok(Some(dir(5))));
    let seen = server.status("Innodb_lsn_current").expect("a number");
    flushing(1).expect("set");
    engine.harden().expect("up");
    let flushed = server.status("Innodb_lsn_flushed").expect("a number");
    assert!(flushed >= seen, "{flushed} of {seen}");
}

/// What fits into a packet when it is made also does when it is compared, replaced and removed.
#[test]
fn a_value_that_nearly_fills_a_packet_is_replaced() {
    let server = Mariadb::start(&MariadbOptions {
        arguments: vec!["--max-allowed-packet=64K".into()],
        ..MariadbOptions::default()
    })
    .expect("start");
    let engine = open(&server.url(&server.database().expect("a database")));
    engine.prepare().expect("prepare");
    for bytes in (10_000..32_000).step_by(1000) {
        let value = |byte| Row::Xattr(Ino(5), Name::stored(b"user.a"), vec![byte; bytes].into());
        let lock = |row| vec![Expect::Row(row, Hold::Lock)];
        commit(&engine, vec![Write::Put(value(1))]).expect("it fits");
        let held = |expects, write| engine.commit(&Commit { step: None, expects, writes: vec![write] });
        held(lock(value(1)), Write::Put(value(2))).unwrap_or_else(|error| panic!("{bytes}: {error}"));
        let removed = held(lock(value(2)), Write::Delete(value(2).key()));
        removed.unwrap_or_else(|error| panic!("{bytes}: {error}"));
    }
}

#[test]
fn a_lost_answer_to_a_commit_is_in_doubt_and_it_happens_once() {
    let server = server();
    let proxy = Proxy::start(server.addr()).expect("a proxy");
    let database = server.database().expect("a database");
    let engine = open(&server.url_at(proxy.addr(), &database));
    engine.prepare().expect("prepare");
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("register");
    let step = Step { writer: 4, lane: 0, from: 0, to: 1 };
    let lost = Commit { step: Some(step), writes: vec![Write::Insert(dir(2))], ..Commit::default() };
    proxy.cut_before_next_answer();
    let outcome = engine.commit(&lost);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    // Whether the server noticed the cut before COMMIT or not: it happens once.
    match engine.commit(&lost) {
        Ok(()) => {}
        Err(EngineError::Conflict(keys)) => assert!(keys.contains(&Key::Writer(4, 0)), "{keys:?}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 1))));
    assert_eq!(get(&engine, Key::Node(Ino(2))), Ok(Some(dir(2))));

    // A read is asked again on a new connection, whatever became of the old ones.
    proxy.reset();
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 1))));
    proxy.set(Behaviour { refuse: true, ..Behaviour::default() });
    proxy.reset();
    assert!(matches!(get(&engine, Key::Node(Ino(2))), Err(EngineError::Unavailable { .. })));
    let outcome = engine.commit(&lost);
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "nothing was sent: {outcome:?}");
    proxy.heal();
    assert_eq!(get(&engine, Key::Node(Ino(2))), Ok(Some(dir(2))));
}

#[test]
fn a_silent_server_is_waited_for_until_the_deadline() {
    let server = server();
    let proxy = Proxy::start(server.addr()).expect("a proxy");
    let database = server.database().expect("a database");
    let engine = open(&format!("{}?readTimeout=200ms&timeout=300ms", server.url_at(proxy.addr(), &database)));
    engine.prepare().expect("prepare");
    proxy.set(Behaviour { partition: true, ..Behaviour::default() });
    let since = Instant::now();
    unavailable(get(&engine, Key::Node(Ino(1))), "deadline");
    assert!(since.elapsed() < Duration::from_secs(20));
    proxy.heal();
    proxy.reset();
    assert_eq!(get(&engine, Key::Node(Ino(1))), Ok(None));
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let mut server = Mariadb::start(&MariadbOptions::default()).expect("start");
    let engine = open(&server.url(&server.database().expect("a database")));
    engine.prepare().expect("prepare");
    commit(&engine, vec![Write::Insert(dir(1))]).expect("commit");
    server.kill();
    assert!(matches!(get(&engine, Key::Node(Ino(1))), Err(EngineError::Unavailable { .. })));
    let outcome = commit(&engine, vec![Write::Insert(dir(2))]);
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    server.restart().expect("restart");
    assert_eq!(get(&engine, Key::Node(Ino(1))), Ok(Some(dir(1))), "what was committed stays");
    commit(&engine, vec![Write::Insert(dir(2))]).expect("commit");
}

#[test]
fn too_many_connections_and_a_replica_are_waited_out() {
    let server = Mariadb::start(&MariadbOptions {
        arguments: vec!["--max-connections=10".into()],
        ..MariadbOptions::default()
    })
    .expect("start");
    let url = server.url(&server.database().expect("a database"));
    let engine = open(&url);
    engine.prepare().expect("prepare");
    server
        .sql(&format!("REVOKE ALL ON *.* FROM {USER}; GRANT SELECT,INSERT,UPDATE,DELETE ON *.* TO {USER}"))
        .expect("no superuser");
    server.sql("SET GLOBAL read_only=1").expect("a replica");
    // The rights of a connection are those it began with.
    let engine = {
        drop(engine);
        open(&url)
    };
    unavailable(commit(&engine, vec![Write::Insert(dir(1))]), "read-only");
    server.sql("SET GLOBAL read_only=0").expect("the primary");
    commit(&engine, vec![Write::Insert(dir(1))]).expect("it is the primary now");

    let others: Vec<MysqlEngine> = (0..30).map(|_| open(&url)).collect();
    let outcomes: Vec<_> = others.iter().map(|other| get(other, Key::Node(Ino(1)))).collect();
    assert!(outcomes.iter().any(Result::is_ok));
    for outcome in outcomes.into_iter().filter(Result::is_err) {
        unavailable(outcome, "max_connections");
    }
    drop(others);
    assert_eq!(get(&engine, Key::Node(Ino(1))), Ok(Some(dir(1))));
}

#[test]
fn a_pool_keeps_its_limit_and_who_waits_is_served() {
    let server = server();
    let database = server.database().expect("a database");
    // The server lists for a moment what has gone, so none may go.
    let url = format!("{}?max_open_conns=2&max_idle_conns=2", server.url(&database));
    let engine = open(&url);
    engine.prepare().expect("prepare");
    assert_eq!(engine.limits().lanes, 1);
    let stop = AtomicBool::new(false);
    let most = std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                while !stop.load(Ordering::Acquire) {
                    get(&engine, Key::Node(Ino(1))).expect("served");
                }
            });
        }
        let count = format!("SELECT COUNT(*) FROM information_schema.processlist WHERE db='{database}'");
        let looks = (0..10).map(|_| server.sql(&count).expect("a look").parse::<u64>().expect("a number"));
        let most = looks.max();
        stop.store(true, Ordering::Release);
        most
    });
    assert!((1..=2).contains(&most.expect("looks")), "{most:?}");
}

#[test]
fn what_one_client_tells_another_hears_in_time() {
    let url = mysql::fresh_url();
    let (engine, other) = (open(&url), open(&url));
    engine.prepare().expect("prepare");
    let mut watch = engine.watch().expect("watch");
    assert_eq!(watch.next(Duration::from_millis(150)), Ok(vec![]));
    let hear = || {
        commit(&other, vec![Write::Notify(Change::Lock(Ino(5)))]).expect("tell");
        let since = Instant::now();
        assert_eq!(watch.next(Duration::from_mins(1)), Ok(vec![Notice::anything()]));
        let took = since.elapsed();
        assert_eq!(watch.next(Duration::ZERO), Ok(vec![]), "told once");
        took
    };
    let mut took: Vec<_> = std::iter::repeat_with(hear).take(5).collect();
    took.sort_unstable();
    assert!(took[2] < Duration::from_secs(1), "usually, on a machine that is busy: {took:?}");
}

#[test]
fn a_table_prefix_keeps_volumes_of_one_database_apart() {
    let url = mysql::fresh_url();
    let volumes =
        ["", "?table_prefix=a", "?table_prefix=sluice_B"].map(|option| open(&format!("{url}{option}")));
    for (engine, ino) in volumes.iter().zip(10..) {
        engine.prepare().expect("prepare");
        engine.prepare().expect("again");
        let entry = Entry { kind: FileType::Dir, ino: Ino(ino) };
        let named = Row::Entry(Ino(1), Name::stored(b"jfs_node sluice_"), entry);
        commit(engine, vec![Write::Insert(dir(ino)), Write::Insert(named)]).expect("commit");
    }
    for (engine, ino) in volumes.iter().zip(10..) {
        for other in 10..13 {
            let there = (other == ino).then(|| dir(other));
            assert_eq!(get(engine, Key::Node(Ino(other))), Ok(there));
        }
    }
    sluice_testkit::conformance::logs::logs_are_apart(&volumes);
}

#[test]
fn an_expectation_of_text_that_others_spelled_holds() {
    let server = server();
    let database = server.database().expect("a database");
    let engine = open(&server.unix_url(&database));
    engine.prepare().expect("prepare");
    server
        .sql(&format!(
            "INSERT INTO {database}.jfs_setting VALUES ('format','{{\\n\"Name\":\"x\",\\n\"UUID\":\"u\",\"Storage\":\"file\",\
             \"Bucket\":\"/b/\",\"BlockSize\":4096,\"TrashDays\":1}}')"
        ))
        .expect("as others write it");
    let found = engine.read(&[sluice_meta::engine::Read::Get(Key::Setting)]).expect("read");
    let [sluice_meta::engine::Found::Row(Some(row))] = &found[..] else { panic!("{found:?}") };
    let expects = vec![Expect::Row(row.clone(), Hold::Lock)];
    engine
        .commit(&Commit { expects, writes: vec![Write::Insert(dir(1))], step: None })
        .expect("it is what it was");
}

#[test]
fn connections_are_encrypted_as_the_url_says() {
    let certificates = tempfile::tempdir().expect("a directory");
    let dir = certificates.path();
    let key = "-newkey rsa:2048 -nodes -days 3650";
    std::fs::write(dir.join("names"), "subjectAltName=IP:127.0.0.1").expect("written");
    for words in [
        format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN=authority"),
        format!("req -new {key} -keyout server.key -out server.csr -subj /CN=server"),
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -extfile names -out server.pem"
            .into(),
    ] {
        let mut openssl = std::process::Command::new("openssl");
        let output = openssl.args(words.split(' ')).current_dir(dir).output().expect("openssl is installed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let at = |file: &str| dir.join(file).display().to_string();
    let server = Mariadb::start(&MariadbOptions {
        arguments: vec![
            format!("--ssl-cert={}", at("server.pem")),
            format!("--ssl-key={}", at("server.key")),
        ],
        ..MariadbOptions::default()
    })
    .expect("start");
    let url = server.url(&server.database().expect("a database"));
    for option in ["skip-verify", "preferred", &format!("true&tls-ca-cert-file={}", at("ca.pem"))] {
        assert_eq!(setting(&format!("{url}?tls={option}")), Ok(None), "{option}");
    }
    // Nobody we know has signed it.
    assert!(setting(&format!("{url}?tls=true")).is_err());
    server.sql(&format!("ALTER USER {USER} REQUIRE SSL")).expect("alter");
    refused(setting(&url), "password");
    assert_eq!(setting(&format!("{url}?tls=preferred")), Ok(None));
}
