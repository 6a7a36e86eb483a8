//! What several tests need: a fresh volume, copies of volumes that JuiceFS wrote, short ways to
//! read and commit.

#![allow(dead_code, reason = "each test uses some of it")]

use std::{fs, path::Path};

use sluice_meta::engine::{Commit, Engine, EngineError, Found, Page, Read, Scan, Write};
use sluice_meta::schema::{Key, Row};
use sluice_meta_sql::SqliteEngine;
use tempfile::TempDir;

/// A fresh, prepared database; it lives as long as the directory.
pub(crate) fn fresh() -> (TempDir, SqliteEngine) {
    let dir = tempfile::tempdir().expect("a directory");
    let engine = open(&dir.path().join("volume.db"));
    engine.prepare().expect("prepare");
    (dir, engine)
}

pub(crate) fn open(path: &Path) -> SqliteEngine {
    SqliteEngine::open(&url(path)).expect("open")
}

pub(crate) fn url(path: &Path) -> String {
    format!("sqlite3://{}", path.display())
}

/// A copy of a volume that JuiceFS wrote.
pub(crate) fn fixture(name: &str) -> (TempDir, SqliteEngine) {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("volume.db");
    let packed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(format!("{name}.db.gz"));
    let mut unpacked = fs::File::create(&path).expect("the copy");
    let mut packed = flate2::read::GzDecoder::new(fs::File::open(packed).expect("the fixture"));
    std::io::copy(&mut packed, &mut unpacked).expect("unpack");
    drop(unpacked);
    let engine = open(&path);
    (dir, engine)
}

pub(crate) fn commit(engine: &SqliteEngine, writes: Vec<Write>) -> Result<(), EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

pub(crate) fn get(engine: &SqliteEngine, key: Key) -> Option<Row> {
    match engine.read(&[Read::Get(key)]).expect("read").pop() {
        Some(Found::Row(row)) => row,
        other => panic!("not an answer to get: {other:?}"),
    }
}

pub(crate) fn rows(engine: &SqliteEngine, read: Read) -> Vec<Row> {
    match engine.read(&[read]).expect("read").pop() {
        Some(Found::Rows(rows)) => rows,
        other => panic!("not a list of rows: {other:?}"),
    }
}

/// All rows of a scan, `limit` a page.
pub(crate) fn scan(engine: &SqliteEngine, scan: Scan, limit: usize) -> Vec<Row> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        let Page { rows, next, .. } = engine.scan(scan, from.as_ref(), limit).expect("scan");
        all.extend(rows);
        match next {
            Some(next) => from = Some(next),
            None => return all,
        }
    }
}

/// The keys of a conflict.
pub(crate) fn conflict(done: Result<(), EngineError>) -> Vec<Key> {
    match done {
        Err(EngineError::Conflict(keys)) => keys,
        other => panic!("no conflict but {other:?}"),
    }
}
