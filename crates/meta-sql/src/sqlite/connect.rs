//! Connections: one that writes, and a pool of those that read.
//!
//! What must stay true: the connection of the writer stays open as long as the engine exists, so
//! that the write-ahead log and its index are not removed while readers use them. No call waits for
//! a lock for longer than the URL allows.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use rusqlite::{Connection, ErrorCode, OpenFlags, config::DbConfig};
use sluice_meta::engine::EngineError;

use super::{options::Options, texts::Texts, unchanged::Version};

/// Readers kept for later; more may exist for the time of a call.
const IDLE_READERS: usize = 8;
/// KiB of pages that the writer keeps.
const WRITER_CACHE: u32 = 32 << 10;
/// KiB of pages that a reader keeps.
const READER_CACHE: u32 = 4 << 10;
/// Statements that a connection keeps prepared; more than there are.
const STATEMENTS: usize = 160;
/// Pages in the log (32 MiB) at which a commit copies them to the database. Each copy waits for the
/// disk twice, whatever its size, so it is done seldom.
const LOG_LIMIT: u32 = 8192;

/// The database file and the connections to it.
pub(crate) struct Db {
    pub(crate) options: Options,
    /// The statements of all connections.
    pub(super) texts: Texts,
    pub(super) version: Version,
    /// Closed before the writer, because the last connection copies the log to the database and
    /// removes it, which one that only reads cannot.
    readers: Mutex<Vec<Connection>>,
    writer: Mutex<Option<Connection>>,
}

/// The connection that writes, held.
pub(crate) type Writer<'d> = MappedMutexGuard<'d, Connection>;

impl Db {
    /// Opens the database if there is one. If there is none it is made by [`Db::create`], not here:
    /// a wrong path must leave no file behind.
    pub(crate) fn open(options: Options) -> Result<Self, EngineError> {
        check_path(&options)?;
        let writer = if options.path.exists() { Some(open_writer(&options, false)?) } else { None };
        Ok(Self {
            options,
            texts: Texts::default(),
            version: Version::new(),
            writer: Mutex::new(writer),
            readers: Mutex::default(),
        })
    }

    /// Makes the database if there is none.
    pub(crate) fn create(&self) -> Result<(), EngineError> {
        let mut writer = self.writer.lock();
        if writer.is_none() {
            *writer = Some(open_writer(&self.options, true)?);
        }
        Ok(())
    }

    /// Whether there is a database.
    pub(crate) fn exists(&self) -> bool {
        // Who holds the writer has one.
        self.writer.try_lock().is_none_or(|writer| writer.is_some())
    }

    /// The connection that writes.
    pub(crate) fn writer(&self) -> Result<Writer<'_>, EngineError> {
        self.writer_within(self.options.timeout)?.ok_or_else(|| {
            self.options.volume.unavailable("another thread held the connection that writes for too long")
        })
    }

    /// The connection that writes, if it gets free in time.
    pub(crate) fn writer_within(&self, timeout: Duration) -> Result<Option<Writer<'_>>, EngineError> {
        let Some(writer) = self.writer.try_lock_for(timeout) else { return Ok(None) };
        MutexGuard::try_map(writer, Option::as_mut)
            .map(Some)
            .map_err(|_| self.options.volume.refused("there is no such database; run `sluice format`"))
    }

    /// A new connection that reads.
    pub(super) fn reader(&self) -> Result<Connection, EngineError> {
        let reader = open(&self.options, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        reader
            .execute_batch(&format!("PRAGMA cache_size=-{READER_CACHE}; PRAGMA temp_store=MEMORY"))
            .map_err(|error| self.options.failed(&error))?;
        Ok(reader)
    }

    /// Runs `work` on a connection that reads.
    pub(crate) fn with_reader<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, EngineError>,
    ) -> Result<T, EngineError> {
        let idle = self.readers.lock().pop();
        let reader = match idle {
            Some(reader) => reader,
            None => self.reader()?,
        };
        let done = work(&reader);
        let mut readers = self.readers.lock();
        if done.is_ok() && readers.len() < IDLE_READERS {
            readers.push(reader);
        }
        done
    }
}

/// Checks a path, for better messages than SQLite's.
fn check_path(options: &Options) -> Result<(), EngineError> {
    let path = &options.path;
    let dir = match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir,
        _ => Path::new("."),
    };
    if !dir.is_dir() {
        return Err(options.volume.refused(format!("there is no directory {}", dir.display())));
    }
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => Err(options.volume.refused("the path names a directory")),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(options.volume.refused(error.to_string())),
    }
}

fn open(options: &Options, flags: OpenFlags) -> Result<Connection, EngineError> {
    // Each connection is used by one thread at a time, which its type sees to.
    let flags = flags | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(&options.path, flags).map_err(|error| {
        match error.sqlite_error_code() {
            Some(ErrorCode::CannotOpen) => {
                options.volume.refused(format!("{error}; check path and permissions"))
            }
            _ => options.failed(&error),
        }
    })?;
    let timeout = options.timeout;
    let mut since = Instant::now();
    let wait = move |tries: i32| {
        if tries == 0 {
            since = Instant::now();
        }
        // SQLite's own handler sleeps up to 100 ms, in which others take the lock again and again.
        std::thread::sleep(Duration::from_micros(if tries < 20 { 100 } else { 1000 }));
        since.elapsed() < timeout
    };
    connection.busy_handler(Some(wait)).map_err(|error| options.failed(&error))?;
    // Otherwise a statement may be planned anew for each set of parameters, which costs ten times
    // its run.
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)
        .map_err(|error| options.failed(&error))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

fn open_writer(options: &Options, create: bool) -> Result<Connection, EngineError> {
    let mut flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    flags.set(OpenFlags::SQLITE_OPEN_CREATE, create);
    let writer = open(options, flags)?;
    let failed = |error| options.failed(&error);
    if writer.is_readonly(rusqlite::MAIN_DB).map_err(failed)? {
        return Err(options.volume.refused("the file is read-only; make it writable"));
    }
    let journal: String = writer
        .query_row(&format!("PRAGMA journal_mode={}", options.journal), [], |row| row.get(0))
        .map_err(failed)?;
    if !journal.eq_ignore_ascii_case(options.journal) {
        tracing::warn!(wanted = options.journal, got = journal, "SQLite chose another journal mode");
    }
    writer
        .execute_batch(&format!(
            "PRAGMA synchronous=NORMAL; PRAGMA cache_size=-{WRITER_CACHE}; PRAGMA temp_store=MEMORY; \
             PRAGMA foreign_keys=OFF"
        ))
        .map_err(failed)?;
    writer.query_row(&format!("PRAGMA wal_autocheckpoint={LOG_LIMIT}"), [], |_| Ok(())).map_err(failed)?;
    Ok(writer)
}
