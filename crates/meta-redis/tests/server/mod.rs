//! A redis-server of the test's own: on a socket in a temporary directory, killed when dropped.

#![allow(dead_code, reason = "each test file uses its part")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Page, Read, Scan, Snapshot, Watch,
    },
    schema::Row,
};
use sluice_meta_redis::RedisEngine;
use tempfile::TempDir;

pub(crate) struct Server {
    child: Child,
    dir: TempDir,
    password: Option<String>,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::start_in(tempfile::tempdir().expect("a temporary directory"), &[])
    }

    /// With the content of an RDB file.
    pub(crate) fn with_dump(dump: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        fs::copy(dump, dir.path().join("dump.rdb")).expect("the dump is there");
        Self::start_in(dir, &[])
    }

    pub(crate) fn start_in(dir: TempDir, options: &[&str]) -> Self {
        Self::start_open(dir, options, None)
    }

    /// A server that wants a password.
    pub(crate) fn start_open(dir: TempDir, options: &[&str], password: Option<&str>) -> Self {
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--databases", "64", "--loglevel", "warning"])
            .args(["--unixsocket", "redis.sock", "--appendonly", "no"])
            .args(options)
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let server = Self { child, dir, password: password.map(str::to_owned) };
        let deadline = Instant::now() + Duration::from_mins(1);
        while server.call(&["PING"]).is_none() {
            assert!(Instant::now() < deadline, "redis-server does not answer");
            std::thread::yield_now();
        }
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.dir.path().join("redis.sock")
    }

    pub(crate) fn url(&self, db: u32) -> String {
        format!("unix://{}?db={db}", self.socket().display())
    }

    pub(crate) fn engine(&self, db: u32) -> RedisEngine {
        let engine = RedisEngine::open(&self.url(db)).expect("a valid URL");
        engine.prepare().expect("the server is up");
        engine
    }

    pub(crate) fn connection(&self, db: u32) -> Option<redis::Connection> {
        let password = self.password.as_ref().map_or(String::new(), |pass| format!("&pass={pass}"));
        let url = format!("redis+unix://{}?db={db}{password}", self.socket().display());
        let client = redis::Client::open(url).ok()?;
        client.get_connection().ok()
    }

    /// A command on database 0; `None` if the server does not answer it.
    pub(crate) fn call(&self, words: &[&str]) -> Option<redis::Value> {
        let mut connection = self.connection(0)?;
        redis::cmd(words[0]).arg(&words[1..]).query(&mut connection).ok()
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it was ours");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An engine that keeps its server alive.
pub(crate) struct Owned {
    engine: RedisEngine,
    _server: Server,
}

/// A fresh, empty store.
pub(crate) fn fresh() -> Arc<dyn Engine> {
    let server = Server::start();
    Arc::new(Owned { engine: server.engine(3), _server: server })
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
    fn divide(&self, cursor: Cursor) -> (Vec<Cursor>, Option<Cursor>) {
        self.engine.divide(cursor)
    }
    fn sync(&self) -> Result<(), EngineError> {
        self.engine.sync()
    }
    fn harden(&self) -> Result<(), EngineError> {
        self.engine.harden()
    }
    fn check_vacant(&self) -> Result<(), EngineError> {
        self.engine.check_vacant()
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
