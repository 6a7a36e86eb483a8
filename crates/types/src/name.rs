//! Names of directory entries: raw bytes, checked once when a request arrives.

use std::{fmt, ops::Deref, sync::Arc};

use crate::{FsError, FsResult};

/// Longest entry name in bytes.
pub const MAX_NAME: usize = 255;

/// A valid entry name: 1 to 255 bytes without `/` and NUL, neither `.` nor `..`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<[u8]>);

impl Name {
    /// Checks `bytes` and makes a name of them.
    ///
    /// # Errors
    /// [`FsError::NameTooLong`] above 255 bytes, [`FsError::Invalid`] for every other bad name.
    pub fn new(bytes: &[u8]) -> FsResult<Self> {
        if bytes.len() > MAX_NAME {
            return Err(FsError::NameTooLong);
        }
        if bytes.is_empty() || bytes == b"." || bytes == b".." || bytes.iter().any(|b| matches!(b, b'/' | 0))
        {
            return Err(FsError::Invalid);
        }
        Ok(Self(bytes.into()))
    }

    /// Takes a name that an engine stored, whatever it is: a volume written by others must stay
    /// readable.
    pub fn stored(bytes: &[u8]) -> Self {
        Self(bytes.into())
    }
}

impl Deref for Name {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}
