//! The interface that a file system implements.
//!
//! What must stay true: nothing here knows how requests arrive. A method runs on the thread that
//! received its request, and may block there for as long as it must: other threads receive the next
//! requests.

use std::{ffi::OsStr, sync::Arc};

use bytes::Bytes;

use crate::{
    args::{
        CopyFileRange, Create, Fallocate, Ioctl, Lock, LockArgs, Mknod, Open, Read, Release, Rename, SetAttr,
        SetXattr, Write,
    },
    call::{Call, Reply},
    errno::{Errno, Result},
    init::Negotiated,
    interrupt::Interrupt,
    reply::{AttrReply, DirBuffer, DirPlusBuffer, Entry, Opened, ReadBuffer, Statfs},
};

/// The inode of the root directory.
pub const ROOT: u64 = 1;

/// The caller of a request, and whether it still waits.
#[derive(Debug)]
pub struct Request<'a> {
    /// Number of the request, unique within the mount.
    pub unique: u64,
    /// Effective user of the caller.
    pub uid: u32,
    /// Effective group of the caller.
    pub gid: u32,
    /// Thread id of the caller, 0 if it is the kernel itself or in another PID name space.
    pub pid: u32,
    pub(crate) call: &'a Arc<Call>,
}

impl Request<'_> {
    /// Whether no caller waits for the answer any more: it got a signal, the deadline is over, or
    /// the mount ends. An operation that waits should check this and return EINTR.
    pub fn is_interrupted(&self) -> bool {
        self.call.is_interrupted()
    }

    /// Whether the kernel sent it before, to a server that read it and died. It may have been done.
    pub fn resent(&self) -> bool {
        self.unique & crate::abi::UNIQUE_RESEND != 0
    }

    /// [`Self::is_interrupted`] as a value that can be stored, sent to threads, and has callbacks.
    pub fn interrupt(&self) -> Interrupt {
        Interrupt::new(self.call)
    }
}

