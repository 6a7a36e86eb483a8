//! The error of an operation: an errno that the kernel accepts.
//!
//! What must stay true: the kernel gets no value outside 1..=511. It would refuse the whole reply,
//! and the caller would wait for ever.

use std::fmt;

/// Result of a file-system operation.
pub type Result<T, E = Errno> = std::result::Result<T, E>;

/// An errno, positive.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

#[allow(missing_docs, reason = "each is named after its errno")]
impl Errno {
    pub const EPERM: Self = Self(libc::EPERM);
    pub const ENOENT: Self = Self(libc::ENOENT);
    pub const EINTR: Self = Self(libc::EINTR);
    pub const EIO: Self = Self(libc::EIO);
    pub const EBADF: Self = Self(libc::EBADF);
    pub const EAGAIN: Self = Self(libc::EAGAIN);
    pub const EACCES: Self = Self(libc::EACCES);
    pub const EEXIST: Self = Self(libc::EEXIST);
    pub const ENOTDIR: Self = Self(libc::ENOTDIR);
    pub const EISDIR: Self = Self(libc::EISDIR);
    pub const ESTALE: Self = Self(libc::ESTALE);
    pub const EINVAL: Self = Self(libc::EINVAL);
    pub const ENOTTY: Self = Self(libc::ENOTTY);
    pub const ERANGE: Self = Self(libc::ERANGE);
    pub const ENOSYS: Self = Self(libc::ENOSYS);
    pub const ENOTEMPTY: Self = Self(libc::ENOTEMPTY);
    pub const ENODATA: Self = Self(libc::ENODATA);
    pub const EOPNOTSUPP: Self = Self(libc::EOPNOTSUPP);
    pub const E2BIG: Self = Self(libc::E2BIG);

    /// The value in a reply: negative, and EIO for anything that is no errno.
    pub(crate) const fn wire(self) -> i32 {
        if self.0 > 0 && self.0 < 512 { -self.0 } else { -libc::EIO }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {})", self.0, std::io::Error::from_raw_os_error(self.0))
    }
}

impl From<std::io::Error> for Errno {
    fn from(error: std::io::Error) -> Self {
        Self(error.raw_os_error().unwrap_or(libc::EIO))
    }
}
