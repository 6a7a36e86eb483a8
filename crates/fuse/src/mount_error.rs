//! Errors of mounts.

use std::{io, path::PathBuf};

use crate::device::DEV_FUSE;

/// Why mounting or unmounting failed.
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// No `/dev/fuse`.
    #[error(
        "cannot open {DEV_FUSE}: {0}; load the kernel module (`modprobe fuse`), or give the container the device"
    )]
    Device(io::Error),
    /// The mount point is not a directory that can be used.
    #[error("cannot use {0} as a mount point: {1}")]
    Mountpoint(PathBuf, io::Error),
    /// The kernel refused.
    #[error("cannot mount on {0}: {1}")]
    Refused(PathBuf, io::Error),
    /// Something has files open there, or stands in it.
    #[error(
        "{0} is busy: close what is open in it, or take it away from who uses it with `sluice umount --force`"
    )]
    Busy(PathBuf),
    /// There is nothing to unmount.
    #[error("nothing is mounted on {0}; `findmnt -t fuse.sluice` lists what is")]
    NotMounted(PathBuf),
    /// Remounting failed.
    #[error("cannot remount {0}: {1}")]
    Remount(PathBuf, io::Error),
    /// The kernel refused to unmount.
    #[error("cannot unmount {0}: {1}")]
    Unmount(PathBuf, io::Error),
    /// The mount there is dead, and this user may not put another in its place.
    #[error(
        "the mount on {0} is dead; only root can put another in its place without a moment in which programs write \
         into the folder below: stop them, and say `sluice umount {0}` first"
    )]
    Dead(PathBuf),
    /// `fusermount3`, which mounts for users, failed.
    #[error("fusermount3 failed for {0}: {1}")]
    Fusermount(PathBuf, String),
    /// `fusermount3` could not be run.
    #[error("cannot run fusermount3, which mounts for users other than root: {0}; install the package fuse3")]
    NoFusermount(io::Error),
    /// The kernel's protocol is older than what this crate speaks.
    #[error("the kernel speaks FUSE {0}.{1}; 7.23 (Linux 3.15) or newer is needed")]
    Protocol(u32, u32),
    /// The INIT request failed.
    #[error("the kernel did not finish the mount on {0}: {1}")]
    Handshake(PathBuf, io::Error),
    /// Threads or descriptors are short.
    #[error("cannot serve {0}: {1}")]
    Serve(PathBuf, io::Error),
}
