//! The engine on a Redis Cluster: three masters, the volume in one slot.

mod calls;
mod load;

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use calls::{commit, dir, get, open};
use redis::Commands;
use sluice_meta::{
    engine::{Engine, EngineError, Found, Read, Scan, Write},
    schema::{Change, Key, Notice, Row},
};
use sluice_meta_redis::RedisEngine;
use sluice_testkit::server::{RedisCluster, RedisOptions};
use sluice_types::{FileType, Ino, Name};

/// The cluster of all tests that do not change it; each has a volume of its own.
static CLUSTER: LazyLock<RedisCluster> = LazyLock::new(|| {
    let mut cluster = RedisCluster::start(false, &RedisOptions::default()).expect("a cluster");
    cluster.outlive_tests().expect("nodes run");
    cluster
});

fn volume() -> u32 {
    static LAST: AtomicU32 = AtomicU32::new(0);
    LAST.fetch_add(1, Ordering::SeqCst) + 1
}

fn fresh() -> Arc<dyn Engine> {
    Arc::new(open(&CLUSTER.url(volume())))
}

mod conformance {
    sluice_testkit::conformance_tests!(super::fresh);
}

#[test]
fn every_node_leads_to_the_volume_and_all_of_it_is_in_one_slot() {
    let db = volume();
    let nodes = &CLUSTER.nodes;
    for (ino, node) in (2..).zip(nodes) {
        commit(&open(&node.url(0).replace("/0", &format!("/{db}"))), vec![Write::Insert(dir(ino))])
            .expect("as if it were there");
    }
    commit(
        &open(&nodes[0].unix_url(0).replace("db=0", &format!("db={db}"))),
        vec![Write::Insert(Row::Writer(4, 0, 0))],
    )
    .expect("a socket, too");
    let owner = CLUSTER.owner(db).expect("an owner");
    let client = redis::Client::open(nodes[owner].url(0)).expect("valid");
    let mut keys: Vec<String> = client.get_connection().expect("up").keys(format!("{{{db}}}*")).expect("up");
    keys.sort_unstable();
    let names = ["i2", "i3", "i4", "sluice:writers"].map(|name| format!("{{{db}}}{name}"));
    assert_eq!(keys, names);
}

#[test]
fn messages_reach_listeners_of_the_same_volume() {
    let (db, other) = (volume(), volume());
    let (engine, elsewhere) = (open(&CLUSTER.url(db)), open(&CLUSTER.url(other)));
    let mut watch = engine.watch().expect("up");
    let notify =
        |engine: &RedisEngine, ino| commit(engine, vec![Write::Notify(Change::Lock(Ino(ino)))]).expect("up");
    notify(&elsewhere, 1);
    notify(&open(&CLUSTER.url(db)), 7);
    let mut next = || loop {
        let changes = watch.next(Duration::from_secs(20)).expect("up");
        if !changes.is_empty() {
            return changes;
        }
    };
    assert_eq!(next(), [Notice::anonymous(vec![Change::Lock(Ino(7))])]);
    for node in &CLUSTER.nodes {
        node.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).expect("up");
    }
    assert_eq!(next(), [Notice::anything()]);
    notify(&engine, 8);
    assert_eq!(next(), [Notice::anonymous(vec![Change::Lock(Ino(8))])]);
}

#[test]
fn what_is_no_cluster_is_named() {
    let server = sluice_testkit::server::redis().expect("a server");
    let url = format!("redis://{0},{0}/1", server.addr());
    let outcome = RedisEngine::open(&url).expect("valid").prepare();
    assert!(
        outcome.as_ref().is_err_and(|error| error.to_string().contains("belongs to no cluster")),
        "{outcome:?}"
    );
    let gone = server.addr();
    drop(server);
    let outcome = RedisEngine::open(&format!("redis://{gone},{gone}/1")).expect("valid").prepare();
    assert!(matches!(outcome, Err(EngineError::Unavailable { .. })), "{outcome:?}");
}

#[test]
fn encrypted_with_a_password() {
    let config = vec!["user jane on >correct-horse ~* &* +@all".into()];
    let options = RedisOptions { tls: true, config, ..RedisOptions::default() };
    let cluster = RedisCluster::start(false, &options).expect("a cluster");
    let plain = cluster.url(3);
    let (_, hosts) = plain.split_once("://").expect("a URL");
    let authority = cluster.nodes[0].authority();
    let url = format!("rediss://jane:correct-horse@{hosts}?tls-ca-cert-file={}", authority.display());
    let engine = open(&url);
    commit(&engine, vec![Write::Insert(dir(2))]).expect("up");
    assert_eq!(get(&engine, 2).expect("up"), Some(dir(2)));
    let mut watch = engine.watch().expect("listens");
    commit(&engine, vec![Write::Notify(Change::Lock(Ino(9)))]).expect("up");
    assert_eq!(
        watch.next(Duration::from_secs(20)).expect("up"),
        [Notice::anonymous(vec![Change::Lock(Ino(9))])]
    );
    let other = format!("rediss://jane:correct-horse@{hosts}");
    let outcome = RedisEngine::open(&other).expect("valid").prepare();
    assert!(
        matches!(outcome, Err(EngineError::Unavailable { .. })),
        "nobody trusts its authority: {outcome:?}"
    );
    let outcome = RedisEngine::open(&format!("{other}?insecure-skip-verify=true")).expect("valid").prepare();
    outcome.expect("does not look");
    let outcome = RedisEngine::open(&url.replace("horse", "donkey")).expect("valid").prepare();
    let Err(error) = outcome else { panic!("any password will do") };
    assert!(!format!("{error} {error:?}").contains("donkey"), "{error}");
}

