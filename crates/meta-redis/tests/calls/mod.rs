//! An engine on servers that are up, and single calls to it.

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_meta_redis::RedisEngine;
use sluice_types::{Attr, FileType, Ino, Time};

pub(crate) fn open(url: &str) -> RedisEngine {
    let engine = RedisEngine::open(url).expect("a valid URL");
    engine.prepare().expect("the servers are up");
    engine
}

pub(crate) fn dir(ino: u64) -> Row {
    Row::Node(Ino(ino), Attr::new(FileType::Dir, 0o755, 0, 0, Ino(1), Time { sec: 5, nsec: 6 }))
}

pub(crate) fn commit(engine: &RedisEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

pub(crate) fn get(engine: &RedisEngine, ino: u64) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(Key::Node(Ino(ino)))])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}
