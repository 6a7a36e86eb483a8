//! Mounting, as root by system call and otherwise through `fusermount3`.
//!
//! What must stay true: after the mount, nothing here accesses the file system at the mount point,
//! because the thread that would answer may be the calling one.

use std::{
    ffi::CString,
    fs::{self, File},
    io::{self, IoSliceMut, Read},
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rustix::{
    io::Errno as Os,
    mount::{self as sys, FsMountFlags, FsOpenFlags, MountAttrFlags},
    net::{
        AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType,
        recvmsg, socketpair,
    },
    process::{getegid, geteuid},
};

use crate::{
    beneath,
    device::DEV_FUSE,
    mount_error::MountError,
    options::MountOptions,
    unmount::{FUSERMOUNT, unmount},
};

/// A mount that exists. If this is dropped, the mount is detached, unless it is kept, or has
/// replaced a dead one.
#[derive(Debug)]
pub(crate) struct Mount {
    mountpoint: PathBuf,
    /// Minor device number: the connection's name in `/sys`. 0 if it could not be found out.
    pub(crate) connection: u32,
    kept: bool,
}

impl Mount {
    /// Mounts on `mountpoint`, and returns the descriptor to serve it with.
    pub(crate) fn new(mountpoint: &Path, options: &MountOptions) -> Result<(Self, OwnedFd), MountError> {
        let unusable = |why| MountError::Mountpoint(mountpoint.into(), why);
        let mountpoint = &fs::canonicalize(mountpoint).map_err(unusable)?;
        let dead = is_dead(mountpoint);
        let fd = if dead {
            beneath::replace(mountpoint, options)?
        } else {
            match mount_directly(mountpoint, options) {
                // Not root: the device or the system call is out of reach.
                Err(MountError::Refused(_, why) | MountError::Device(why))
                    if why.kind() == io::ErrorKind::PermissionDenied =>
                {
                    mount_by_helper(mountpoint, options)?
                }
                other => other?,
            }
        };
        let connection = connection_of(mountpoint).unwrap_or(0);
        Ok((Self { mountpoint: mountpoint.into(), connection, kept: dead }, fd))
    }

    /// A mount that another process made.
    pub(crate) fn taken_over(mountpoint: PathBuf, connection: u32) -> Self {
        Self { mountpoint, connection, kept: true }
    }

    pub(crate) fn mountpoint(&self) -> &Path {
        &self.mountpoint
    }

    /// From now on the mount stays until it is unmounted, so that no program sees the folder below
    /// instead.
    pub(crate) fn keep(&mut self) {
        self.kept = true;
    }

    /// Whether the mount still exists, although its connection has ended.
    pub(crate) fn is_left(&self) -> bool {
        self.connection != 0 && connection_of(&self.mountpoint) == Some(self.connection)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if !self.kept
            && let Err(why) = unmount(&self.mountpoint, true)
        {
            tracing::warn!("{why}");
        }
    }
}

fn mount_directly(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let device = File::options().read(true).write(true).open(DEV_FUSE).map_err(MountError::Device)?;
    let fd = OwnedFd::from(device);
    let data = options.kernel_data(fd.as_raw_fd(), geteuid().as_raw(), getegid().as_raw());
    let kind = if options.subtype.is_empty() { "fuse".into() } else { format!("fuse.{}", options.subtype) };
    let refused = |why: io::Error| MountError::Refused(mountpoint.into(), why);
    let data = CString::new(data).map_err(|why| refused(why.into()))?;
    sys::mount(options.fsname.as_str(), mountpoint, kind, options.flags(), data.as_c_str())
        .map_err(|why| refused(why.into()))?;
    Ok(fd)
}

/// `fusermount3` mounts and sends the descriptor over a socket, here its standard input.
fn mount_by_helper(mountpoint: &Path, options: &MountOptions) -> Result<OwnedFd, MountError> {
    let failed = |what: String| MountError::Fusermount(mountpoint.into(), what);
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
        .map_err(|why| failed(why.to_string()))?;
    let mut helper = Command::new(FUSERMOUNT)
        .arg("-o")
        .arg(options.fusermount_options())
        .arg("--")
        .arg(mountpoint)
        .env("_FUSE_COMMFD", "0")
        .stdin(Stdio::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .map_err(MountError::NoFusermount)?;
    let fd = receive_descriptor(&ours);
    let mut complaint = String::new();
    if let Some(mut stderr) = helper.stderr.take() {
        let _ = stderr.read_to_string(&mut complaint);
    }
    let status = helper.wait().map_err(|why| failed(why.to_string()))?;
    match fd {
        Ok(Some(fd)) if status.success() => Ok(fd),
        Err(why) => Err(failed(why.to_string())),
        _ => Err(failed(complaint.trim().trim_start_matches("fusermount3: ").to_owned())),
    }
}

fn receive_descriptor(socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(_) => break,
            Err(Os::INTR) => {}
            Err(why) => return Err(why.into()),
        }
    }
    let fds = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok(fds.last())
}

