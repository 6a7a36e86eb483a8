//! Requests that the kernel sends again after a mount process died.

use sluice_types::{FsError, FsResult};
use sluice_vfs::Asked;

use crate::{abi::UNIQUE_RESEND, filesystem::Request};

/// The number with which the kernel first sent the request, and whether that was to a server that
/// died.
pub(super) fn asked(req: &Request<'_>) -> Asked {
    Asked { unique: req.unique & !UNIQUE_RESEND, again: req.resent() }
}

/// The result of a close. If it is sent again, the first one may have been done.
pub(super) fn closed_before(req: &Request<'_>, closed: FsResult<()>) -> FsResult<()> {
    match closed {
        Err(FsError::BadFd) if req.resent() => Ok(()),
        closed => closed,
    }
}
