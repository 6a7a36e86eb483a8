//! Classifies SQLite's errors.
//!
//! What must stay true: an error after which the commit may have happened is Indeterminate. Every
//! other error says that nothing was committed.

use rusqlite::{Error, ErrorCode};
use sluice_meta::engine::EngineError;

use super::options::Options;

impl Options {
    /// What an error of a statement other than COMMIT means.
    pub(crate) fn failed(&self, error: &Error) -> EngineError {
        let Self { volume, timeout, .. } = self;
        let Some(code) = error.sqlite_error_code() else { return volume.refused(error.to_string()) };
        match code {
            ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => volume.unavailable(format!(
                "another process held the database for more than {} ms",
                timeout.as_millis()
            )),
            ErrorCode::DatabaseCorrupt => volume.corrupt("database file", error.to_string()),
            ErrorCode::NotADatabase => volume.refused("the file is not an SQLite database; check the URL"),
            ErrorCode::DiskFull => volume.refused("the disk of the database is full; make room"),
            ErrorCode::ReadOnly => {
                volume.refused("the database is read-only; make the file and its directory writable")
            }
            ErrorCode::CannotOpen | ErrorCode::SystemIoFailure | ErrorCode::OutOfMemory => {
                volume.unavailable(error.to_string())
            }
            _ if is_missing_table(error) => {
                volume.refused(format!("{error}: this is no volume yet; run `sluice format`"))
            }
            _ => volume.refused(error.to_string()),
        }
    }

    /// What an error of COMMIT means.
    pub(crate) fn commit_failed(&self, error: &Error) -> EngineError {
        if error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure) {
            return self.volume.indeterminate(error.to_string());
        }
        self.failed(error)
    }
}

/// Whether a unique key was met.
pub(crate) fn is_duplicate(error: &Error) -> bool {
    use rusqlite::ffi;
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.extended_code,
            ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY | ffi::SQLITE_CONSTRAINT_ROWID
        )
    })
}

/// Whether a table is missing.
pub(crate) fn is_missing_table(error: &Error) -> bool {
    matches!(error, Error::SqliteFailure(_, Some(text)) if text.starts_with("no such table"))
        || matches!(error, Error::SqlInputError { msg, .. } if msg.starts_with("no such table"))
}
