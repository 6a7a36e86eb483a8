//! The MySQL and MariaDB engine.
//!
//! A read is one packet of plain statements and takes no locks. A commit is one packet with a whole
//! transaction, which compares the expected records. What must stay true: between two round trips,
//! this client has no lock and no transaction on the server. So a slow or dead client blocks no
//! other client.

mod commit;
mod connection;
mod diagnosis;
mod error;
mod options;
mod pool;
mod prepare;
mod query_runner;
mod read;
mod snapshot;
mod store;
mod style;
mod tables;
mod watch;

use std::sync::Arc;

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Notices, Page, Polled, Read, Scan,
        Snapshot, Watch,
    },
    schema::Row,
};

use connection::{Connection, Failure};
use error::{Refusal, refusal};
use options::Options;
use pool::Pool;
use read::Plan;
use store::Store;
use tables::Tables;

use crate::{codec::Record, scan::page};

/// Commits under way at once: while one waits for the disk another is made. More only make smaller
/// ones of the same work.
const LANES: usize = 2;

/// Operations in one commit.
const BATCH: usize = 256;

/// A volume's metadata in a MySQL or MariaDB database.
///
/// [`Engine::sync`] does nothing: how much a power cut can take is decided by the server's
/// `innodb_flush_log_at_trx_commit`.
pub struct MysqlEngine(Arc<Store>);

impl MysqlEngine {
    /// Reads `mysql://user:password@(host:port)/database?options`; connects at the first call.
    /// `password` is used if the URL has none.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str, password: Option<String>) -> Result<Self, EngineError> {
        let options = Options::parse(url, password)?;
        let tables = Tables::new(&options.volume);
        Ok(Self(Arc::new(Store { pool: Pool::new(options), tables })))
    }
}

impl Engine for MysqlEngine {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn limits(&self) -> Limits {
        // Reads want connections too.
        let lanes = LANES.min(self.0.pool.options.limits.max_open / 2).max(1);
        Limits { lanes, batch: BATCH, notices: Notices::Poll }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        prepare::prepare(&self.0.pool)
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        Plan::new(&self.0.tables, reads).run(&self.0.pool)
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        if commit.step.is_none() && commit.expects.is_empty() && commit.writes.is_empty() {
            return Ok(());
        }
        self.0.pool.commit(|connection| {
            let packets = commit::packets(&self.0, connection, |builder| builder.commit(commit))?;
            self.0.send(connection, &packets, commit)
        })
    }

    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        self.0.pool.commit(|connection| {
            let packets = commit::packets(&self.0, connection, |builder| {
                builder.load(rows);
                Ok(())
            })?;
            self.0.send(connection, &packets, &Commit::default())
        })
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        page(&*self.0, scan, from, limit)
    }

    fn snapshot(&self, _: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        self.at_now().map(Some)
    }

    /// Where the server keeps no binary log, a commit that it still flushes may be seen already.
    /// Its log is flushed in order: once one more commit is answered, those before it are as safe.
    fn harden(&self) -> Result<(), EngineError> {
        let Store { pool, tables } = &*self.0;
        let counters = &tables.of(Record::Counter).table;
        let text = format!(
            "INSERT INTO {counters}(name,value) VALUES('{}',1) ON DUPLICATE KEY UPDATE value=value+1",
            watch::NOTICES
        );
        pool.answers(&text).map(drop)
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        prepare::remove(&self.0.pool)
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Polled::watch(self.0.clone())
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }
}

impl Store {
    /// Sends the packets of a transaction.
    fn send(
        &self,
        connection: &mut Connection,
        packets: &[commit::Packet],
        commit: &Commit,
    ) -> Result<(), EngineError> {
        let Self { pool: Pool { options, .. }, tables } = self;
        let last = packets.len() - 1;
        for (at, packet) in packets.iter().enumerate() {
            let Err(failure) = connection.exchange(&packet.text) else { continue };
            // COMMIT is the last statement of the last packet.
            let committing = at == last
                && match &failure {
                    Failure::Server(_, done) => done + 1 == packet.answers,
                    _ => true,
                };
            return Err(match failure {
                Failure::Lost(reason) if committing => options.volume.indeterminate(reason),
                Failure::Server(error, _) => match refusal(&error) {
                    Refusal::Collision | Refusal::Other => {
                        let _ = connection.exchange("ROLLBACK");
                        let style = connection.style;
                        if committing {
                            options.classify_commit(&error, style)
                        } else {
                            options.classify(&error)
                        }
                    }
                    known => diagnosis::diagnose(options, tables, connection, commit, known),
                },
                failure => options.unanswered(failure),
            });
        }
        Ok(())
    }
}
