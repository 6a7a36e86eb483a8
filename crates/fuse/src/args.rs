//! The arguments of requests, as types of a file system instead of the kernel's structures.
//!
//! What must stay true: nothing here copies request data; names and contents borrow the receive
//! buffer.

use std::ffi::OsStr;

/// A point in time as the kernel counts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, negative before.
    pub secs: i64,
    /// Nanoseconds on top, below 1,000,000,000.
    pub nanos: u32,
}

/// What to set a time to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The server's current time. Callers with write permission may set it.
    Now,
    /// This time. Only the owner may set it.
    At(Timestamp),
}

/// `chmod`, `chown`, `truncate` and `utimens` in one; only what is `Some` changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits (with the type bits as they are).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// New length in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of content.
    pub mtime: Option<SetTime>,
    /// Last change of attributes; only with a writeback cache.
    pub ctime: Option<Timestamp>,
    /// The open file of the request (`ftruncate`).
    pub fh: Option<u64>,
    /// The lock owner of the caller.
    pub lock_owner: Option<u64>,
    /// Drop setuid, and setgid where the group may execute (`HANDLE_KILLPRIV_V2`).
    pub kill_suid_gid: bool,
}

/// `rename(2)` and `renameat2(2)`. The old parent is the request's inode.
#[derive(Clone, Copy, Debug)]
pub struct Rename<'a> {
    /// Old name.
    pub name: &'a OsStr,
    /// Inode of the new parent.
    pub new_parent: u64,
    /// New name.
    pub new_name: &'a OsStr,
    /// `RENAME_NOREPLACE`, `RENAME_EXCHANGE`, `RENAME_WHITEOUT` or 0.
    pub flags: u32,
}

/// `mknod(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Mknod<'a> {
    /// Name in the parent.
    pub name: &'a OsStr,
    /// Type and permission bits; the umask is already off them unless `DONT_MASK` was agreed on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// Device number in the 32-bit Linux encoding.
    pub rdev: u32,
}

/// `open(2)` with `O_CREAT` of a name that the kernel thinks is absent.
#[derive(Clone, Copy, Debug)]
pub struct Create<'a> {
    /// Name in the parent.
    pub name: &'a OsStr,
    /// Type and permission bits; the umask is already off them unless `DONT_MASK` was agreed on.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// `O_*` flags.
    pub flags: i32,
    /// With `O_TRUNC` on an existing file: drop setuid and setgid (`HANDLE_KILLPRIV_V2`).
    pub kill_suid_gid: bool,
}

/// `open(2)` of an inode.
#[derive(Clone, Copy, Debug)]
pub struct Open {
    /// `O_*` flags without `O_CREAT`, `O_EXCL` and `O_NOCTTY`; `O_TRUNC` only where
    /// `ATOMIC_O_TRUNC` was agreed on.
    pub flags: i32,
    /// With `O_TRUNC`: drop setuid and setgid (`HANDLE_KILLPRIV_V2`).
    pub kill_suid_gid: bool,
}

/// `pread(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Read {
    /// What `open` answered.
    pub fh: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Most bytes to return.
    pub size: u32,
    /// `O_*` flags of the open file now.
    pub flags: i32,
    /// The lock owner of the caller.
    pub lock_owner: Option<u64>,
}

/// `pwrite(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// What `open` answered.
    pub fh: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// What to write.
    pub data: &'a [u8],
    /// `O_*` flags of the open file now.
    pub flags: i32,
    /// From the page cache (writeback or mmap): the request's caller may be another process than
    /// the writer, and `fh` any writable handle.
    pub cached: bool,
    /// The lock owner of the caller.
    pub lock_owner: Option<u64>,
    /// Drop setuid and setgid (`HANDLE_KILLPRIV_V2`).
    pub kill_suid_gid: bool,
}

/// The last close of an open file or directory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Release {
    /// What `open` answered.
    pub fh: u64,
    /// `O_*` flags of the open file.
    pub flags: i32,
    /// Whether a flush must be done, too.
    pub flush: bool,
    /// Whether `flock(2)` locks of `lock_owner` must be released.
    pub flock_unlock: bool,
    /// Whose locks.
    pub lock_owner: u64,
}

/// `setxattr(2)`.
#[derive(Clone, Copy, Debug)]
pub struct SetXattr<'a> {
    /// Name with its name space.
    pub name: &'a OsStr,
    /// Value.
    pub value: &'a [u8],
    /// `XATTR_CREATE`, `XATTR_REPLACE` or 0.
    pub flags: u32,
    /// Drop setgid: a caller outside of the file's group sets an access ACL. Also true if an older
    /// kernel does not say this.
    pub kill_sgid: bool,
}

/// Kind of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockKind {
    /// Shared.
    Read,
    /// Exclusive.
    Write,
    /// None.
    Unlock,
}

/// A byte range of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// First byte.
    pub start: u64,
    /// Last byte, itself included; `i64::MAX` for "to the end of the file, however long it gets".
    pub end: u64,
    /// Shared, exclusive or none.
    pub kind: LockKind,
    /// Process id.
    pub pid: u32,
}

/// `flock(2)` and `fcntl(2)` locks.
#[derive(Clone, Copy, Debug)]
pub struct LockArgs {
    /// What `open` answered.
    pub fh: u64,
    /// The lock owner: the process (`fcntl`) or open file (`flock`) as an opaque number, unique
    /// within this mount.
    pub owner: u64,
    /// The range and kind. With `flock`, the range has no meaning.
    pub lock: Lock,
    /// Whether it is a `flock(2)` lock. The two kinds do not conflict with each other.
    pub flock: bool,
}

/// `ioctl(2)`: only those whose argument is described by the command number, as `FS_IOC_GETFLAGS`
/// is.
#[derive(Clone, Copy, Debug)]
pub struct Ioctl<'a> {
    /// What `open` or `opendir` answered.
    pub fh: u64,
    /// Command number.
    pub cmd: u32,
    /// The argument's address or value.
    pub arg: u64,
    /// What the argument points to, if the command writes.
    pub input: &'a [u8],
    /// Bytes that may be answered at most.
    pub out_size: u32,
    /// Whether `fh` is a directory's.
    pub dir: bool,
}

/// `fallocate(2)`.
#[derive(Clone, Copy, Debug)]
pub struct Fallocate {
    /// What `open` answered.
    pub fh: u64,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// `FALLOC_FL_*` flags.
    pub mode: i32,
}

/// `copy_file_range(2)`. The source is the request's inode.
#[derive(Clone, Copy, Debug)]
pub struct CopyFileRange {
    /// Open source.
    pub fh_in: u64,
    /// Bytes from the start of the source.
    pub offset_in: u64,
    /// Target inode.
    pub ino_out: u64,
    /// Open target.
    pub fh_out: u64,
    /// Bytes from the start of the target.
    pub offset_out: u64,
    /// Bytes to copy.
    pub length: u64,
    /// Always 0 today.
    pub flags: u64,
}
