//! Errors of journals.

use std::io;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// It cannot be read.
    #[error("the state of the mount cannot be read: {0}")]
    Io(#[from] io::Error),
    /// It is no journal.
    #[error("what was handed over is not the state of a mount")]
    Foreign,
    /// Another version of sluice wrote it.
    #[error("the state of the mount has form {0}, which this version of sluice does not understand")]
    Version(u32),
}
