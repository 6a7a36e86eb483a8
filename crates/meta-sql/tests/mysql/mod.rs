//! Volumes on a MariaDB server of the tests' own, which all tests of a file share.

#![allow(dead_code, reason = "each test file uses its part")]

use sluice_meta::{
    engine::{Commit, Engine, EngineError, Found, Read, Write},
    schema::{Key, Row},
};
use sluice_meta_sql::MysqlEngine;
use sluice_testkit::server::{Mariadb, mariadb};

pub(crate) fn server() -> &'static Mariadb {
    mariadb().expect("MariaDB is installed: make setup")
}

pub(crate) fn open(url: &str) -> MysqlEngine {
    MysqlEngine::open(url, None).expect("a valid URL")
}

/// An empty database, prepared.
pub(crate) fn fresh() -> MysqlEngine {
    let engine = open(&fresh_url());
    engine.prepare().expect("prepare");
    engine
}

pub(crate) fn fresh_url() -> String {
    let database = server().database().expect("a database");
    server().unix_url(&database)
}

pub(crate) fn commit(engine: &MysqlEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

pub(crate) fn get(engine: &MysqlEngine, key: Key) -> Result<Option<Row>, EngineError> {
    match engine.read(&[Read::Get(key)])?.pop() {
        Some(Found::Row(row)) => Ok(row),
        other => panic!("{other:?}"),
    }
}
