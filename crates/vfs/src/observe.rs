//! Counts operations and their times, and writes their lines in the access log.
//!
//! What must stay true: observing an operation takes two clock reads and a few additions, and no
//! lock.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use sluice_types::{
    Attr, FileType, Ino,
    metrics::{Buckets, Histogram},
};

use crate::entry::Entry;

macro_rules! ops {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// An operation as the kernel asks for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "each is named after its request")]
        pub enum OpKind { $($name),* }

        pub(crate) const NAMES: &[&str] = &[$($text),*];
    };
}

ops! {
    Lookup = "lookup", GetAttr = "getattr", SetAttr = "setattr", Readlink = "readlink", Symlink = "symlink",
    Mknod = "mknod", Mkdir = "mkdir", Unlink = "unlink", Rmdir = "rmdir", Rename = "rename", Link = "link",
    Open = "open", Create = "create", Read = "read", Write = "write", Flush = "flush", Release = "release",
    Fsync = "fsync", Opendir = "opendir", Readdir = "readdir", Releasedir = "releasedir", Statfs = "statfs",
    SetXattr = "setxattr", GetXattr = "getxattr", ListXattr = "listxattr", RemoveXattr = "removexattr",
    GetLk = "getlk", SetLk = "setlk", Flock = "flock", Ioctl = "ioctl", Fallocate = "fallocate",
    Lseek = "lseek", CopyRange = "copy_file_range",
}

/// Histogram buckets of the times of operations. These are those of `JuiceFS`, and so are the
/// buckets of sizes.
const TIMES: Buckets = Buckets::times(0.000_01, 1.8, 29);
/// Histogram buckets of the sizes of reads and writes.
const SIZES: Buckets = Buckets::even(4096.0, 32);
/// Error numbers that are counted separately: all that Linux has.
const ERRORS: usize = 134;

/// Counts of all operations.
pub(crate) struct Observed {
    pub(crate) ops: [Counts; NAMES.len()],
    /// Times of all operations, without their sum.
    pub(crate) times: Histogram,
    errors: [AtomicU64; ERRORS],
    /// Bytes of each read of a file.
    pub(crate) read: Histogram,
    /// Bytes of each write.
    pub(crate) written: Histogram,
}

#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) count: AtomicU64,
    pub(crate) errors: AtomicU64,
    pub(crate) nanos: AtomicU64,
}

/// Totals of one operation.
pub(crate) struct OpTotals {
    pub(crate) name: &'static str,
    pub(crate) count: u64,
    pub(crate) errors: u64,
    pub(crate) time: Duration,
}

impl Default for Observed {
    fn default() -> Self {
        let ops = std::array::from_fn(|_| Counts::default());
        Self {
            ops,
            times: Histogram::new(&TIMES),
            errors: std::array::from_fn(|_| AtomicU64::new(0)),
            read: Histogram::new(&SIZES),
            written: Histogram::new(&SIZES),
        }
    }
}

