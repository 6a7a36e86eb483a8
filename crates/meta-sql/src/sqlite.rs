//! The SQLite engine.
//!
//! One connection writes. It takes SQLite's own write lock for each commit and releases it between
//! commits, so that other processes, such as JuiceFS, can write, too. Other connections read
//! snapshots. Everything runs on the calling thread. What must stay true: a commit compares its
//! expectations while it holds the write lock.

mod commit;
mod connect;
mod durable;
mod error;
mod options;
mod prepare;
mod query_runner;
mod read;
mod snapshot;
mod statements;
mod texts;
mod unchanged;
mod watch;
mod write;

use std::sync::Arc;

use sluice_meta::{
    engine::{
        ChangeLog, Commit, Cursor, Engine, EngineError, Found, Limits, Moment, Notices, Page, Polled, Read,
        Scan, Snapshot, Watch,
    },
    schema::{Key, Row},
};

use crate::scan::page;
use connect::Db;
use options::Options;
use read::Reader;
use unchanged::Seen;

/// Operations in one commit: about twenty milliseconds of work, after which others can write. With
/// fewer, the same pages are written to the log more often.
const BATCH: usize = 1024;

/// A volume's metadata in an SQLite database.
pub struct SqliteEngine(Arc<Db>);

impl SqliteEngine {
    /// Opens the database that `sqlite3://path?options` names. One that does not exist yet is made
    /// by [`Engine::prepare`], not here.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong, the directory is missing, or the file is
    /// read-only or no database; [`EngineError::Unavailable`] if another process holds it longer
    /// than the URL's `_timeout`.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        Ok(Self(Arc::new(Db::open(Options::parse(url)?)?)))
    }
}

impl Engine for SqliteEngine {
    fn name(&self) -> &'static str {
        "sqlite3"
    }

    fn limits(&self) -> Limits {
        Limits { lanes: 1, batch: BATCH, notices: Notices::Hint }
    }

    fn prepare(&self) -> Result<(), EngineError> {
        self.0.create()?;
        prepare::prepare(&mut *self.0.writer()?, &self.0.options)?;
        durable::sync_dir(&self.0.options)
    }

    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        if !self.0.exists() && matches!(reads, [Read::Get(Key::Setting)]) {
            // The question whether this is a volume has an answer even where there is no database.
            return Ok(vec![Found::Row(None)]);
        }
        self.0.with_runner(|reader| match reads {
            [read] => Ok(vec![reader.answer(read)?]),
            // One snapshot costs less than many.
            _ => in_snapshot(*reader, || reader.answers(reads)),
        })
    }

    fn commit(&self, commit: &Commit) -> Result<(), EngineError> {
        commit::commit(&self.0, commit, Moment::default())
    }

    fn read_at(&self, reads: &[Read], moment: &mut Moment) -> Result<Vec<Found>, EngineError> {
        Seen::note(&self.0.version, reads, moment, || self.read(reads))
    }

    fn commit_at(&self, commit: &Commit, moment: Moment) -> Result<(), EngineError> {
        commit::commit(&self.0, commit, moment)
    }

    fn load(&self, rows: &[Row]) -> Result<(), EngineError> {
        commit::load(&self.0, rows)
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.0.with_runner(|reader| page(reader, scan, from, limit))
    }

    fn snapshot(&self, readers: usize) -> Result<Option<Arc<dyn Snapshot>>, EngineError> {
        snapshot::snapshot(&self.0, readers).map(Some)
    }

    fn sync(&self) -> Result<(), EngineError> {
        durable::sync(&self.0.options)
    }

    fn remove_volume(&self) -> Result<(), EngineError> {
        prepare::remove(&mut *self.0.writer()?, &self.0.options)
    }

    fn watch(&self) -> Result<Box<dyn Watch>, EngineError> {
        Polled::watch(self.0.clone())
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }
}

fn in_snapshot<T>(
    reader: Reader<'_, '_>,
    work: impl FnOnce() -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let run =
        |text| commit::run(reader.statements.connection, text).map_err(|error| reader.options.failed(&error));
    run("BEGIN")?;
    // A connection whose work failed is closed, and its snapshot with it.
    let done = work()?;
    run("COMMIT")?;
    Ok(done)
}
