//! What the engine says when the server does not do what it should.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Step, Write},
    schema::{Change, Counter, Key, Notice, Row, VolumeFormat},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::server::{self, Behaviour, Postgres, PostgresOptions, Proxy};
use sluice_types::{Ino, Name};

use super::{commit, dir, get, open};

fn refusal(url: &str) -> String {
    let refused = PostgresEngine::open(url).and_then(|engine| get(&engine, Key::Node(Ino(1))).map(drop));
    let text = match refused {
        Err(error @ EngineError::Refused { .. }) => error.to_string(),
        other => panic!("{url} is not refused: {other:?}"),
    };
    assert!(!text.contains("w/rd") && !text.contains("w%2Frd"), "{text}");
    text
}

fn unavailable<T: std::fmt::Debug>(outcome: Result<T, EngineError>) -> String {
    match outcome {
        Err(error @ EngineError::Unavailable { .. }) => error.to_string(),
        other => panic!("not unavailable: {other:?}"),
    }
}

#[test]
fn what_does_not_get_better_is_refused() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let url = server.url(&database);
    assert!(refusal(&url.replace("p%40ss", "wrong")).contains("user or password"));
    assert!(refusal(&url.replace(":p%40ss%3Aw%2Frd", "")).contains("META_PASSWORD"));
    assert!(refusal(&url.replace(&database, "nowhere")).contains("CREATE DATABASE"));
    assert!(refusal(&url).contains("sluice format"));
    let wrong = "has no option \"sslmod\"; there are host";
    assert!(refusal(&format!("{url}&sslmod=require")).contains(wrong));
    let schema = format!("{url}&search_path=nowhere");
    let prepared = PostgresEngine::open(&schema).expect("valid").prepare();
    assert!(
        matches!(&prepared, Err(EngineError::Refused { reason, .. }) if reason.contains("CREATE SCHEMA")),
        "{prepared:?}"
    );
    let engine = open(&url);
    server.sql_in(&database, "CREATE ROLE reader LOGIN PASSWORD 'p@ss:w/rd'").expect("a role");
    assert!(refusal(&url.replace("sluice:", "reader:")).contains("permission"));
    let name = Name::stored(b"user.\xff");
    let odd = commit(&engine, vec![Write::Insert(Row::Xattr(Ino(1), name.clone(), "v".into()))]);
    assert!(matches!(&odd, Err(EngineError::Refused { reason, .. }) if reason.contains("UTF-8")), "{odd:?}");
    assert_eq!(get(&engine, Key::Xattr(Ino(1), name)).expect("none"), None);
}

#[test]
fn what_may_get_better_is_unavailable() {
    let options = PostgresOptions {
        settings: vec!["max_connections=5".into(), "superuser_reserved_connections=0".into()],
        ..PostgresOptions::default()
    };
    let server = Postgres::start(&options).expect("a server");
    let database = server.database().expect("a database");
    let url = server.url(&database);
    let engine = open(&url);
    commit(&engine, vec![Write::Insert(dir(1))]).expect("up");
    // Listeners hold connections.
    let mut listeners = Vec::new();
    let full = loop {
        match engine.watch() {
            Ok(listener) => listeners.push(listener),
            Err(error) => break error,
        }
        assert!(listeners.len() < 6);
    };
    assert!(full.to_string().contains("max_connections"), "{full}");
    assert!(unavailable(PostgresEngine::open(&url).expect("valid").prepare()).contains("max_connections"));
    drop(listeners);
    server
        .sql_in(&database, &format!("ALTER DATABASE {database} SET default_transaction_read_only=on"))
        .expect("set");
    let reader = PostgresEngine::open(&url).expect("valid");
    assert_eq!(get(&reader, Key::Node(Ino(1))).expect("reads"), Some(dir(1)));
    assert!(unavailable(commit(&reader, vec![Write::Insert(dir(2))])).contains("read-only"));
    let writer = PostgresEngine::open(&format!("{url}&target_session_attrs=read-write")).expect("valid");
    assert!(unavailable(get(&writer, Key::Node(Ino(1)))).contains("read-only"));
    let nobody = "postgres://sluice@127.0.0.1:1/x?connect_timeout=1";
    unavailable(PostgresEngine::open(nobody).expect("valid").prepare());
}

