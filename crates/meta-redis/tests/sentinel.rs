//! The engine on a master that sentinels watch over.

mod calls;
mod load;

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use calls::{commit, dir, get, open};
use sluice_meta::{
    engine::{Engine, EngineError, Write},
    schema::{Change, Notice},
};
use sluice_meta_redis::{Config, RedisEngine};
use sluice_testkit::server::{RedisOptions, RedisSentinel, redis};
use sluice_types::Ino;

/// The group of all tests that do not change it; each has a database of its own.
static GROUP: LazyLock<RedisSentinel> = LazyLock::new(|| {
    let options = RedisOptions { config: vec!["databases 2000".into()], ..RedisOptions::default() };
    let mut group = RedisSentinel::start(&options).expect("a group");
    group.outlive_tests().expect("all run");
    group
});

fn fresh() -> Arc<dyn Engine> {
    static LAST: AtomicU32 = AtomicU32::new(0);
    Arc::new(open(&GROUP.url(LAST.fetch_add(1, Ordering::SeqCst))))
}

mod conformance {
    sluice_testkit::conformance_tests!(super::fresh);
}

#[test]
fn sentinels_that_do_not_know_or_do_not_answer_are_named() {
    let gone = {
        let server = redis().expect("a server");
        server.addr()
    };
    let sentinel = GROUP.sentinels[0].addr();
    // One that knows is enough.
    open(&format!("redis://group,{gone},{sentinel}/1999"));
    let outcome = RedisEngine::open(&format!("redis://nobody,{gone},{sentinel}/1")).expect("valid").prepare();
    let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    assert!(
        reason.contains("watches no master called nobody") && reason.contains(&gone.to_string()),
        "{reason}"
    );
    let server = GROUP.servers[0].addr();
    let outcome = RedisEngine::open(&format!("redis://group,{server}/1")).expect("valid").prepare();
    let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("is it a sentinel?"), "{reason}");
}

/// Answers everybody as a sentinel does that knows of `failovers`, until the test ends.
fn sentinel_that_says(master: SocketAddr, failovers: u64) -> SocketAddr {
    let text = |text: &str| format!("${}\r\n{text}\r\n", text.len());
    let address = text(&master.ip().to_string()) + &text(&master.port().to_string());
    let about = text("config-epoch") + &text(&failovers.to_string());
    let answer = format!("*2\r\n{address}*2\r\n{about}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let here = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        while let Ok((mut socket, _)) = listener.accept() {
            let mut asked = [0; 512];
            if socket.read(&mut asked).is_ok_and(|length| length > 0) {
                // Who hung up needs no answer.
                let _ = socket.write_all(answer.as_bytes());
            }
        }
    });
    here
}

#[test]
fn the_sentinel_that_knows_of_the_latest_failover_is_believed() {
    let (old, new) = (redis().expect("a server"), redis().expect("a server"));
    let behind = sentinel_that_says(old.addr(), 6);
    let ahead = sentinel_that_says(new.addr(), 7);
    // The kernel takes connections for it, and nobody answers.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent_at = silent.local_addr().expect("bound");
    let engine = open(&format!("redis://group,{silent_at},{behind},{ahead},{behind}/1?dial-timeout=5s"));
    commit(&engine, vec![Write::Insert(dir(1))]).expect("up");
    assert_eq!(get(&open(&new.url(1)), 1).expect("up"), Some(dir(1)));
    assert_eq!(get(&open(&old.url(1)), 1).expect("up"), None);
}

#[test]
fn a_replica_in_the_url_is_called_one() {
    let replica = open(&GROUP.servers[1].url(98));
    assert_eq!(get(&replica, 1).expect("it can be read"), None);
    let outcome = commit(&replica, vec![Write::Insert(dir(1))]);
    let Err(EngineError::Unavailable { reason, .. }) = &outcome else { panic!("{outcome:?}") };
    assert!(reason.contains("read-only replica") && reason.contains("sentinels"), "{reason}");
}

