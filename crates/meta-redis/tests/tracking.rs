//! What programs change that tell nothing reaches a listener that attends to them, and nothing else
//! does.

mod server;

use std::{
    sync::atomic::{AtomicU16, Ordering},
    time::{Duration, Instant},
};

use server::Server;
use sluice_meta::{
    engine::{Commit, Engine, Step, Watch, Write},
    schema::{Change, Entry, Notice, Row},
};
use sluice_meta_redis::RedisEngine;
use sluice_types::{Attr, FileType, Ino, Name, Time};

/// What is heard up to a message that `server` is made to publish by somebody else.
fn heard(server: &Server, other: &RedisEngine, watch: &mut dyn Watch) -> Vec<Notice> {
    commit(other, 9, vec![Write::Notify(Change::Lock(Ino(99)))]);
    let (mut all, deadline) = (Vec::new(), Instant::now() + Duration::from_mins(1));
    loop {
        assert!(Instant::now() < deadline, "heard {all:?} and then nothing");
        all.extend(watch.next(Duration::from_secs(1)).expect("up"));
        if let Some(end) = all.iter().position(|notice| notice.changes == [Change::Lock(Ino(99))]) {
            all.truncate(end);
            // A turn of the server's loop comes after it, with what that reports.
            assert!(server.call(&["PING"]).is_some());
            return all;
        }
    }
}

/// Commits as process `writer`, in a lane of its own.
fn commit(engine: &RedisEngine, writer: u64, writes: Vec<Write>) {
    static LANE: AtomicU16 = AtomicU16::new(0);
    let lane = LANE.fetch_add(1, Ordering::Relaxed);
    let commit = |commit: Commit| engine.commit(&commit).expect("commits");
    commit(Commit { writes: vec![Write::Put(Row::Writer(writer, lane, 0))], ..Commit::default() });
    let step = Some(Step { writer, lane, from: 0, to: 1 });
    commit(Commit { writes, step, ..Commit::default() });
}

fn creation(dir: u64, name: &str, ino: u64) -> Vec<Write> {
    let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(dir), Time::default());
    let name = Name::new(name.as_bytes()).expect("a name");
    vec![
        Write::Put(Row::Entry(Ino(dir), name.clone(), Entry { kind: FileType::File, ino: Ino(ino) })),
        Write::Insert(Row::Node(Ino(ino), attr)),
        Write::Notify(Change::Entry(Ino(dir), name)),
    ]
}

fn strangers(notice: &[Notice]) -> Vec<&Change> {
    let mut all: Vec<&Change> =
        notice.iter().filter(|notice| notice.writer == 0).flat_map(|notice| &notice.changes).collect();
    all.sort_by_key(|change| format!("{change:?}"));
    all
}

#[test]
fn changes_that_nobody_tells_are_heard() {
    let server = Server::start();
    let (engine, other) = (server.engine(0), server.engine(0));
    let mut watch = engine.watch().expect("up");
    server.call(&["SET", "i5", "before"]);
    assert_eq!(heard(&server, &other, &mut *watch), [], "nobody asked for it");
    assert!(watch.set_silent_clients(true).expect("up"));
    assert_eq!(watch.next(Duration::from_mins(1)).expect("up"), [Notice::anything()]);
    server.call(&["SET", "i5", "x"]);
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [&Change::Node(Ino(5))]);
    server.call(&["HSET", "d1", "name", "x"]);
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [&Change::Names(Ino(1))]);
    for key in ["dirUsedSpace", "i", "i5x", "c5_0", "x5"] {
        server.call(&["SET", key, "x"]);
    }
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [] as [&Change; 0], "nobody remembers those");
    server.call(&["FLUSHALL"]);
    assert!(heard(&server, &other, &mut *watch).contains(&Notice::anything()));
    assert!(!watch.set_silent_clients(false).expect("up"));
    assert_eq!(watch.next(Duration::from_mins(1)).expect("up"), [Notice::anything()]);
    server.call(&["SET", "i5", "y"]);
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [] as [&Change; 0]);
}

#[test]
fn changes_that_are_told_are_not_heard_twice() {
    let server = Server::start();
    let (engine, other) = (server.engine(0), server.engine(0));
    let mut watch = engine.watch().expect("up");
    assert!(watch.set_silent_clients(true).expect("up"));
    assert_eq!(watch.next(Duration::from_mins(1)).expect("up"), [Notice::anything()]);
    // Somebody waits for a lock, and hears all of it, too.
    let mut waiter = engine.watch().expect("up");
    for n in 0..200 {
        commit(&engine, 3, creation(1, &format!("own{n}"), 100 + n));
        assert_ne!(waiter.next(Duration::from_secs(20)).expect("up"), []);
    }
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [] as [&Change; 0], "own changes");
    commit(&other, 4, creation(1, "other", 500));
    // That a node was made is not told, and nobody knows it yet: it does no harm to be heard of.
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [&Change::Node(Ino(500))]);
    commit(&engine, 3, creation(1, "own", 600));
    server.call(&["SET", "i600", "x"]);
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [&Change::Node(Ino(600))], "later");
}

#[test]
fn a_new_connection_tracks_again() {
    let server = Server::start();
    let (engine, other) = (server.engine(0), server.engine(0));
    let mut watch = engine.watch().expect("up");
    assert!(watch.set_silent_clients(true).expect("up"));
    assert_eq!(watch.next(Duration::from_mins(1)).expect("up"), [Notice::anything()]);
    assert!(server.call(&["CLIENT", "KILL", "TYPE", "pubsub"]).is_some());
    assert_eq!(watch.next(Duration::from_mins(1)).expect("up"), [Notice::anything()], "a gap");
    server.call(&["SET", "i5", "x"]);
    assert_eq!(strangers(&heard(&server, &other, &mut *watch)), [&Change::Node(Ino(5))]);
}

#[test]
fn a_server_that_cannot_says_so() {
    let server = Server::start();
    assert!(server.call(&["ACL", "SETUSER", "default", "-client"]).is_some());
    let mut watch = server.engine(0).watch().expect("up");
    assert!(!watch.set_silent_clients(true).expect("up"));
    assert!(!watch.set_silent_clients(true).expect("it is not asked again"));
}