/// Changes those flags of what is mounted on `mountpoint` that `options` names, such as `ro`, as
/// `mount -o remount` has it. The others stay, `nosuid` and `nodev` above all; so does what is no
/// flag of mount(2).
///
/// # Errors
/// [`MountError::Remount`]: root alone may, and the kernel refuses `ro` while files are open for
/// writing.
pub fn remount(mountpoint: &Path, options: &str) -> Result<(), MountError> {
    let now = options_on(mountpoint).ok_or_else(|| MountError::NotMounted(mountpoint.into()))?;
    let flags = MountOptions::flags_in(&format!("{now},{options}"));
    sys::mount_remount(mountpoint, flags, c"")
        .map_err(|why| MountError::Remount(mountpoint.into(), why.into()))
}

/// The options of the topmost mount on `mountpoint`, as the kernel lists them.
fn options_on(mountpoint: &Path) -> Option<String> {
    listed(mountpoint).pop()?.split(' ').nth(5).map(str::to_owned)
}

/// The lines of `mountinfo` of what is mounted exactly on `mountpoint`; the topmost comes last.
fn listed(mountpoint: &Path) -> Vec<String> {
    let Ok(mounts) = fs::read("/proc/self/mountinfo") else { return Vec::new() };
    let there = |line: &&[u8]| {
        let at = line.split(|byte| *byte == b' ').nth(4);
        at.is_some_and(|at| unescape(at) == mountpoint.as_os_str().as_bytes())
    };
    let lines = mounts.split(|byte| *byte == b'\n').filter(there);
    lines.map(|line| String::from_utf8_lossy(line).into_owned()).collect()
}

/// Whether the server of what is mounted on `mountpoint` died ("Transport endpoint is not
/// connected").
pub fn is_dead(mountpoint: &Path) -> bool {
    matches!(rustix::fs::statfs(mountpoint), Err(Os::NOTCONN | Os::CONNABORTED))
}

/// Unmounts the dead mounts at `mountpoint` ("Transport endpoint is not connected"); `true` if
/// there were any.
pub fn clear_dead(mountpoint: &Path) -> Result<bool, MountError> {
    let mut found = false;
    // Several may be stacked.
    for _ in 0..16 {
        if !is_dead(mountpoint) {
            break;
        }
        tracing::warn!("{} is a dead mount, it is cleared", mountpoint.display());
        unmount(mountpoint, true)?;
        found = true;
    }
    Ok(found)
}

/// Types of the mounts exactly on `mountpoint`, an absolute path without symbolic links. The
/// topmost comes last.
pub fn types_on(mountpoint: &Path) -> Vec<String> {
    // Behind optional fields, whose end is marked.
    let kind = |line: &String| line.split_once(" - ")?.1.split(' ').next().map(str::to_owned);
    listed(mountpoint).iter().filter_map(kind).collect()
}

/// Whether a type of mounts is that of a volume, of ours or of `JuiceFS`.
pub fn is_volume_type(kind: &str) -> bool {
    matches!(kind, "fuse.sluice" | "fuse.juicefs")
}

/// Minor device number of the topmost mount on `mountpoint`, an absolute path without symbolic
/// links.
pub fn connection_of(mountpoint: &Path) -> Option<u32> {
    listed(mountpoint).pop()?.split(' ').nth(2)?.split_once(':')?.1.parse().ok()
}

/// `mountinfo` writes blanks and backslashes as three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail.get(..3).and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        let (byte, after) = match code {
            Some(byte) if *first == b'\\' => (byte, &tail[3..]),
            _ => (*first, tail),
        };
        out.push(byte);
        rest = after;
    }
    out
}

/// Aborts the connection: every request that waits fails, and every later one. Only the user who
/// mounted, or root, may do this.
pub(crate) fn abort(connection: u32) -> io::Result<()> {
    match fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1") {
        Err(why) if why.kind() == io::ErrorKind::NotFound => abort_privately(connection),
        other => other,
    }
}

/// If the control file system is not mounted, root can make a private mount of it.
fn abort_privately(connection: u32) -> io::Result<()> {
    let context = sys::fsopen("fusectl", FsOpenFlags::FSOPEN_CLOEXEC)?;
    sys::fsconfig_create(&context)?;
    let control = sys::fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty())?;
    let path = format!("{connection}/abort");
    let file = rustix::fs::openat(&control, path, rustix::fs::OFlags::WRONLY, rustix::fs::Mode::empty())?;
    rustix::io::write(&file, b"1")?;
    Ok(())
}

/// Sets the read-ahead of a mount, which the kernel otherwise limits to 128 KiB. Needs root.
pub(crate) fn set_read_ahead(connection: u32, kib: u32) -> io::Result<()> {
    fs::write(format!("/sys/class/bdi/0:{connection}/read_ahead_kb"), kib.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_paths_are_unescaped() {
        assert_eq!(unescape(b"/a\\040b\\134c"), b"/a b\\c");
        assert_eq!(unescape(b"/a\\"), b"/a\\");
        assert_eq!(unescape(b"/a\\9zz"), b"/a\\9zz");
    }
}