#[test]
fn a_server_that_comes_back_is_used_again() {
    let mut server = Postgres::start(&PostgresOptions::default()).expect("a server");
    let database = server.database().expect("a database");
    let engine = open(&server.url(&database));
    let mut watch = engine.watch().expect("a listener");
    commit(&engine, vec![Write::Insert(dir(1))]).expect("up");
    // Idle connections that the server ended are not noticed by anybody.
    let ended =
        "SELECT count(pg_terminate_backend(pid,5000)) FROM pg_stat_activity WHERE application_name='sluice'";
    server.sql_in(&database, ended).expect("ended");
    commit(&engine, vec![Write::Insert(dir(2))]).expect("on a new connection");
    server.kill();
    // Those of its processes that had connections notice it a moment later.
    let until = Instant::now() + Duration::from_mins(1);
    while get(&engine, Key::Node(Ino(1))).is_ok() {
        assert!(Instant::now() < until, "a killed server goes on");
    }
    unavailable(commit(&engine, vec![Write::Insert(dir(3))]));
    server.restart().expect("again");
    assert_eq!(get(&engine, Key::Node(Ino(2))).expect("up"), Some(dir(2)));
    assert_eq!(get(&engine, Key::Node(Ino(3))).expect("up"), None);
    // The listener missed what there was, and says so.
    let mut notice = Vec::new();
    for _ in 0..10 {
        notice.extend(watch.next(Duration::from_secs(5)).unwrap_or_default());
        if !notice.is_empty() {
            break;
        }
    }
    assert_eq!(notice, [Notice::anything()]);
    commit(&engine, vec![Write::Notify(Change::Lock(Ino(9))), Write::Insert(dir(4))]).expect("up");
    assert_eq!(
        watch.next(Duration::from_secs(30)).expect("up"),
        [Notice::anonymous(vec![Change::Lock(Ino(9))])]
    );
}

#[test]
fn what_was_acknowledged_survives_a_crash() {
    let mut server = Postgres::start(&PostgresOptions::default()).expect("a server");
    let database = server.database().expect("a database");
    let engine = open(&server.unix_url(&database));
    for round in 1..=3 {
        let inos = round * 10..round * 10 + 5;
        for ino in inos.clone() {
            commit(&engine, vec![Write::Insert(dir(ino))]).expect("up");
        }
        server.kill();
        server.restart().expect("again");
        for ino in inos {
            assert_eq!(get(&engine, Key::Node(Ino(ino))).expect("up"), Some(dir(ino)), "round {round}");
        }
    }
}

#[test]
fn a_server_that_does_not_flush_on_request_waits_with_each_commit() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    open(&server.unix_url(&database));
    let lesser = "CREATE ROLE lesser LOGIN PASSWORD 'p@ss:w/rd'; \
                  GRANT ALL ON ALL TABLES IN SCHEMA public TO lesser; \
                  REVOKE EXECUTE ON FUNCTION pg_logical_emit_message(boolean,text,text) FROM PUBLIC";
    server.sql_in(&database, lesser).expect("a role");
    let engine = open(&server.url(&database).replace("sluice:", "lesser:"));
    let counted = |ino| vec![Write::Insert(dir(ino)), Write::Count(Counter::TotalInodes, 1)];
    let first = commit(&engine, counted(1));
    assert!(matches!(&first, Err(EngineError::Indeterminate { .. })), "{first:?}");
    commit(&engine, counted(2)).expect("as any server does");
    assert_eq!(get(&engine, Key::Node(Ino(1))).expect("up"), Some(dir(1)));
    engine.harden().expect("up");
}

