//! How much of a disk is free.

use std::{io, path::Path};

/// The free part, from 0 to 1, of the blocks or of the inodes of the file system of `path`: the
/// lesser of both.
///
/// # Errors
/// Those of `statvfs(3)`.
#[cfg(unix)]
pub(crate) fn free_ratio(path: &Path) -> io::Result<f64> {
    let stat = rustix::fs::statvfs(path)?;
    let ratio = |free: u64, all: u64| if all == 0 { 1.0 } else { free as f64 / all as f64 };
    Ok(ratio(stat.f_bavail, stat.f_blocks).min(ratio(stat.f_favail, stat.f_files)))
}

/// Not known on this system, so that nothing is cached or staged on a disk.
///
/// # Errors
/// Always.
#[cfg(not(unix))]
pub(crate) fn free_ratio(_: &Path) -> io::Result<f64> {
    Err(io::ErrorKind::Unsupported.into())
}
