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
    /// There are no threads for the cache group.
    #[error("no threads for the cache group")]
    Threads(#[source] io::Error),
    /// The directory that is to be the root.
    #[error("{0}: {1}")]
    Root(String, FsError),
}

impl OpenError {
    /// The error number, positive: `ENOENT` if there is no volume, `EINVAL` if what somebody wrote
    /// is wrong, `EIO` if a server failed.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Invalid(_) | Self::Secret(..) => FsError::Invalid.errno(),
            Self::Volume(sluice_meta::OpenError::NotFormatted(_)) => FsError::NotFound.errno(),
            Self::File(_, error) => error.raw_os_error().unwrap_or(FsError::io(error).errno()),
            Self::Root(_, error) => error.errno(),
            Self::Engine(_) | Self::Volume(_) | Self::Store(_) | Self::Data(_) | Self::Threads(_) => {
                FsError::io(self).errno()
            }
        }
    }
}

/// An error of what somebody wrote.
pub(crate) fn invalid<T>(why: impl Into<String>) -> Result<T> {
    Err(OpenError::Invalid(why.into()))
}