impl Observed {
    /// Counts one operation, and the error that it ended with.
    pub(crate) fn count(&self, op: OpKind, took: Duration, errno: Option<i32>) {
        let counts = &self.ops[op as usize];
        counts.count.fetch_add(1, Ordering::Relaxed);
        counts.nanos.fetch_add(took.as_nanos() as u64, Ordering::Relaxed);
        self.times.observe(took);
        if let Some(errno) = errno {
            counts.errors.fetch_add(1, Ordering::Relaxed);
            if let Some(same) = usize::try_from(errno).ok().and_then(|errno| self.errors.get(errno)) {
                same.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Errors that operations ended with, by number, and how often.
    pub(crate) fn errors(&self) -> impl Iterator<Item = (i32, u64)> {
        let counts = self.errors.iter().map(|count| count.load(Ordering::Relaxed));
        (0..).zip(counts).filter(|(_, count)| *count > 0)
    }

    pub(crate) fn totals(&self) -> impl Iterator<Item = OpTotals> {
        NAMES.iter().zip(&self.ops).map(|(name, counts)| OpTotals {
            name,
            count: counts.count.load(Ordering::Relaxed),
            errors: counts.errors.load(Ordering::Relaxed),
            time: Duration::from_nanos(counts.nanos.load(Ordering::Relaxed)),
        })
    }
}

/// The name of an error number, such as `ENOENT`; the number itself if it has no name here.
pub(crate) fn errno_name(errno: i32) -> String {
    let name = match errno {
        libc::EPERM => "EPERM",
        libc::ENOENT => "ENOENT",
        libc::EINTR => "EINTR",
        libc::EIO => "EIO",
        libc::ENXIO => "ENXIO",
        libc::E2BIG => "E2BIG",
        libc::EBADF => "EBADF",
        libc::EAGAIN => "EAGAIN",
        libc::ENOMEM => "ENOMEM",
        libc::EACCES => "EACCES",
        libc::EBUSY => "EBUSY",
        libc::EEXIST => "EEXIST",
        libc::EXDEV => "EXDEV",
        libc::ENOTDIR => "ENOTDIR",
        libc::EISDIR => "EISDIR",
        libc::EINVAL => "EINVAL",
        libc::ENOTTY => "ENOTTY",
        libc::ETXTBSY => "ETXTBSY",
        libc::EFBIG => "EFBIG",
        libc::ENOSPC => "ENOSPC",
        libc::EROFS => "EROFS",
        libc::EMLINK => "EMLINK",
        libc::ERANGE => "ERANGE",
        libc::EDEADLK => "EDEADLK",
        libc::ENAMETOOLONG => "ENAMETOOLONG",
        libc::ENOSYS => "ENOSYS",
        libc::ENOTEMPTY => "ENOTEMPTY",
        libc::ELOOP => "ELOOP",
        libc::ENODATA => "ENODATA",
        libc::EOPNOTSUPP => "EOPNOTSUPP",
        libc::ESTALE => "ESTALE",
        libc::EDQUOT => "EDQUOT",
        _ => return errno.to_string(),
    };
    name.to_owned()
}

/// Writes an inode as access logs show it: `:
/// (ino,[-rw-r--r--:0100644,nlink,uid,gid,atime,mtime,ctime,length])`.
pub fn describe_attr(text: &mut String, ino: Ino, attr: &Attr) {
    let kind = match attr.kind {
        FileType::File => '-',
        FileType::Dir => 'd',
        FileType::Symlink => 'l',
        FileType::Fifo => 'p',
        FileType::Block => 'b',
        FileType::Char => 'c',
        FileType::Socket => 's',
    };
    let mut bits: Vec<u8> =
        (0..9).map(|n| if attr.mode >> (8 - n) & 1 == 1 { b"rwx"[n % 3] } else { b'-' }).collect();
    for (bit, at, with, without) in
        [(0o4000, 2, b's', b'S'), (0o2000, 5, b's', b'S'), (0o1000, 8, b't', b'T')]
    {
        if attr.mode & bit != 0 {
            bits[at] = if bits[at] == b'x' { with } else { without };
        }
    }
    let bits = String::from_utf8_lossy(&bits);
    let mode = attr.st_mode();
    let Attr { nlink, uid, gid, length, .. } = attr;
    let (atime, mtime, ctime) = (attr.atime.sec, attr.mtime.sec, attr.ctime.sec);
    // Writing to a string cannot fail.
    let _ = write!(
        text,
        ": ({ino},[{kind}{bits}:0{mode:06o},{nlink},{uid},{gid},{atime},{mtime},{ctime},{length}])"
    );
}

/// [`describe_attr`] of an entry.
pub fn describe_entry(text: &mut String, entry: Option<&Entry>) {
    if let Some(entry) = entry {
        describe_attr(text, entry.ino, &entry.attr);
    }
}
