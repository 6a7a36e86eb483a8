//! Why a volume cannot be opened.

use std::io;

use sluice_data::DataError;
use sluice_meta::engine::EngineError;
use sluice_object::{ObjectError, crypto::CryptoError};
use sluice_types::FsError;

/// Result of opening.
pub type Result<T> = std::result::Result<T, OpenError>;

/// Why a volume cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The URL, an option or a setting of the volume is wrong. The message says what to do.
    #[error("{0}")]
    Invalid(String),
    /// A file that the environment names cannot be read.
    #[error("{0}")]
    File(String, #[source] io::Error),
    /// A secret in the settings cannot be opened.
    #[error("the volume's {0} cannot be decrypted")]
    Secret(&'static str, #[source] CryptoError),
    /// The database failed.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// There is no volume, or this client cannot use it.
    #[error(transparent)]
    Volume(#[from] sluice_meta::OpenError),
    /// The object store cannot be opened.
    #[error(transparent)]
    Store(#[from] ObjectError),
    /// The data path cannot be opened.
    #[error(transparent)]
    Data(#[from] DataError),
    /// The directory that is to be the root.
    #[error("{0}: {1}")]
    Root(String, FsError),
}

/// An error of what somebody wrote.
pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(OpenError::Invalid(why.into()))
}
