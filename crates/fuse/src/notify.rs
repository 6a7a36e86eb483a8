//! Notifications that invalidate the kernel's cache.
//!
//! What must stay true: the kernel may have to wait for a page or a directory that a request holds,
//! and that request may have to wait for the file system. So the functions here are called from a
//! thread that no request needs, and the caller holds no lock that a request takes.

use std::{ffi::OsStr, io, os::unix::ffi::OsStrExt, sync::Arc};

use zerocopy::IntoBytes;

use crate::{
    abi::{NotifyDeleteOut, NotifyInvalEntryOut, NotifyInvalInodeOut, NotifyStoreOut, bits, notify},
    call::{self, Channel},
};

/// Sends notifications to the kernel; cheap to clone. Each returns whether the kernel had the item
/// cached.
///
/// Call it from a thread that no request needs, under no lock that a request takes: see the module.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<dyn Channel>,
}

impl Notifier {
    pub(crate) fn new(channel: Arc<dyn Channel>) -> Self {
        Self { channel }
    }

    /// Drops the attributes of `ino`, and its pages from byte `offset` on: `length` bytes, all if
    /// that is 0, none if `offset` is negative.
    pub fn inval_inode(&self, ino: u64, offset: i64, length: i64) -> io::Result<bool> {
        let head = NotifyInvalInodeOut { ino, off: offset, len: length };
        self.send(notify::INVAL_INODE, &[head.as_bytes()])
    }

    /// Drops a name: the next access looks it up again. Mounts below it are detached, too.
    pub fn inval_entry(&self, parent: u64, name: &OsStr) -> io::Result<bool> {
        self.entry(parent, name, 0)
    }

    /// Lets a name expire: the next access looks it up again, but present users keep it. Before
    /// Linux 6.2 it is dropped.
    pub fn expire_entry(&self, parent: u64, name: &OsStr) -> io::Result<bool> {
        self.entry(parent, name, bits::NOTIFY_EXPIRE_ONLY)
    }

    fn entry(&self, parent: u64, name: &OsStr, flags: u32) -> io::Result<bool> {
        let head = NotifyInvalEntryOut { parent, namelen: name.len() as u32, flags };
        self.send(notify::INVAL_ENTRY, &[head.as_bytes(), name.as_bytes(), &[0]])
    }

    /// The name of `child` was removed: drops the name, and notifies its watchers (inotify).
    pub fn delete(&self, parent: u64, child: u64, name: &OsStr) -> io::Result<bool> {
        let head = NotifyDeleteOut { parent, child, namelen: name.len() as u32, padding: 0 };
        self.send(notify::DELETE, &[head.as_bytes(), name.as_bytes(), &[0]])
    }

    /// Puts `data` into the page cache of `ino` at byte `offset`.
    pub fn store(&self, ino: u64, offset: u64, data: &[u8]) -> io::Result<bool> {
        let head = NotifyStoreOut { nodeid: ino, offset, size: data.len() as u32, padding: 0 };
        self.send(notify::STORE, &[head.as_bytes(), data])
    }

    /// Drops all names: each is looked up again at its next access (Linux 6.16). Present users keep
    /// them.
    pub fn inc_epoch(&self) -> io::Result<()> {
        call::send(&*self.channel, 0, notify::INC_EPOCH, &[])
    }

    /// Makes the kernel send all requests again that were read and not answered. They have new
    /// numbers.
    pub(crate) fn resend(&self) -> io::Result<()> {
        call::send(&*self.channel, 0, notify::RESEND, &[])
    }

    fn send(&self, code: i32, body: &[&[u8]]) -> io::Result<bool> {
        match call::send(&*self.channel, 0, code, body) {
            Err(why) if why.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            sent => sent.map(|()| true),
        }
    }
}