#[test]
fn a_commit_in_doubt_is_not_taken_for_safe_before_it_is() {
    let server = Postgres::start(&PostgresOptions::default()).expect("a server");
    let database = server.database().expect("a database");
    let engine = open(&format!("{}&read_timeout=1s", server.unix_url(&database)));
    let format =
        VolumeFormat::parse(br#"{"Name":"x","UUID":"u","Storage":"file","Bucket":"/b/"}"#).expect("valid");
    commit(&engine, vec![Write::Insert(Row::setting(&format))]).expect("up");
    let standby = |name: &str| {
        let set = format!("ALTER SYSTEM SET synchronous_standby_names='{name}'");
        server.sql_in(&database, &set).expect("set");
        server.sql_in(&database, "SELECT pg_reload_conf()").expect("told");
    };
    // Its processes hear of that one after the other.
    let at_last = |done: &dyn Fn() -> bool| {
        let until = Instant::now() + Duration::from_mins(1);
        while !done() {
            assert!(Instant::now() < until, "the server does not hear");
        }
    };
    let doubtful = |write| matches!(commit(&engine, vec![write]), Err(EngineError::Indeterminate { .. }));
    standby("nobody");
    // What adds to the totals leaves it to what follows to wait for the standby, the other waits
    // itself.
    at_last(&|| doubtful(Write::Count(Counter::UsedSpace, 1)));
    assert!(doubtful(Write::Insert(dir(2))));
    unavailable(engine.harden());
    standby("");
    at_last(&|| engine.harden().is_ok());
    assert_eq!(get(&engine, Key::Node(Ino(2))).expect("up"), Some(dir(2)));
}

#[test]
fn a_lost_answer_to_a_commit_is_in_doubt() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let proxy = Proxy::start(server.addr()).expect("a proxy");
    let engine =
        open(&format!("{}&read_timeout=1s&connect_timeout=1s", server.url_at(proxy.addr(), &database)));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    let step = Step { writer: 4, lane: 0, from: 0, to: 1 };
    let lost = Commit { step: Some(step), writes: vec![Write::Insert(dir(2))], ..Commit::default() };
    proxy.cut_before_next_answer();
    let outcome = engine.commit(&lost);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    let again = engine.commit(&lost);
    assert!(
        matches!(&again, Err(EngineError::Conflict(keys)) if keys.contains(&Key::Writer(4, 0))),
        "{again:?}"
    );
    assert_eq!(get(&engine, Key::Node(Ino(2))).expect("up"), Some(dir(2)));
    // Answers that never come are not waited for beyond the deadline.
    proxy.set(Behaviour { drop_answers: true, ..Behaviour::default() });
    let step = Step { from: 1, to: 2, ..step };
    let outcome = engine.commit(&Commit { step: Some(step), ..Commit::default() });
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    unavailable(get(&engine, Key::Node(Ino(2))));
    proxy.heal();
    proxy.reset();
    assert_eq!(get(&engine, Key::Writer(4, 0)).expect("up"), Some(Row::Writer(4, 0, 2)));
}

#[test]
fn connections_are_bounded_and_given_back() {
    let server = server::postgres().expect("a server");
    let database = server.database().expect("a database");
    let url = server.unix_url(&database);
    open(&url);
    let url = format!("{url}&max_open_conns=2&max_idle_time=50ms&application_name=bounded");
    let engine = PostgresEngine::open(&url).expect("valid");
    assert_eq!(engine.limits().lanes, 1);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    get(&engine, Key::Node(Ino(1))).expect("up");
                }
            });
        }
        let count = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE datname='{database}' AND application_name='bounded'"
        );
        let open = server.sql_in("postgres", &count).expect("a number").parse::<u32>().expect("a number");
        assert!(open <= 2, "{open} connections");
    });
}
