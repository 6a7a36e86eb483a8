//! What a file system answers, and how that becomes the bytes of a reply.
//!
//! What must stay true: file data is not copied for `/dev/fuse`: `writev` reads the buffers that
//! the file system returned. For a ring it is copied once, into the ring's memory.

use std::time::Duration;

use bytes::Bytes;
use zerocopy::IntoBytes;

use crate::{
    abi,
    args::{Lock, LockKind, Timestamp},
    memory::Room,
};

/// `struct stat`, as far as the kernel asks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// The number that programs see as `st_ino`.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of content.
    pub mtime: Timestamp,
    /// Last change of attributes.
    pub ctime: Timestamp,
    /// Type and permission bits.
    pub mode: u32,
    /// Links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number in the 32-bit Linux encoding.
    pub rdev: u32,
    /// Preferred size of an I/O in bytes, 0 for the kernel's.
    pub blksize: u32,
}

/// Attributes and how long the kernel may believe them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrReply {
    /// The attributes.
    pub attr: Attr,
    /// How long they hold.
    pub ttl: Duration,
}

/// A name that was looked up or made. Every one that is answered counts as one lookup of its inode,
/// to be taken back by `forget`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// By this number the kernel will ask about it; 0 says that the name does not exist.
    pub ino: u64,
    /// Tells incarnations of one number apart; constant where numbers are never used again.
    pub generation: u64,
    /// Its attributes.
    pub attr: Attr,
    /// How long the name stands for it.
    pub entry_ttl: Duration,
    /// How long the attributes hold.
    pub attr_ttl: Duration,
}

impl Entry {
    /// "No such name", which the kernel may believe for `ttl`.
    pub fn absent(ttl: Duration) -> Self {
        Self { entry_ttl: ttl, ..Self::default() }
    }
}

/// How the kernel shall treat an open file or directory: any of the constants, or'ed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// The kernel may keep a listing of the directory, and fills it as it reads. It does so only
    /// together with [`Self::KEEP_CACHE`].
    pub const CACHE_DIR: Self = Self(1 << 3);
    /// Nothing special: what the page cache holds of it is dropped now.
    pub const NONE: Self = Self(0);
    /// Reads and writes pass by the page cache.
    pub const DIRECT_IO: Self = Self(1 << 0);
    /// What the page cache holds of it is still right.
    pub const KEEP_CACHE: Self = Self(1 << 1);
    /// No FLUSH when it is closed.
    pub const NOFLUSH: Self = Self(1 << 5);
}

impl std::ops::BitOr for OpenFlags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// An open file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Comes back with every request about it.
    pub fh: u64,
    /// How the kernel shall treat it.
    pub flags: OpenFlags,
}

/// `statvfs(3)`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statfs {
    /// Blocks in all.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for users.
    pub bavail: u64,
    /// Inodes in all.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Bytes of a block.
    pub bsize: u32,
    /// Longest name in bytes.
    pub namelen: u32,
}

/// The bytes of a READ. What is pushed is sent as it is, without a copy, except into the memory of
/// a ring.
#[derive(Debug)]
pub struct ReadBuffer {
    room: Option<Room>,
    /// Bytes in `room`; they come first.
    filled: usize,
    parts: Vec<Bytes>,
    left: usize,
}

impl ReadBuffer {
    pub(crate) fn new(size: u32, room: Option<Room>) -> Self {
        let left = room.as_ref().map_or(size as usize, |room| room.size().min(size as usize));
        Self { room, filled: 0, parts: Vec::new(), left }
    }

    /// Bytes that still fit. A reply that ends before that says: end of file.
    pub fn remaining(&self) -> usize {
        self.left
    }

    /// Appends `bytes`, as far as they fit.
    pub fn push(&mut self, mut bytes: Bytes) {
        bytes.truncate(self.left);
        self.left -= bytes.len();
        if !bytes.is_empty() {
            self.parts.push(bytes);
        }
    }

    /// Appends a copy of `bytes`, as far as they fit: where the kernel reads them, if possible.
    pub fn push_copy(&mut self, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.left)];
        match &mut self.room {
            Some(room) if self.parts.is_empty() => {
                room.put(self.filled, bytes);
                self.filled += bytes.len();
                self.left -= bytes.len();
            }
            _ => self.push(Bytes::copy_from_slice(bytes)),
        }
    }
}