#[test]
fn while_the_slot_moves_nothing_happens_by_halves() {
    let cluster = RedisCluster::start(false, &RedisOptions::default()).expect("a cluster");
    let engine = open(&cluster.url(1));
    let names: Vec<Name> = (0..1000).map(|n| Name::stored(format!("x{n}").as_bytes())).collect();
    let entry = |name: &Name| {
        Row::Entry(Ino(2), name.clone(), sluice_meta::schema::Entry { kind: FileType::Dir, ino: Ino(3) })
    };
    commit(&engine, names.iter().map(|name| Write::Insert(entry(name))).collect()).expect("up");
    commit(&engine, vec![Write::Insert(dir(2)), Write::Insert(dir(3))]).expect("up");
    let from = cluster.owner(1).expect("an owner");
    let to = (from + 1) % 3;
    let list = Scan::Entries { dir: Ino(2), nodes: false };
    let begun = engine.scan(list, None, 10).expect("up");
    assert!(begun.next.is_some());
    let all_about_inodes = || {
        let (mut seen, mut next) = (Vec::new(), None);
        loop {
            let page = engine.scan(Scan::Inodes, next.as_ref(), 1000)?;
            seen.extend(page.rows);
            next = page.next;
            if next.is_none() {
                return Ok::<_, EngineError>(seen);
            }
        }
    };

    cluster.begin_move(1, from, to).expect("begun");
    cluster.nodes[from]
        .command(&[
            "MIGRATE",
            "127.0.0.1",
            &cluster.nodes[to].addr().port().to_string(),
            "{1}i2",
            "0",
            "9000",
        ])
        .expect("moved");
    for ino in [2, 3] {
        assert_eq!(get(&engine, ino).expect("asked where it is"), Some(dir(ino)));
    }
    let both = [2, 3].map(|ino| Read::Get(Key::Node(Ino(ino))));
    let unavailable = |outcome: Result<(), EngineError>| {
        let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
        assert!(reason.contains("moving the volume"), "{reason}");
    };
    unavailable(engine.read(&both).map(drop));
    unavailable(engine.scan(Scan::Nodes, None, 10).map(drop));
    unavailable(all_about_inodes().map(drop));
    unavailable(commit(&engine, vec![Write::Put(dir(3)), Write::Insert(dir(4)), Write::Put(dir(2))]));

    while cluster.move_keys(1, from, to, 10).expect("moved") > 0 {}
    cluster.end_move(1, to).expect("ended");
    let found = engine.read(&both).expect("all is there");
    assert_eq!(found, [Found::Row(Some(dir(2))), Found::Row(Some(dir(3)))]);
    assert_eq!(get(&engine, 4).expect("up"), None, "nothing was written");
    let seen = all_about_inodes().expect("up");
    assert!([dir(2), dir(3)].iter().all(|node| seen.contains(node)), "nodes are missing");
    // The rest of the listing comes from another process, where its cursor means nothing.
    let (mut seen, mut next) = (begun.rows, begun.next);
    while let Some(from) = next {
        let page = engine.scan(list, Some(&from), 100).expect("up");
        seen.extend(page.rows);
        next = page.next;
    }
    assert!(names.iter().all(|name| seen.contains(&entry(name))), "names are missing");
}

#[test]
fn a_slot_that_moves_under_load_loses_nothing() {
    let cluster = RedisCluster::start(false, &RedisOptions::default()).expect("a cluster");
    let store = load::store(&cluster.url(1));
    let clients = load::clients(&store);
    let from = cluster.owner(1).expect("an owner");
    let to = (from + 1) % 3;
    let made = load::during(&clients, || {
        cluster.begin_move(1, from, to).expect("begun");
        while cluster.move_keys(1, from, to, 50).expect("moved") > 0 {}
        cluster.end_move(1, to).expect("ended");
    });
    assert!(load::lost(&store, &made).iter().all(std::ops::Range::is_empty));
    assert_eq!(cluster.owner(1).expect("an owner"), to);
}

#[test]
fn a_node_that_dies_under_load_is_replaced_by_its_replica() {
    let mut cluster = RedisCluster::start(true, &RedisOptions::default()).expect("a cluster");
    let store = load::store(&cluster.url(1));
    let clients = load::clients(&store);
    let from = cluster.owner(1).expect("an owner");
    cluster.order(from, &["WAIT", "1", "10000"]).expect("up");
    let made = load::during(&clients, || {
        cluster.nodes[from].kill();
        assert_ne!(cluster.owner(1).expect("another owner"), from);
    });
    // Replication is asynchronous: of what was acknowledged the last may be gone, and nothing else.
    println!("lost: {:?} of {made:?}", load::lost(&store, &made));
}

#[test]
fn only_keys_with_the_prefix_of_a_volume_are_in_its_way() {
    let db = volume();
    let engine = open(&CLUSTER.url(db));
    let owner = CLUSTER.owner(db).expect("an owner");
    let client = redis::Client::open(CLUSTER.nodes[owner].url(0)).expect("valid");
    let mut connection = client.get_connection().expect("up");
    let mut set = |key: String| connection.set::<_, _, ()>(key, 1).expect("up");
    // In the same slot, and not of the volume.
    set(format!("other{{{db}}}"));
    engine.check_vacant().expect("nothing of it is there");
    set(format!("{{{db}}}mine"));
    let Err(EngineError::Refused { reason, .. }) = engine.check_vacant() else { panic!("accepted") };
    assert!(reason.contains(&format!("the key `{{{db}}}mine`")) && !reason.contains("FLUSHDB"), "{reason}");
}
