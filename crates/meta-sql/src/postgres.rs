//! The PostgreSQL engine.
//!
//! Nothing is held on the server before the commit, because reads are plain reads. A commit is one
//! flight: it locks the expected records, checks that they are unchanged, and writes. What must
//! stay true: a check reads a record after it was locked, so it sees what others committed during
//! the wait for the lock. A check that fails rolls back the whole flight.

mod commit;
mod conn;
mod error;
mod flight;
mod handshake;
mod options;
mod pool;
mod prepare;
mod query_runner;
mod read;
mod snapshot;
mod statement;
mod watch;
mod wire;

use std::sync::Arc;

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Notices, Page, Read, Scan, Snapshot,
        Watch,
    },
    schema::Row,
};

use crate::scan::page;
use options::Options;
use pool::Pool;
use statement::Catalog;

/// Operations in one commit.
const BATCH: usize = 256;
/// Most commits at once. While one waits for the disk the next gathers operations; with more
/// commits, each would have fewer operations (8 lanes: half the rate of 2, measured when commits
/// held their locks until they were on disk).
const LANES: usize = 2;

/// A volume's metadata in a PostgreSQL database.
///
/// [`Engine::sync`] does nothing: an answered commit is as durable as the server's
/// `synchronous_commit` makes it.
pub struct PostgresEngine(Store);

/// What all parts of the engine share.
struct Store {
    pool: Arc<Pool>,
    catalog: Catalog,
    channel: String,
}

impl PostgresEngine {
    /// Makes the engine that `postgres://user:password@host:port/database?options` names. The
    /// server is asked when there is something to ask.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        let options = Options::parse(url)?;
        let catalog = Catalog::new(options.volume.clone());
        let channel = watch::channel(&options);
        Ok(Self(Store { pool: Arc::new(Pool::new(options)), catalog, channel }))
    }
}

impl Engine for PostgresEngine {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn limits(&self) -> Limits {
        // Reads outside commits need connections, too.
        let lanes = (self.0.pool.options.limits.max_open / 2).clamp(1, LANES);
        Limits { lanes, batch: BATCH, notices: Notices::Push }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.0.prepare()
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.0.answers(reads)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        self.0.commit(commit)
    }

    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        self.0.load(rows)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        page(&self.0, scan, from, limit)
    }

    fn snapshot(&self, readers: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        self.at_now(readers).map(Some)
    }

    /// A commit is visible before it is on the disk.
    fn harden(&self) -> Result<(), EngineError> {
        self.0.harden()
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        self.0.remove()
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(watch::Listener::new(self.0.pool.clone(), self.0.channel.clone())?))
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }
}
