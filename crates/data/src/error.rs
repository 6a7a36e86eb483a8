//! Why the data path of a volume could not be opened, and why a block could not be cached.
//!
//! What must stay true: each error says what the user can do.

use std::{io, path::PathBuf};

use sluice_object::ObjectError;
use sluice_types::FsError;

/// Why the data path of a volume could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum DataError {
    /// A setting is invalid.
    #[error("{0}")]
    Config(String),
    /// A cache directory cannot be used.
    #[error(
        "cache directory {path} cannot be used: {why}; make it writable or name another with --cache-dir"
    )]
    CacheDir {
        /// The directory.
        path: PathBuf,
        /// The system's error.
        why: io::Error,
    },
    /// No thread could be started.
    #[error("background threads could not be started: {0}")]
    Threads(io::Error),
}

/// The error of a write whose object could not be stored.
pub(crate) fn not_stored(error: &ObjectError) -> FsError {
    match error {
        ObjectError::Full { .. } => FsError::NoSpace,
        _ => FsError::io(error),
    }
}

/// Why a block could not be cached.
#[derive(Debug, thiserror::Error)]
pub enum WarmError {
    /// The store does not have it.
    #[error("{0}")]
    Missing(ObjectError),
    /// Its bytes cannot be right.
    #[error("{0}")]
    Damaged(ObjectError),
    /// The store did not give it, or nobody waits any more. The next one would fare no better.
    #[error("{0}")]
    Unavailable(ObjectError),
}

impl From<ObjectError> for WarmError {
    fn from(error: ObjectError) -> Self {
        match error {
            ObjectError::NotFound { .. } => Self::Missing(error),
            ObjectError::Corrupt { .. } => Self::Damaged(error),
            _ => Self::Unavailable(error),
        }
    }
}
