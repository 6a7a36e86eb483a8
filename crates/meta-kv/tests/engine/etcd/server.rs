//! One etcd for all tests of a program; each test has a prefix of its own.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read, Step, Write},
    schema::{Key, Row},
};
use sluice_meta_kv::EtcdEngine;
use sluice_testkit::server::{Etcd, EtcdOptions};
use sluice_types::{Attr, FileType, Ino, Time};

/// The server, which ends with this program.
fn shared() -> &'static Etcd {
    static SHARED: OnceLock<Etcd> = OnceLock::new();
    SHARED.get_or_init(|| {
        // The contract's tests commit thousands of records at once.
        let mut server = own(1, &["--max-txn-ops=8192", "--max-request-bytes=33554432"]);
        server.outlive_tests().expect("it runs");
        server
    })
}

/// Members of a test's own.
pub(super) fn own(members: usize, arguments: &[&str]) -> Etcd {
    let arguments = arguments.iter().map(ToString::to_string).collect();
    Etcd::start(&EtcdOptions { members, arguments, ..EtcdOptions::default() }).expect("etcd starts")
}

/// URL of a volume that nobody else has.
pub(super) fn fresh_url() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    shared().url(&format!("test{}", NEXT.fetch_add(1, Ordering::Relaxed)))
}

pub(super) fn open(url: &str) -> EtcdEngine {
    let engine = EtcdEngine::open(url).expect("a valid URL");
    engine.prepare().expect("the servers are up");
    engine
}

/// Gives up all versions but the newest, and answers its revision.
pub(super) fn compact(server: &Etcd) -> i64 {
    let question = format!("{{\"key\":\"{}\"}}", BASE64_STANDARD.encode("x"));
    let answer = server.ask(0, "kv/range", &question).expect("it answers");
    let revision = answer["header"]["revision"].as_str().and_then(|n| n.parse().ok()).expect("a number");
    // Somebody else may have been faster.
    let _ = server.ask(0, "kv/compaction", &format!("{{\"revision\":\"{revision}\",\"physical\":true}}"));
    revision
}

pub(super) fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

pub(super) fn commit(engine: &EtcdEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

pub(super) fn get(engine: &EtcdEngine, key: Key) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(key)])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}

/// The commit that takes lane 0 of writer 4 one further and makes a node.
pub(super) fn step(from: u64, ino: u64) -> Commit {
    let step = Step { writer: 4, lane: 0, from, to: from + 1 };
    Commit { step: Some(step), writes: vec![Write::Insert(dir(ino))], ..Commit::default() }
}
