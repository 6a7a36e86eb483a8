//! The SQLite engine keeps the contract.

mod support;

use std::sync::Arc;

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Page, Read, Scan, Snapshot, Watch,
    },
    schema::Row,
};
use sluice_meta_sql::SqliteEngine;
use tempfile::TempDir;

/// An engine and the directory of its database, which is removed after it.
struct Owned {
    engine: SqliteEngine,
    _dir: TempDir,
}

fn fresh() -> Arc<dyn Engine> {
    let (dir, engine) = support::fresh();
    Arc::new(Owned { engine, _dir: dir })
}

impl Engine for Owned {
    fn name(&self) -> &'static str {
        self.engine.name()
    }
    fn limits(&self) -> Limits {
        self.engine.limits()
    }
    fn prepare(&self) -> Result<(), EngineError> {
        self.engine.prepare()
    }
    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.engine.commit(commit)
    }
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.engine.read(reads)
    }
    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        self.engine.load(rows)
    }
    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.engine.scan(scan, from, limit)
    }
    fn snapshot(&self, readers: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        self.engine.snapshot(readers)
    }
    fn sorts_names(&self) -> bool {
        self.engine.sorts_names()
    }
    fn is_mixed(&self) -> bool {
        self.engine.is_mixed()
    }
    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }
    fn harden(&self) -> Result<(), EngineError> {
        self.engine.harden()
    }
    fn remove_volume(&self) -> Result<(), EngineError> {
        self.engine.remove_volume()
    }
    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        self.engine.watch()
    }
    fn change_log(&self) -> Option<&dyn ChangeLog> {
        self.engine.change_log()
    }
}

sluice_testkit::conformance_tests!(fresh);
