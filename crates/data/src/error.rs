//! Why the data path of a volume could not be opened.
//!
//! What must stay true: each says what to do.

use std::{io, path::PathBuf};

use sluice_object::ObjectError;
use sluice_types::FsError;

/// Why the data path of a volume could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A setting makes no sense.
    #[error("{0}")]
    Config(String),
    /// A cache directory cannot be used.
    #[error(
        "cache directory {path} cannot be used: {why}; make it writable or name another with --cache-dir"
    )]
    CacheDir {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        why: io::Error,
    },
    /// The system gives no more threads.
    #[error("background threads could not be started: {0}")]
    Threads(io::Error),
}

/// What the caller of a write is told of an object that could not be stored.
pub(crate) fn not_stored(error: &ObjectError) -> FsError {
    match error {
        ObjectError::Full { .. } => FsError::NoSpace,
        _ => FsError::io(error),
    }
}
