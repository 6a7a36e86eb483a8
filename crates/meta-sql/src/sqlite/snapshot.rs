//! Snapshots of the database.
//!
//! What must stay true: all read transactions begin while no client can commit. Each ends only when
//! its reader is dropped.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rusqlite::Connection;
use sluice_meta::engine::{Cursor, EngineError, Found, Page, Read, Scan, Snapshot};

use super::{commit::Transaction, connect::Db, read::Reader, statements::Statements};
use crate::scan::page;

/// Connections with a transaction that reads, all on the same snapshot.
struct Moment {
    db: Arc<Db>,
    idle: Mutex<Vec<Connection>>,
    returned: Condvar,
}

/// The database as it is now, for so many threads at once.
pub(super) fn snapshot(db: &Arc<Db>, readers: usize) -> Result<Arc<dyn Snapshot>, EngineError> {
    // Undone when it is dropped.
    let _nobody_commits = Transaction::begin(db)?;
    let begun = (0..readers.max(1)).map(|_| {
        let reader = db.reader()?;
        let began = reader.execute_batch("BEGIN; SELECT count(*) FROM sqlite_master");
        began.map(|()| reader).map_err(|error| db.options.failed(&error))
    });
    let idle = Mutex::new(begun.collect::<Result<_, _>>()?);
    Ok(Arc::new(Moment { db: db.clone(), idle, returned: Condvar::new() }))
}

impl Moment {
    fn with<T>(&self, work: impl FnOnce(Reader<'_, '_>) -> T) -> T {
        let reader = {
            let mut idle = self.idle.lock();
            loop {
                match idle.pop() {
                    Some(reader) => break reader,
                    None => self.returned.wait(&mut idle),
                }
            }
        };
        let statements = Statements::new(&reader, &self.db);
        let done = work(Reader::new(&statements));
        drop(statements);
        self.idle.lock().push(reader);
        self.returned.notify_one();
        done
    }
}

impl Snapshot for Moment {
    fn read(&self, reads: &[Read]) -> Result<Vec<Found>, EngineError> {
        self.with(|reader| reader.answers(reads))
    }

    fn scan(&self, scan: Scan, from: Option<&Cursor>, limit: usize) -> Result<Page, EngineError> {
        self.with(|reader| page(&reader, scan, from, limit))
    }
}
