//! The errors of operations, and their conversion to an errno.

use std::sync::Arc;

use crate::linux;

/// Result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

/// Why a file-system operation failed, in the terms of POSIX.
#[derive(Clone, Debug, thiserror::Error)]
#[allow(missing_docs, reason = "each variant is named after its errno and says the same in its message")]
pub enum FsError {
    #[error("operation not permitted")]
    Perm,
    #[error("no such file or directory")]
    NotFound,
    #[error("interrupted")]
    Interrupted,
    #[error("no such device or address")]
    NoDevice,
    #[error("argument list too long")]
    TooBig,
    #[error("bad file descriptor")]
    BadFd,
    #[error("resource temporarily unavailable")]
    Again,
    #[error("permission denied")]
    Access,
    #[error("device or resource busy")]
    Busy,
    #[error("file exists")]
    Exists,
    #[error("invalid cross-device link")]
    CrossDevice,
    #[error("not a directory")]
    NotDir,
    #[error("is a directory")]
    IsDir,
    #[error("invalid argument")]
    Invalid,
    #[error("text file busy")]
    TextBusy,
    #[error("file too large")]
    FileTooBig,
    #[error("no space left on the volume")]
    NoSpace,
    #[error("read-only file system")]
    ReadOnly,
    #[error("too many links")]
    TooManyLinks,
    #[error("numerical result out of range")]
    Range,
    #[error("resource deadlock avoided")]
    Deadlock,
    #[error("file name too long")]
    NameTooLong,
    #[error("function not implemented")]
    NotImplemented,
    #[error("directory not empty")]
    NotEmpty,
    #[error("too many levels of symbolic links")]
    Loop,
    #[error("no such attribute")]
    NoData,
    #[error("operation not supported")]
    NotSupported,
    #[error("stale file handle")]
    Stale,
    #[error("disk quota exceeded")]
    Quota,
    /// An I/O error to programs; nothing was done.
    #[error(
        "a lock on the file was lost: other clients took this one for dead; close the file and begin again"
    )]
    LockLost,
    /// A layer below failed: the engine, the object store, the local disk. The message says what
    /// failed, on what, and what to do about it.
    #[error("input/output error: {0}")]
    Io(Arc<str>),
}

impl FsError {
    /// An I/O error with its reason.
    pub fn io(reason: impl std::fmt::Display) -> Self {
        Self::Io(reason.to_string().into())
    }

    /// The errno for the kernel, positive.
    pub const fn errno(&self) -> i32 {
        match self {
            Self::Perm => linux::EPERM,
            Self::NotFound => linux::ENOENT,
            Self::Interrupted => linux::EINTR,
            Self::NoDevice => linux::ENXIO,
            Self::TooBig => linux::E2BIG,
            Self::BadFd => linux::EBADF,
            Self::Again => linux::EAGAIN,
            Self::Access => linux::EACCES,
            Self::Busy => linux::EBUSY,
            Self::Exists => linux::EEXIST,
            Self::CrossDevice => linux::EXDEV,
            Self::NotDir => linux::ENOTDIR,
            Self::IsDir => linux::EISDIR,
            Self::Invalid => linux::EINVAL,
            Self::TextBusy => linux::ETXTBSY,
            Self::FileTooBig => linux::EFBIG,
            Self::NoSpace => linux::ENOSPC,
            Self::ReadOnly => linux::EROFS,
            Self::TooManyLinks => linux::EMLINK,
            Self::Range => linux::ERANGE,
            Self::Deadlock => linux::EDEADLK,
            Self::NameTooLong => linux::ENAMETOOLONG,
            Self::NotImplemented => linux::ENOSYS,
            Self::NotEmpty => linux::ENOTEMPTY,
            Self::Loop => linux::ELOOP,
            Self::NoData => linux::ENODATA,
            Self::NotSupported => linux::EOPNOTSUPP,
            Self::Stale => linux::ESTALE,
            Self::Quota => linux::EDQUOT,
            Self::LockLost | Self::Io(_) => linux::EIO,
        }
    }
}

impl PartialEq for FsError {
    fn eq(&self, other: &Self) -> bool {
        self.errno() == other.errno()
    }
}

impl Eq for FsError {}
