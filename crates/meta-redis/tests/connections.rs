//! How many connections a client has, for how long, and what it says when it gets none.

use std::{sync::Arc, thread, time::Duration};

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_meta_redis::RedisEngine;
use sluice_testkit::{
    server::{Redis, RedisOptions, redis},
    wait,
};
use sluice_types::{Attr, FileType, Ino, Time};

fn open(server: &Redis, options: &str) -> RedisEngine {
    let engine = RedisEngine::open(&format!("{}?{options}", server.url(0))).expect("a valid URL");
    engine.prepare().expect("the server is up");
    engine
}

fn look(engine: &RedisEngine) {
    engine.read(&[Read::Get(Key::Node(Ino(1)))]).expect("up");
}

fn commit(engine: &RedisEngine) -> Result<(), EngineError> {
    let attr = Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 });
    let writes = vec![Write::Put(Row::Node(Ino(1), attr))];
    engine.commit(&Commit { writes, ..Commit::default() })
}

/// Connections that the server was asked for meanwhile, other than by this function.
fn connections(server: &Redis, mut work: impl FnMut()) -> u64 {
    let count = || {
        let count = server.info("total_connections_received").expect("up");
        count.parse::<u64>().expect("a number")
    };
    let before = count();
    work();
    count() - before - 1
}

#[test]
fn many_threads_share_as_many_connections_as_the_url_allows() {
    let server = redis().expect("a server");
    let engine = Arc::new(open(&server, "max-open-conns=2"));
    assert_eq!(engine.limits().lanes, 2);
    let made = connections(&server, || {
        thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        look(&engine);
                        commit(&engine).expect("up");
                    }
                });
            }
        });
    });
    assert!(made <= 2, "{made} connections");
}

#[test]
fn threads_that_connect_at_once_are_all_in_their_database() {
    let server = redis().expect("a server");
    let url = server.url(3);
    commit(&RedisEngine::open(&url).expect("valid")).expect("up");
    for _ in 0..20 {
        let engine = RedisEngine::open(&url).expect("valid");
        let together = std::sync::Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    let found = engine.read(&[Read::Get(Key::Node(Ino(1)))]).expect("up");
                    assert!(matches!(&found[..], [Found::Row(Some(_))]), "{found:?}");
                });
            }
        });
    }
}

#[test]
fn idle_connections_are_kept_as_the_url_says() {
    let server = redis().expect("a server");
    let engine = open(&server, "max_idle_conns=0");
    assert_eq!(connections(&server, || (0..5).for_each(|_| look(&engine))), 5);
    for options in ["max_idle_time=1ms", "max_life_time=1ms"] {
        let engine = open(&server, options);
        let is_new = || connections(&server, || look(&engine)) > 0;
        // The pause between two looks is longer than a connection is kept.
        wait::until(options, Duration::from_mins(1), is_new).expect("a new connection");
    }
    let engine = open(&server, "");
    assert_eq!(connections(&server, || (0..5).for_each(|_| look(&engine))), 0);
}

#[test]
fn a_server_that_takes_no_more_connections_says_what_to_do() {
    let config = vec!["maxclients 4".into()];
    let server = Redis::start(RedisOptions { config, ..RedisOptions::default() }).expect("a server");
    let engines: Vec<RedisEngine> = (0..4).map(|_| open(&server, "")).collect();
    let outcome = RedisEngine::open(&server.url(0)).expect("valid").prepare();
    let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("maxclients") && reason.contains("max_open_conns"), "{reason}");
    drop(engines);
}

#[test]
fn without_the_replicas_that_it_waits_for_nothing_is_acknowledged() {
    let server = redis().expect("a server");
    let url = format!("{}?wait-replicas=1&read-timeout=3s", server.url(0));
    let engine = RedisEngine::open(&url).expect("valid");
    let outcome = engine.prepare();
    let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("wait-replicas"), "{reason}");
    let outcome = commit(&engine);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
}