/// A file system. One method per operation, each called from many threads at once; the defaults are
/// right for a file system that lacks the operation. ENOSYS makes the kernel stop asking, and do
/// without.
///
/// Inode numbers are those that [`Entry::ino`] named, and [`ROOT`]. Names are single names; `.` and
/// `..` come in `lookup` only, when the mount is exported by NFS.
#[allow(unused_variables)]
pub trait FileSystem: Send + Sync + 'static {
    /// The mount begins; `negotiated` is what the kernel agreed to. An error fails the mount.
    fn init(&self, negotiated: &Negotiated) -> Result<()> {
        Ok(())
    }

    /// The mount is gone. Called once, after the last operation. Handles that are still open will
    /// not be released.
    fn destroy(&self) {}

    /// Looks `name` up in `parent`. ENOENT, or [`Entry::absent`] where absence may be cached.
    fn lookup(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<Entry>;

    /// The kernel drops `count` of its lookups of `ino`. It needs no answer and must not block.
    fn forget(&self, ino: u64, count: u64) {}

    /// Attributes. `fh` is set if the request came through an open file.
    fn getattr(&self, req: &Request<'_>, ino: u64, fh: Option<u64>) -> Result<AttrReply>;

    /// Changes attributes and answers the new ones.
    fn setattr(&self, req: &Request<'_>, ino: u64, change: &SetAttr) -> Result<AttrReply> {
        Err(Errno::ENOSYS)
    }

    /// Target of a symbolic link.
    fn readlink(&self, req: &Request<'_>, ino: u64) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// Makes a symbolic link.
    fn symlink(&self, req: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a file, pipe, socket or device.
    fn mknod(&self, req: &Request<'_>, parent: u64, node: &Mknod<'_>) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Makes a directory. `mode` and `umask` as in [`Mknod`].
    fn mkdir(&self, req: &Request<'_>, parent: u64, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Removes a name of a node that is no directory.
    fn unlink(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Removes an empty directory.
    fn rmdir(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Renames or exchanges.
    fn rename(&self, req: &Request<'_>, parent: u64, rename: &Rename<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Adds a name to `ino`.
    fn link(&self, req: &Request<'_>, ino: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        Err(Errno::ENOSYS)
    }

    /// Opens a file.
    fn open(&self, req: &Request<'_>, ino: u64, open: &Open) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Makes a file if it is absent, and opens it.
    fn create(&self, req: &Request<'_>, parent: u64, create: &Create<'_>) -> Result<(Entry, Opened)> {
        Err(Errno::ENOSYS)
    }

    /// Reads into `out`, less than requested only at the end of the file.
    fn read(&self, req: &Request<'_>, ino: u64, read: &Read, out: &mut ReadBuffer) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Writes and answers how many bytes.
    fn write(&self, req: &Request<'_>, ino: u64, write: &Write<'_>) -> Result<u32> {
        Err(Errno::ENOSYS)
    }

    /// A descriptor of the file was closed: releases the POSIX locks of `lock_owner`, and reports
    /// errors of earlier writes.
    fn flush(&self, req: &Request<'_>, ino: u64, fh: u64, lock_owner: u64) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of an open file was closed. No caller waits for the answer.
    fn release(&self, req: &Request<'_>, ino: u64, release: &Release) -> Result<()> {
        Ok(())
    }

    /// Makes written data survive a crash.
    fn fsync(&self, req: &Request<'_>, ino: u64, fh: u64, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Opens a directory.
    fn opendir(&self, req: &Request<'_>, ino: u64, flags: i32) -> Result<Opened> {
        Ok(Opened::default())
    }

    /// Lists a directory from cookie `offset` on (0: the start). If nothing is added, the listing
    /// has ended.
    fn readdir(&self, req: &Request<'_>, ino: u64, fh: u64, offset: u64, out: &mut DirBuffer) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The same with attributes.
    fn readdirplus(
        &self,
        req: &Request<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusBuffer,
    ) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The last descriptor of an open directory was closed.
    fn releasedir(&self, req: &Request<'_>, ino: u64, release: &Release) -> Result<()> {
        Ok(())
    }

    /// As [`fsync`](Self::fsync), for a directory.
    fn fsyncdir(&self, req: &Request<'_>, ino: u64, fh: u64, data_only: bool) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Sizes of the file system.
    fn statfs(&self, req: &Request<'_>, ino: u64) -> Result<Statfs> {
        Ok(Statfs { bsize: 4096, namelen: 255, ..Statfs::default() })
    }

    /// Sets an extended attribute.
    fn setxattr(&self, req: &Request<'_>, ino: u64, xattr: &SetXattr<'_>) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// Value of an extended attribute, whole. ENODATA if there is none.
    fn getxattr(&self, req: &Request<'_>, ino: u64, name: &OsStr) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// Names of all extended attributes, each ended by NUL.
    fn listxattr(&self, req: &Request<'_>, ino: u64) -> Result<Bytes> {
        Err(Errno::ENOSYS)
    }

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request<'_>, ino: u64, name: &OsStr) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// `access(2)`; never asked with `default_permissions`.
    fn access(&self, req: &Request<'_>, ino: u64, mask: u32) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// The first lock that conflicts with `lock`, or `lock` with
    /// [`LockKind::Unlock`](crate::LockKind).
    fn getlk(&self, req: &Request<'_>, ino: u64, lock: &LockArgs) -> Result<Lock> {
        Err(Errno::ENOSYS)
    }

    /// Locks or unlocks without a wait; EAGAIN if another lock conflicts. `reply` may be answered
    /// later, from any thread.
    fn setlk(&self, req: &Request<'_>, ino: u64, lock: &LockArgs, reply: Reply) {
        reply.error(Errno::ENOSYS);
    }

    /// Locks, and waits without a limit. `reply` may be answered later, from any thread. The owner
    /// of `reply` must watch `req.interrupt()`, and answer EINTR then. No deadline ends it.
    fn setlkw(&self, req: &Request<'_>, ino: u64, lock: &LockArgs, reply: Reply) {
        reply.error(Errno::ENOSYS);
    }

    /// Returns at most `ioctl.out_size` bytes.
    fn ioctl(&self, req: &Request<'_>, ino: u64, ioctl: &Ioctl<'_>) -> Result<Bytes> {
        Err(Errno::ENOTTY)
    }

    /// Reserves, punches or zeroes a range.
    fn fallocate(&self, req: &Request<'_>, ino: u64, range: &Fallocate) -> Result<()> {
        Err(Errno::ENOSYS)
    }

    /// `SEEK_DATA` and `SEEK_HOLE`; ENXIO beyond the end.
    fn lseek(&self, req: &Request<'_>, ino: u64, fh: u64, offset: i64, whence: u32) -> Result<u64> {
        Err(Errno::ENOSYS)
    }

    /// Copies within the file system and answers how many bytes.
    fn copy_file_range(&self, req: &Request<'_>, ino: u64, copy: &CopyFileRange) -> Result<u64> {
        Err(Errno::ENOSYS)
    }
}
