//! The kernel's FUSE protocol, version 7.45: what the bytes of requests and replies mean.
//!
//! What must stay true: every structure has exactly the layout of the kernel's `fuse.h`. The macro
//! states each size, so that a missing field does not compile, and no structure has padding that is
//! not named.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The protocol's major version.
pub(crate) const MAJOR: u32 = 7;
/// The newest minor version that this crate supports.
pub(crate) const MINOR: u32 = 45;
/// The oldest minor version that this crate supports (Linux 3.15). Since then, no structure has
/// changed its size unless both sides agreed to it.
pub(crate) const OLDEST_MINOR: u32 = 23;
/// Bytes that the kernel needs for everything in a request that is not WRITE data.
pub(crate) const HEADER_ROOM: usize = 4096;
/// The unit of `max_pages`.
pub(crate) const PAGE: u32 = 4096;

macro_rules! layout {
    ($($(#[$doc:meta])* $name:ident [$size:literal] { $($field:ident: $type:ty),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub(crate) $field: $type),* }
        const _: () = assert!(size_of::<$name>() == $size, stringify!($name));
    )*};
}

layout! {
    /// Opens every request.
    InHeader[40] {
        len: u32, opcode: u32, unique: u64, nodeid: u64, uid: u32, gid: u32, pid: u32, total_extlen: u16, padding: u16,
    }
    /// Opens every reply and, with `unique` 0 and a notification code for an error, every
    /// notification.
    OutHeader[16] { len: u32, error: i32, unique: u64 }

    InitIn[64] { major: u32, minor: u32, max_readahead: u32, flags: u32, flags2: u32, unused: [u32; 11] }
    InitOut[64] {
        major: u32, minor: u32, max_readahead: u32, flags: u32, max_background: u16, congestion_threshold: u16,
        max_write: u32, time_gran: u32, max_pages: u16, map_alignment: u16, flags2: u32, max_stack_depth: u32,
        request_timeout: u16, unused: [u16; 11],
    }

    Attr[88] {
        ino: u64, size: u64, blocks: u64, atime: u64, mtime: u64, ctime: u64, atimensec: u32, mtimensec: u32,
        ctimensec: u32, mode: u32, nlink: u32, uid: u32, gid: u32, rdev: u32, blksize: u32, flags: u32,
    }
    AttrOut[104] { attr_valid: u64, attr_valid_nsec: u32, dummy: u32, attr: Attr }
    EntryOut[128] {
        nodeid: u64, generation: u64, entry_valid: u64, attr_valid: u64, entry_valid_nsec: u32, attr_valid_nsec: u32,
        attr: Attr,
    }
    Dirent[24] { ino: u64, off: u64, namelen: u32, kind: u32 }
    OpenOut[16] { fh: u64, open_flags: u32, backing_id: i32 }
    StatfsOut[80] {
        blocks: u64, bfree: u64, bavail: u64, files: u64, ffree: u64, bsize: u32, namelen: u32, frsize: u32,
        padding: u32, spare: [u32; 6],
    }
    WriteOut[8] { size: u32, padding: u32 }
    GetxattrOut[8] { size: u32, padding: u32 }
    LseekOut[8] { offset: u64 }
    CopyFileRangeOut[8] { bytes_copied: u64 }
    IoctlOut[16] { result: i32, flags: u32, in_iovs: u32, out_iovs: u32 }
    LkOut[24] { lk: FileLock }

    ForgetIn[8] { nlookup: u64 }
    BatchForgetIn[8] { count: u32, dummy: u32 }
    ForgetOne[16] { nodeid: u64, nlookup: u64 }
    GetattrIn[16] { getattr_flags: u32, dummy: u32, fh: u64 }
    SetattrIn[88] {
        valid: u32, padding: u32, fh: u64, size: u64, lock_owner: u64, atime: u64, mtime: u64, ctime: u64,
        atimensec: u32, mtimensec: u32, ctimensec: u32, mode: u32, unused4: u32, uid: u32, gid: u32, unused5: u32,
    }
    MknodIn[16] { mode: u32, rdev: u32, umask: u32, padding: u32 }
    MkdirIn[8] { mode: u32, umask: u32 }
    RenameIn[8] { newdir: u64 }
    Rename2In[16] { newdir: u64, flags: u32, padding: u32 }
    LinkIn[8] { oldnodeid: u64 }
    OpenIn[8] { flags: u32, open_flags: u32 }
    CreateIn[16] { flags: u32, mode: u32, umask: u32, open_flags: u32 }
    ReleaseIn[24] { fh: u64, flags: u32, release_flags: u32, lock_owner: u64 }
    FlushIn[24] { fh: u64, unused: u32, padding: u32, lock_owner: u64 }
    /// READ, READDIR and READDIRPLUS.
    ReadIn[40] { fh: u64, offset: u64, size: u32, read_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    WriteIn[40] { fh: u64, offset: u64, size: u32, write_flags: u32, lock_owner: u64, flags: u32, padding: u32 }
    FsyncIn[16] { fh: u64, fsync_flags: u32, padding: u32 }
    SetxattrIn[8] { size: u32, flags: u32 }
    /// Follows [`SetxattrIn`] where `SETXATTR_EXT` was agreed on.
    SetxattrExt[8] { setxattr_flags: u32, padding: u32 }
    GetxattrIn[8] { size: u32, padding: u32 }
    FileLock[24] { start: u64, end: u64, kind: u32, pid: u32 }
    LkIn[48] { fh: u64, owner: u64, lk: FileLock, lk_flags: u32, padding: u32 }
    AccessIn[8] { mask: u32, padding: u32 }
    InterruptIn[8] { unique: u64 }
    IoctlIn[32] { fh: u64, flags: u32, cmd: u32, arg: u64, in_size: u32, out_size: u32 }
    FallocateIn[32] { fh: u64, offset: u64, length: u64, mode: u32, padding: u32 }
    LseekIn[24] { fh: u64, offset: u64, whence: u32, padding: u32 }
    CopyFileRangeIn[56] {
        fh_in: u64, off_in: u64, nodeid_out: u64, fh_out: u64, off_out: u64, len: u64, flags: u64,
    }

    /// In the headers of a ring's slot: which request it is, and how long the payload is.
    RingInOut[32] { flags: u64, commit_id: u64, payload_sz: u32, padding: u32, reserved: u64 }
    /// The command of a ring.
    RingCommand[24] { flags: u64, commit_id: u64, qid: u16, padding: [u8; 6] }

    NotifyInvalInodeOut[24] { ino: u64, off: i64, len: i64 }
    NotifyInvalEntryOut[16] { parent: u64, namelen: u32, flags: u32 }
    NotifyDeleteOut[24] { parent: u64, child: u64, namelen: u32, padding: u32 }
    NotifyStoreOut[24] { nodeid: u64, offset: u64, size: u32, padding: u32 }
}

/// Operation codes of requests.
pub(crate) mod opcode {
    macro_rules! opcodes {
        ($($name:ident = $value:literal),* $(,)?) => {$(pub(crate) const $name: u32 = $value;)*};
    }
    opcodes! {
        LOOKUP = 1, FORGET = 2, GETATTR = 3, SETATTR = 4, READLINK = 5, SYMLINK = 6, MKNOD = 8, MKDIR = 9,
        UNLINK = 10, RMDIR = 11, RENAME = 12, LINK = 13, OPEN = 14, READ = 15, WRITE = 16, STATFS = 17,
        RELEASE = 18, FSYNC = 20, SETXATTR = 21, GETXATTR = 22, LISTXATTR = 23, REMOVEXATTR = 24, FLUSH = 25,
        INIT = 26, OPENDIR = 27, READDIR = 28, RELEASEDIR = 29, FSYNCDIR = 30, GETLK = 31, SETLK = 32, SETLKW = 33,
        ACCESS = 34, CREATE = 35, INTERRUPT = 36, DESTROY = 38, IOCTL = 39, BATCH_FORGET = 42, FALLOCATE = 43,
        READDIRPLUS = 44, RENAME2 = 45, LSEEK = 46, COPY_FILE_RANGE = 47, COPY_FILE_RANGE_64 = 53,
    }
}

/// Which fields of a [`SetattrIn`] count.
pub(crate) mod fattr {
    pub(crate) const MODE: u32 = 1 << 0;
    pub(crate) const UID: u32 = 1 << 1;
    pub(crate) const GID: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
    pub(crate) const ATIME: u32 = 1 << 4;
    pub(crate) const MTIME: u32 = 1 << 5;
    pub(crate) const FH: u32 = 1 << 6;
    pub(crate) const ATIME_NOW: u32 = 1 << 7;
    pub(crate) const MTIME_NOW: u32 = 1 << 8;
    pub(crate) const LOCKOWNER: u32 = 1 << 9;
    pub(crate) const CTIME: u32 = 1 << 10;
    pub(crate) const KILL_SUIDGID: u32 = 1 << 11;
}

/// Single bits of requests.
pub(crate) mod bits {
    pub(crate) const GETATTR_FH: u32 = 1 << 0;
    pub(crate) const OPEN_KILL_SUIDGID: u32 = 1 << 0;
    pub(crate) const READ_LOCKOWNER: u32 = 1 << 1;
    pub(crate) const WRITE_CACHE: u32 = 1 << 0;
    pub(crate) const WRITE_LOCKOWNER: u32 = 1 << 1;
    pub(crate) const WRITE_KILL_SUIDGID: u32 = 1 << 2;
    pub(crate) const RELEASE_FLUSH: u32 = 1 << 0;
    pub(crate) const RELEASE_FLOCK_UNLOCK: u32 = 1 << 1;
    pub(crate) const FSYNC_FDATASYNC: u32 = 1 << 0;
    pub(crate) const SETXATTR_ACL_KILL_SGID: u32 = 1 << 0;
    pub(crate) const LK_FLOCK: u32 = 1 << 0;
    pub(crate) const IOCTL_DIR: u32 = 1 << 4;
    pub(crate) const NOTIFY_EXPIRE_ONLY: u32 = 1 << 0;
}

/// A bit in the number of a request: the kernel sent it before, to a server that did not answer it.
pub(crate) const UNIQUE_RESEND: u64 = 1 << 63;

/// Codes of notifications.
pub(crate) mod notify {
    pub(crate) const INVAL_INODE: i32 = 2;
    pub(crate) const INVAL_ENTRY: i32 = 3;
    pub(crate) const STORE: i32 = 4;
    pub(crate) const DELETE: i32 = 6;
    pub(crate) const RESEND: i32 = 7;
    pub(crate) const INC_EPOCH: i32 = 8;
}

/// Commands of a ring.
pub(crate) mod ring {
    /// A slot begins to take requests.
    pub(crate) const REGISTER: u32 = 1;
    /// A slot has an answer, and takes the next request.
    pub(crate) const COMMIT_AND_FETCH: u32 = 2;
}
