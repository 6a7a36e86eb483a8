//! The PostgreSQL engine on a real server.

mod conformance;
mod deadlocks;
mod failures;
mod links;
mod operations;
mod volumes;

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_meta_sql::PostgresEngine;
use sluice_testkit::server;
use sluice_types::{Attr, FileType, Ino, Time};

/// A new, empty volume on the server that the tests of this process share; its URL.
fn fresh_url() -> String {
    let server = server::postgres().expect("a server");
    server.unix_url(&server.database().expect("a database"))
}

fn open(url: &str) -> PostgresEngine {
    let engine = PostgresEngine::open(url).expect("a valid URL");
    engine.prepare().expect("prepare");
    engine
}

fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

fn commit(engine: &PostgresEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

fn get(engine: &PostgresEngine, key: Key) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(key)])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}
