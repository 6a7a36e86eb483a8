//! The errors of operations, and their conversion to an errno.

use std::sync::Arc;

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
            Self::Perm => libc::EPERM,
            Self::NotFound => libc::ENOENT,
            Self::Interrupted => libc::EINTR,
            Self::NoDevice => libc::ENXIO,
            Self::TooBig => libc::E2BIG,
            Self::BadFd => libc::EBADF,
            Self::Again => libc::EAGAIN,
            Self::Access => libc::EACCES,
            Self::Busy => libc::EBUSY,
            Self::Exists => libc::EEXIST,
            Self::CrossDevice => libc::EXDEV,
            Self::NotDir => libc::ENOTDIR,
            Self::IsDir => libc::EISDIR,
            Self::Invalid => libc::EINVAL,
            Self::TextBusy => libc::ETXTBSY,
            Self::FileTooBig => libc::EFBIG,
            Self::NoSpace => libc::ENOSPC,
            Self::ReadOnly => libc::EROFS,
            Self::TooManyLinks => libc::EMLINK,
            Self::Range => libc::ERANGE,
            Self::Deadlock => libc::EDEADLK,
            Self::NameTooLong => libc::ENAMETOOLONG,
            Self::NotImplemented => libc::ENOSYS,
            Self::NotEmpty => libc::ENOTEMPTY,
            Self::Loop => libc::ELOOP,
            Self::NoData => libc::ENODATA,
            Self::NotSupported => libc::EOPNOTSUPP,
            Self::Stale => libc::ESTALE,
            Self::Quota => libc::EDQUOT,
            Self::LockLost | Self::Io(_) => libc::EIO,
        }
    }
}

impl PartialEq for FsError {
    fn eq(&self, other: &Self) -> bool {
        self.errno() == other.errno()
    }
}

impl Eq for FsError {}