/// Entries of a READDIR, as many as fit.
#[derive(Debug)]
pub struct DirBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl DirBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self { bytes: Vec::with_capacity(size as usize), size: size as usize }
    }

    /// Appends an entry; `false` if it does not fit, then it is to be the first of the next page.
    ///
    /// `cookie` is the offset with which the kernel asks for what follows this entry: not 0, and
    /// not that of any other entry. Of `mode` only the type bits count.
    #[must_use]
    pub fn add(&mut self, ino: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        self.append(&[], ino, cookie, mode, name)
    }

    fn append(&mut self, prefix: &[u8], ino: u64, cookie: u64, mode: u32, name: &[u8]) -> bool {
        let len = prefix.len() + size_of::<abi::Dirent>() + name.len();
        let padded = len.next_multiple_of(8);
        if self.bytes.len() + padded > self.size {
            return false;
        }
        let kind = (mode & libc::S_IFMT) >> 12;
        let head = abi::Dirent { ino, off: cookie, namelen: name.len() as u32, kind };
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(head.as_bytes());
        self.bytes.extend_from_slice(name);
        self.bytes.resize(self.bytes.len() + padded - len, 0);
        true
    }
}

/// Entries of a READDIRPLUS, as many as fit.
#[derive(Debug)]
pub struct DirPlusBuffer(DirBuffer);

impl DirPlusBuffer {
    pub(crate) fn new(size: u32) -> Self {
        Self(DirBuffer::new(size))
    }

    /// Appends an entry with what a LOOKUP of it would answer; `false` if it does not fit.
    ///
    /// Each that fits counts as a lookup of `entry.ino`, except `.` and `..`, and except those with
    /// an `ino` of 0: of these the kernel only learns `attr.ino`, the name and the type. `cookie`:
    /// see [`DirBuffer::add`].
    #[must_use]
    pub fn add(&mut self, cookie: u64, name: &[u8], entry: &Entry) -> bool {
        let prefix = abi::EntryOut::from(entry);
        self.0.append(prefix.as_bytes(), entry.attr.ino, cookie, entry.attr.mode, name)
    }
}

/// Something that can be in a reply, after its header.
pub(crate) trait Answer {
    /// Hands the pieces of the answer to `send`.
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R;
}

macro_rules! answer_as {
    ($($type:ty => $wire:ty),* $(,)?) => {$(
        impl Answer for $type {
            fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
                send(&[<$wire>::from(self).as_bytes()])
            }
        }
    )*};
}

answer_as! {
    AttrReply => abi::AttrOut,
    Entry => abi::EntryOut,
    Opened => abi::OpenOut,
    Statfs => abi::StatfsOut,
    Lock => abi::LkOut,
}

impl Answer for () {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[])
    }
}

impl Answer for (Entry, Opened) {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[abi::EntryOut::from(&self.0).as_bytes(), abi::OpenOut::from(&self.1).as_bytes()])
    }
}

impl Answer for Bytes {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[self])
    }
}

impl Answer for DirBuffer {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[&self.bytes])
    }
}

impl Answer for DirPlusBuffer {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        self.0.send(send)
    }
}

impl Answer for ReadBuffer {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        if let Some(room) = self.room.as_ref().filter(|_| self.filled > 0) {
            if self.parts.is_empty() {
                return send(&[room.filled(self.filled)]);
            }
            let parts = self.parts.iter().map(|part| &part[..]);
            let all: Vec<_> = std::iter::once(room.filled(self.filled)).chain(parts).collect();
            return send(&all);
        }
        match self.parts.as_slice() {
            [] => send(&[]),
            [one] => send(&[one]),
            [one, two] => send(&[one, two]),
            // writev(2) takes 1024 pieces, one of them the header.
            many if many.len() > 1000 => send(&[&many.concat()]),
            many => send(&many.iter().map(|part| &part[..]).collect::<Vec<_>>()),
        }
    }
}

/// A structure of the protocol that answers by itself.
pub(crate) struct Wire<T>(pub(crate) T);

impl<T: IntoBytes + zerocopy::Immutable> Answer for Wire<T> {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[self.0.as_bytes()])
    }
}

/// What an ioctl answers: result 0 and the bytes of its argument.
pub(crate) struct IoctlAnswer(pub(crate) Bytes);

impl Answer for IoctlAnswer {
    fn send<R>(&self, send: impl FnOnce(&[&[u8]]) -> R) -> R {
        send(&[abi::IoctlOut::default().as_bytes(), &self.0])
    }
}

impl From<&Attr> for abi::Attr {
    fn from(attr: &Attr) -> Self {
        Self {
            ino: attr.ino,
            size: attr.size,
            blocks: attr.blocks,
            atime: attr.atime.secs as u64,
            mtime: attr.mtime.secs as u64,
            ctime: attr.ctime.secs as u64,
            atimensec: attr.atime.nanos,
            mtimensec: attr.mtime.nanos,
            ctimensec: attr.ctime.nanos,
            mode: attr.mode,
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
            blksize: attr.blksize,
            flags: 0,
        }
    }
}

