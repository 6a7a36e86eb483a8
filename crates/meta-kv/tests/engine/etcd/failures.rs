//! What the engine says when the servers do not do what they should.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Engine, EngineError, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_meta_kv::EtcdEngine;
use sluice_testkit::server::{Behaviour, Proxy};
use sluice_types::Ino;

use crate::persist::persist;

use super::server::{self, commit, dir, get, step};

#[test]
fn nobody_there_is_unavailable_and_soon_said() {
    let start = Instant::now();
    let engine = EtcdEngine::open("etcd://127.0.0.1:1,127.0.0.1:2/nobody").expect("valid");
    let outcomes = [
        engine.prepare(),
        get(&engine, Key::Setting).map(drop),
        commit(&engine, vec![Write::Put(dir(1))]),
        commit(&engine, vec![Write::Put(Row::Chunk(Ino(1), 0, Vec::new()))]),
    ];
    for outcome in outcomes {
        assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(46), "{:?}", start.elapsed());
}

#[test]
fn wrong_urls_are_refused_before_anything_is_asked() {
    for (url, words) in [
        ("http://x", "etcd://"),
        ("etcd:///v", "no server"),
        ("etcd://h/v?cert=/c", "both cert and key"),
        ("etcd://h/v?max-txn-ops=few", "max-txn-ops=few"),
        ("etcd://h/v?cacert=/none/ca&cert=/c&key=/k", "/none/ca cannot be read"),
    ] {
        let refused = EtcdEngine::open(url).map(drop);
        assert!(
            matches!(&refused, Err(EngineError::Refused { reason, .. }) if reason.contains(words)),
            "{refused:?}"
        );
    }
}

/// Whichever member dies or freezes, the others go on, and nothing that was answered is lost.
#[test]
fn one_of_three_members_may_go() {
    let mut server = server::own(3, &[]);
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    let snapshot = engine.snapshot(1).expect("up").expect("etcd has snapshots");
    let mut n = 0;
    let mut go_on = || {
        let then = persist(|| snapshot.read(&[Read::Get(Key::Writer(4, 0)), Read::Get(Key::Node(Ino(10)))]));
        assert_eq!(
            then,
            [Found::Row(Some(Row::Writer(4, 0, 0))), Found::Row(None)],
            "the snapshot stays as it was"
        );
        for _ in 0..10 {
            // As the batcher does it: the number tells whether a commit in doubt happened.
            persist(|| match engine.commit(&step(n, 10 + n)) {
                Err(EngineError::Conflict(keys)) if keys.contains(&Key::Writer(4, 0)) => Ok(()),
                outcome => outcome,
            });
            n += 1;
            assert_eq!(persist(|| get(&engine, Key::Writer(4, 0))), Some(Row::Writer(4, 0, n)));
            assert_eq!(persist(|| get(&engine, Key::Node(Ino(9 + n)))), Some(dir(9 + n)));
        }
    };
    for member in 0..3 {
        server.kill(member);
        go_on();
        server.restart(member).expect("it starts again");
    }
    let leader = server.leader().expect("one leads");
    server.kill(leader);
    go_on();
    server.restart(leader).expect("it starts again");
    let leader = server.leader().expect("one leads");
    server.freeze(leader, true).expect("it runs");
    go_on();
    server.freeze(leader, false).expect("it runs");
    go_on();
}

#[test]
fn servers_that_died_are_waited_for_and_have_lost_nothing() {
    let mut server = server::own(1, &[]);
    let engine = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(dir(1)), Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    server.kill(0);
    let outcome = get(&engine, Key::Node(Ino(1)));
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
    let outcome = engine.commit(&step(0, 2));
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "nothing was sent: {outcome:?}");
    server.restart(0).expect("it starts again");
    assert_eq!(persist(|| get(&engine, Key::Node(Ino(1)))), Some(dir(1)));
    persist(|| engine.commit(&step(0, 2)));
    assert_eq!(get(&engine, Key::Writer(4, 0)), Ok(Some(Row::Writer(4, 0, 1))));
}

/// A commit whose answer is lost may have happened, and is never said not to have.
#[test]
fn a_commit_whose_answer_is_lost_is_in_doubt_and_happened_once() {
    let server = server::own(1, &[]);
    let proxy = Proxy::start(server.addrs()[0]).expect("a proxy");
    let engine = server::open(&format!("etcd://{}/v", proxy.addr()));
    let beside = server::open(&server.url("v"));
    commit(&engine, vec![Write::Insert(Row::Writer(4, 0, 0))]).expect("up");
    let mut doubts = 0;
    for n in 0..10 {
        // What was expected is known, so that the commit itself is what is cut sooner or later.
        proxy.cut_after_every(1 + n % 3);
        let outcome = engine.commit(&step(n, 10 + n));
        proxy.cut_after_every(0);
        let there = get(&beside, Key::Writer(4, 0)) == Ok(Some(Row::Writer(4, 0, n + 1)));
        match outcome {
            Ok(()) => assert!(there),
            Err(EngineError::Indeterminate { .. }) => doubts += 1,
            Err(EngineError::Unavailable { .. }) => assert!(!there),
            Err(error) => panic!("{error}"),
        }
        if !there {
            persist(|| engine.commit(&step(n, 10 + n)));
        }
        let again = persist(|| match engine.commit(&step(n, 10 + n)) {
            Err(EngineError::Conflict(keys)) => Ok(keys),
            other => other.map(|()| Vec::new()),
        });
        assert!(again.contains(&Key::Writer(4, 0)), "{again:?}");
        assert_eq!(get(&beside, Key::Node(Ino(10 + n))), Ok(Some(dir(10 + n))));
    }
    assert!(doubts > 0);
    // A server that nothing is heard of: the call ends all the same.
    let start = Instant::now();
    proxy.set(Behaviour { partition: true, ..Behaviour::default() });
    let outcome = engine.commit(&step(10, 30));
    assert!(
        matches!(outcome, Err(EngineError::Unavailable { .. } | EngineError::Indeterminate { .. })),
        "{outcome:?}"
    );
    assert!(start.elapsed() < Duration::from_secs(25), "{:?}", start.elapsed());
}
