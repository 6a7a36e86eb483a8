//! Why a dump or a load ended.

use std::io;

use sluice_meta::{engine::EngineError, sort::SortError};
use sluice_types::Ino;

/// Why a dump or a load ended.
#[derive(Debug, thiserror::Error)]
pub enum DumpError {
    /// The file cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The database holds no volume.
    #[error("there is no volume in this database; `sluice format` makes one, `sluice load` loads one")]
    NoVolume,
    /// The database holds something that no load left there.
    #[error(
        "the database is not empty; load into an empty one. `sluice destroy` would empty it, but it also deletes the \
         objects, which the volume that was dumped may still need"
    )]
    NotEmpty,
    /// The settings cannot be understood.
    #[error("the settings of the volume cannot be read: {0}")]
    Setting(String),
    /// The dump has no root directory.
    #[error("the dump has no root directory, so it is not that of a whole volume; take another one")]
    NoRoot,
    /// What is to be dumped is no directory.
    #[error("node {0} is no directory")]
    NoDirectory(Ino),
    /// The file ends before the dump does.
    #[error("the dump is cut off after {0} bytes; take a whole one")]
    CutOff(u64),
    /// The file is no dump, or a damaged one.
    #[error("{what} at byte {at} of the dump")]
    Damaged {
        /// What is wrong.
        what: String,
        /// Where, in bytes from the beginning of what is decompressed.
        at: u64,
    },
    /// The file is no JSON dump, or a damaged one.
    #[error("the JSON dump cannot be read: {0}")]
    Text(String),
    /// The dump has a form that this version does not know.
    #[error("the dump has version {0}, this program reads version 1; use a newer one")]
    Newer(u32),
}

impl From<SortError> for DumpError {
    fn from(error: SortError) -> Self {
        Self::File(error.into())
    }
}

impl DumpError {
    /// A damaged place.
    pub(crate) fn damaged(what: impl Into<String>, at: u64) -> Self {
        Self::Damaged { what: what.into(), at }
    }
}