impl From<&AttrReply> for abi::AttrOut {
    fn from(reply: &AttrReply) -> Self {
        Self {
            attr_valid: reply.ttl.as_secs(),
            attr_valid_nsec: reply.ttl.subsec_nanos(),
            dummy: 0,
            attr: (&reply.attr).into(),
        }
    }
}

impl From<&Entry> for abi::EntryOut {
    fn from(entry: &Entry) -> Self {
        Self {
            nodeid: entry.ino,
            generation: entry.generation,
            entry_valid: entry.entry_ttl.as_secs(),
            attr_valid: entry.attr_ttl.as_secs(),
            entry_valid_nsec: entry.entry_ttl.subsec_nanos(),
            attr_valid_nsec: entry.attr_ttl.subsec_nanos(),
            attr: (&entry.attr).into(),
        }
    }
}

impl From<&Opened> for abi::OpenOut {
    fn from(opened: &Opened) -> Self {
        Self { fh: opened.fh, open_flags: opened.flags.0, backing_id: 0 }
    }
}

impl From<&Statfs> for abi::StatfsOut {
    fn from(stat: &Statfs) -> Self {
        Self {
            blocks: stat.blocks,
            bfree: stat.bfree,
            bavail: stat.bavail,
            files: stat.files,
            ffree: stat.ffree,
            bsize: stat.bsize,
            namelen: stat.namelen,
            frsize: stat.bsize,
            ..Self::default()
        }
    }
}

impl From<&Lock> for abi::LkOut {
    fn from(lock: &Lock) -> Self {
        let kind = match lock.kind {
            LockKind::Read => libc::F_RDLCK,
            LockKind::Write => libc::F_WRLCK,
            LockKind::Unlock => libc::F_UNLCK,
        };
        Self { lk: abi::FileLock { start: lock.start, end: lock.end, kind: kind as u32, pid: lock.pid } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(answer: &impl Answer) -> Vec<u8> {
        answer.send(|pieces| pieces.concat())
    }

    #[test]
    fn reads_never_exceed_what_was_asked() {
        let mut out = ReadBuffer::new(10, None);
        out.push(Bytes::from_static(b"abcd"));
        assert_eq!(out.remaining(), 6);
        out.push(Bytes::from_static(b"efghij"));
        assert_eq!(out.remaining(), 0);
        out.push(Bytes::from_static(b"k"));
        assert_eq!(bytes(&out), b"abcdefghij");
    }

    #[test]
    fn more_pieces_than_writev_takes_are_joined() {
        let mut out = ReadBuffer::new(5000, None);
        for i in 0..5000_u32 {
            out.push(Bytes::copy_from_slice(&[i as u8]));
        }
        assert_eq!(out.send(|pieces| pieces.len()), 1);
        assert_eq!(bytes(&out).len(), 5000);
    }

    #[test]
    fn directory_pages_are_padded_and_bounded() {
        let mut out = DirBuffer::new(70);
        assert!(out.add(5, 1, libc::S_IFDIR | 0o755, b"a"));
        assert!(out.add(6, 2, libc::S_IFREG, b"12345678"));
        assert!(!out.add(7, 3, libc::S_IFREG, b"x"), "24 + 8 bytes do not fit into 70 - 64");
        let page = bytes(&out);
        assert_eq!(page.len(), 64);
        assert_eq!(page[24..32], *b"a\0\0\0\0\0\0\0");
        assert_eq!(u32::from_ne_bytes([page[20], page[21], page[22], page[23]]), 4, "DT_DIR");
        assert_eq!(page[56..64], *b"12345678");
    }

    #[test]
    fn readdirplus_pages_hold_whole_entries() {
        let entry = Entry {
            ino: 9,
            attr: Attr { ino: 9, mode: libc::S_IFREG, ..Attr::default() },
            ..Entry::default()
        };
        let mut out = DirPlusBuffer::new(128 + 24 + 8);
        assert!(out.add(1, b"name", &entry));
        assert!(!out.add(2, b"more", &entry));
        assert_eq!(bytes(&out).len(), 160);
    }

    #[test]
    fn times_to_live_are_kept_apart() {
        let entry = Entry {
            entry_ttl: Duration::from_millis(1500),
            attr_ttl: Duration::from_secs(9),
            ..Entry::default()
        };
        let wire = abi::EntryOut::from(&entry);
        assert_eq!((wire.entry_valid, wire.entry_valid_nsec), (1, 500_000_000));
        assert_eq!((wire.attr_valid, wire.attr_valid_nsec), (9, 0));
    }
}
