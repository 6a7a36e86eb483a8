//! The errors of engines.

use std::sync::Arc;

use crate::schema::Key;

/// Why the engine did not do it. Each says what the caller must do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// An expectation or a precondition failed; nothing was committed. Run again what touches these
    /// keys; if there are none, run everything again.
    #[error("conflict on {0:?}")]
    Conflict(Vec<Key>),
    /// The engine could not be asked; nothing was committed. Try again until the timeout.
    #[error("metadata engine {engine} is not available: {reason}")]
    Unavailable {
        /// Name and address, without secrets.
        engine: String,
        /// What happened.
        reason: String,
    },
    /// The answer to a commit was lost; it may have been committed, now or later.
    #[error("metadata engine {engine} gave no answer to a commit: {reason}")]
    Indeterminate {
        /// Name and address, without secrets.
        engine: String,
        /// What happened.
        reason: String,
    },
    /// A chunk's record has no room for the slices to be appended; nothing was committed. Compact
    /// these chunks first.
    #[error("no room for more slices in {0:?}")]
    Full(Vec<Key>),
    /// A stored record breaks the format. Trying again does not help.
    #[error(
        "damaged record {record} in {engine}: {reason}; put it back from a backup (`sluice fsck` lists what is damaged)"
    )]
    Corrupt {
        /// Name and address, without secrets.
        engine: String,
        /// Which record, as the engine names it.
        record: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The engine refuses for good: wrong URL, credentials, version, value too large, read-only
    /// replica.
    #[error("metadata engine {engine}: {reason}")]
    Refused {
        /// Name and address, without secrets.
        engine: String,
        /// What it refuses, and what to do.
        reason: String,
    },
}

/// Name and address of an engine, without secrets, as its errors state it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label(pub Arc<str>);

impl Label {
    /// [`EngineError::Unavailable`].
    pub fn unavailable(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Unavailable { engine: self.0.to_string(), reason: reason.into() }
    }

    /// [`EngineError::Indeterminate`].
    pub fn indeterminate(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Indeterminate { engine: self.0.to_string(), reason: reason.into() }
    }

    /// [`EngineError::Refused`].
    pub fn refused(&self, reason: impl Into<String>) -> EngineError {
        EngineError::Refused { engine: self.0.to_string(), reason: reason.into() }
    }

    /// [`EngineError::Corrupt`].
    pub fn corrupt(&self, record: impl Into<String>, reason: impl Into<String>) -> EngineError {
        EngineError::Corrupt { engine: self.0.to_string(), record: record.into(), reason: reason.into() }
    }
}
