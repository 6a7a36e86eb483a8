//! Replaces a dead mount by a new one.
//!
//! What must stay true: the directory below the mount point is never visible. So the new mount
//! exists before the dead one is removed.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::CWD,
    io::Errno as Os,
    mount::{self as sys, FsMountFlags, FsOpenFlags, MoveMountFlags},
    process::{getegid, geteuid},
};

use crate::{device::DEV_FUSE, mount_error::MountError, options::MountOptions, unmount::unmount};

/// Mounts beneath the dead mount on `mountpoint`, then removes the dead mount. Files that are open
/// in it still fail with ENOTCONN. Before Linux 6.5, the new mount is on top of the dead one, which
/// is visible again after the new one is unmounted.
///
/// # Errors
/// [`MountError::Dead`] for users who may not do that, [`MountError::Refused`] otherwise.
pub(crate) fn replace(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let forbidden = |why: &io::Error| why.kind() == io::ErrorKind::PermissionDenied;
    let device = File::options().read(true).write(true).open(DEV_FUSE).map_err(|why| {
        if forbidden(&why) { MountError::Dead(mountpoint.into()) } else { MountError::Device(why) }
    })?;
    let fd = OwnedFd::from(device);
    let refused = |why: Os| match io::Error::from(why) {
        why if forbidden(&why) => MountError::Dead(mountpoint.into()),
        why => MountError::Refused(mountpoint.into(), why),
    };
    let tree = detached(&fd, options).map_err(refused)?;
    let beneath = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_BENEATH;
    match sys::move_mount(&tree, c"", CWD, mountpoint, beneath) {
        Ok(()) => unmount(mountpoint, true)?,
        // The kernel does not know the flag, or the dead mount belongs to a parent name space.
        Err(Os::INVAL) => {
            let on_top = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            sys::move_mount(&tree, c"", CWD, mountpoint, on_top).map_err(refused)?;
            tracing::warn!("{} lies on a dead mount, which stays", mountpoint.display());
        }
        Err(why) => return Err(refused(why)),
    }
    Ok(fd)
}

/// A mount that is not attached to a path yet.
fn detached(fd: &OwnedFd, options: &MountOptions) -> Result<OwnedFd, Os> {
    let context = sys::fsopen("fuse", FsOpenFlags::FSOPEN_CLOEXEC)?;
    let set = |name: &str, value: &str| sys::fsconfig_set_string(&context, name, value);
    set("source", &options.fsname)?;
    if !options.subtype.is_empty() {
        set("subtype", &options.subtype)?;
    }
    let data = options.kernel_data(fd.as_raw_fd(), geteuid().as_raw(), getegid().as_raw());
    for flag in options.superblock_flags() {
        sys::fsconfig_set_flag(&context, flag)?;
    }
    for option in data.split(',') {
        match option.split_once('=') {
            Some((name, value)) => set(name, value)?,
            None => sys::fsconfig_set_flag(&context, option)?,
        }
    }
    sys::fsconfig_create(&context)?;
    sys::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, options.attributes())
}
