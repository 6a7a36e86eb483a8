//! The errors of path calls: what went wrong, and with which path.

use std::fmt;

use sluice_types::FsError;

/// Result of a path call.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a path call failed.
#[derive(Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {error}", String::from_utf8_lossy(path))]
pub struct Error {
    /// The path as the program gave it. Of a call with two paths it is the one that the error is
    /// about, as far as that is known, else the first.
    pub path: Box<[u8]>,
    /// What went wrong.
    pub error: FsError,
}

impl Error {
    pub(crate) fn new(path: &[u8], error: FsError) -> Self {
        Self { path: path.into(), error }
    }

    /// The error number, positive.
    pub const fn errno(&self) -> i32 {
        self.error.errno()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of \"{}\"", self.error, self.path.escape_ascii())
    }
}

impl From<Error> for std::io::Error {
    fn from(error: Error) -> Self {
        let kind = Self::from_raw_os_error(error.errno()).kind();
        Self::new(kind, error)
    }
}

/// Which of two paths an error is about.
pub(crate) enum About {
    First(FsError),
    Second(FsError),
}
