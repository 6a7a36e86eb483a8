//! Unmounting, as root by system call and otherwise through `fusermount3`.

use std::{path::Path, process::Command};

use rustix::{
    io::Errno as Os,
    mount::{self as sys, UnmountFlags},
};

use crate::mount_error::MountError;

/// The program that mounts and unmounts for users.
pub(crate) const FUSERMOUNT: &str = "fusermount3";

/// Unmounts the mount on `mountpoint`. `lazy` detaches it at once, and it ends when its last open
/// file is closed.
///
/// # Errors
/// [`MountError::Busy`] if it is in use and `lazy` is not set.
pub fn unmount(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let flags = if lazy { UnmountFlags::DETACH } else { UnmountFlags::empty() };
    match sys::unmount(mountpoint, flags | UnmountFlags::NOFOLLOW) {
        Ok(()) => Ok(()),
        Err(Os::BUSY) => Err(MountError::Busy(mountpoint.into())),
        Err(Os::INVAL) => Err(MountError::NotMounted(mountpoint.into())),
        Err(Os::PERM) => unmount_by_helper(mountpoint, lazy),
        Err(why) => Err(MountError::Unmount(mountpoint.into(), why.into())),
    }
}

fn unmount_by_helper(mountpoint: &Path, lazy: bool) -> Result<(), MountError> {
    let lazily: &[&str] = if lazy { &["-z"] } else { &[] };
    let helper = Command::new(FUSERMOUNT).arg("-u").args(lazily).arg("--").arg(mountpoint).output();
    let output = helper.map_err(MountError::NoFusermount)?;
    let complaint = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        Ok(())
    } else if complaint.contains("busy") {
        Err(MountError::Busy(mountpoint.into()))
    } else {
        Err(MountError::Fusermount(mountpoint.into(), complaint.trim().into()))
    }
}