/// An encrypted group whose master dies under load, and comes back as a replica. What is
/// acknowledged has reached the replica, so nothing may be lost.
#[test]
fn a_master_that_dies_under_load_is_replaced() {
    let options = RedisOptions { tls: true, ..RedisOptions::default() };
    let mut group = RedisSentinel::start(&options).expect("a group");
    let authority = group.servers[0].authority();
    let url = format!("{}?wait-replicas=1&tls-ca-cert-file={}", group.url(1), authority.display());
    let store = load::store(&url);
    let clients = load::clients(&store);
    let engine = open(&url);
    let mut watch = engine.watch().expect("listens");
    let made = load::during(&clients, || {
        let gone = group.kill_master().expect("killed");
        group.wait_for_other_than(gone).expect("replaced");
        group.servers[gone].restart().expect("back");
    });
    let lost = load::lost(&store, &made);
    assert!(lost.iter().all(std::ops::Range::is_empty), "lost: {lost:?} of {made:?}");
    while !watch.next(Duration::from_secs(20)).expect("up").contains(&Notice::anything()) {}
    commit(&engine, vec![Write::Notify(Change::Lock(Ino(9)))]).expect("up");
    while !watch
        .next(Duration::from_secs(20))
        .expect("up")
        .contains(&Notice::anonymous(vec![Change::Lock(Ino(9))]))
    {}
}

#[test]
fn a_commit_in_doubt_is_not_taken_for_safe_before_a_replica_has_it() {
    let group = RedisSentinel::start(&RedisOptions::default()).expect("a group");
    let url = format!("{}?wait-replicas=1&read-timeout=3s", group.servers[0].url(1));
    let engine = open(&url);
    engine.harden().expect("nothing is in doubt");
    group.servers[1].freeze(true).expect("stopped");
    let outcome = commit(&engine, vec![Write::Insert(dir(1))]);
    assert!(matches!(outcome, Err(EngineError::Indeterminate { .. })), "{outcome:?}");
    assert!(matches!(engine.harden(), Err(EngineError::Unavailable { .. })));
    group.servers[1].freeze(false).expect("goes on");
    let until = std::time::Instant::now() + Duration::from_mins(1);
    while let Err(error) = engine.harden() {
        assert!(std::time::Instant::now() < until, "{error}");
    }
    assert_eq!(get(&open(&group.servers[1].url(1)), 1).expect("up"), Some(dir(1)));
}

#[test]
fn a_master_that_was_made_a_replica_is_left() {
    let group = RedisSentinel::start(&RedisOptions::default()).expect("a group");
    let engine = open(&format!("{}?read-timeout=5s&wait-replicas=1", group.url(1)));
    commit(&engine, vec![Write::Insert(dir(1))]).expect("up");
    group.sentinels[0].command(&["SENTINEL", "FAILOVER", "group"]).expect("ordered");
    group.wait_for_other_than(0).expect("replaced");
    let until = std::time::Instant::now() + Duration::from_mins(1);
    // A failed commit is tried again, as those who call the engine do.
    while let Err(error) = commit(&engine, vec![Write::Put(dir(2))]) {
        let passes = matches!(error, EngineError::Unavailable { .. } | EngineError::Indeterminate { .. });
        assert!(passes && std::time::Instant::now() < until, "{error}");
        std::thread::yield_now();
    }
    // The old master takes writes until it is told; those are not acknowledged.
    for ino in [1, 2] {
        assert_eq!(get(&open(&group.servers[1].url(1)), ino).expect("up"), Some(dir(ino)));
    }

    // Sentinels may want a password of their own.
    for sentinel in &group.sentinels {
        let set =
            sentinel.command(&["ACL", "SETUSER", "default", "resetpass", ">of-the-sentinel"]).expect("up");
        assert!(set.starts_with(b"+OK"), "{}", String::from_utf8_lossy(&set));
    }
    let mut config = Config::parse(&group.url(1)).expect("valid");
    let outcome = RedisEngine::with_config(config.clone()).expect("valid").prepare();
    assert!(
        outcome.as_ref().is_err_and(|error| error.to_string().contains("SENTINEL_PASSWORD")),
        "{outcome:?}"
    );
    config.sentinel_password = Some("of-the-sentinel".into());
    let engine = RedisEngine::with_config(config).expect("valid");
    engine.prepare().expect("the right one");
    assert_eq!(get(&engine, 1).expect("up"), Some(dir(1)));
}
