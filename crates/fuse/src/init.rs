//! The INIT request: what the kernel offers, what the mount requests, and what both agree on.
//!
//! What must stay true: nothing is requested that the kernel did not offer, so that [`Negotiated`]
//! is what really holds.

use std::time::Duration;

use crate::abi::{self, InitIn, InitOut};

/// A set of protocol features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features(pub u64);

impl Features {
    /// Several reads of one file at once.
    pub const ASYNC_READ: Self = Self(1 << 0);
    /// `fcntl(2)` locks are sent to the server; without it the kernel keeps them itself.
    pub const POSIX_LOCKS: Self = Self(1 << 1);
    /// `O_TRUNC` comes with OPEN instead of a SETATTR after it.
    pub const ATOMIC_O_TRUNC: Self = Self(1 << 3);
    /// Lookups of `.` and `..`, for NFS.
    pub const EXPORT_SUPPORT: Self = Self(1 << 4);
    /// Writes larger than a page.
    pub const BIG_WRITES: Self = Self(1 << 5);
    /// The file system applies the umask, as default ACLs require.
    pub const DONT_MASK: Self = Self(1 << 6);
    /// `flock(2)` locks are sent to the server; without it the kernel keeps them itself.
    pub const FLOCK_LOCKS: Self = Self(1 << 10);
    /// Ioctls on directories.
    pub const IOCTL_DIR: Self = Self(1 << 11);
    /// A new mtime or size drops the page cache of a file.
    pub const AUTO_INVAL_DATA: Self = Self(1 << 12);
    /// READDIRPLUS.
    pub const READDIRPLUS: Self = Self(1 << 13);
    /// READDIRPLUS where it seems worth it, READDIR elsewhere.
    pub const READDIRPLUS_AUTO: Self = Self(1 << 14);
    /// Direct I/O in parallel.
    pub const ASYNC_DIO: Self = Self(1 << 15);
    /// The kernel collects writes, and owns size and mtime meanwhile.
    pub const WRITEBACK_CACHE: Self = Self(1 << 16);
    /// Lookups and listings of one directory in parallel.
    pub const PARALLEL_DIROPS: Self = Self(1 << 18);
    /// The kernel checks POSIX ACLs (needs `default_permissions`).
    pub const POSIX_ACL: Self = Self(1 << 20);
    /// Requests of more than 128 KiB.
    pub const MAX_PAGES: Self = Self(1 << 22);
    /// Targets of symbolic links are cached.
    pub const CACHE_SYMLINKS: Self = Self(1 << 23);
    /// Only notifications drop the page cache of a file.
    pub const EXPLICIT_INVAL_DATA: Self = Self(1 << 25);
    /// The file system drops setuid and setgid itself, so the kernel need not read xattrs before
    /// each write.
    pub const HANDLE_KILLPRIV_V2: Self = Self(1 << 28);
    /// SETXATTR says whether setgid must be cleared.
    pub const SETXATTR_EXT: Self = Self(1 << 29);
    /// More than 32 features.
    pub const INIT_EXT: Self = Self(1 << 30);
    /// Shared mappings of files with [`DIRECT_IO`](crate::OpenFlags::DIRECT_IO).
    pub const DIRECT_IO_ALLOW_MMAP: Self = Self(1 << 36);

    /// The kernel can send requests again that a dead server did not answer.
    pub const HAS_RESEND: Self = Self(1 << 39);

    /// Requests come through `io_uring` (Linux 6.14).
    /// [`MountOptions::io_uring`](crate::MountOptions::`io_uring`) asks for it.
    pub const OVER_IO_URING: Self = Self(1 << 41);

    /// What a mount has unless it says otherwise.
    pub const DEFAULT: Self = Self::ASYNC_READ
        .with(Self::POSIX_LOCKS)
        .with(Self::ATOMIC_O_TRUNC)
        .with(Self::EXPORT_SUPPORT)
        .with(Self::BIG_WRITES)
        .with(Self::FLOCK_LOCKS)
        .with(Self::IOCTL_DIR)
        .with(Self::AUTO_INVAL_DATA)
        .with(Self::READDIRPLUS)
        .with(Self::READDIRPLUS_AUTO)
        .with(Self::ASYNC_DIO)
        .with(Self::PARALLEL_DIROPS)
        .with(Self::MAX_PAGES)
        .with(Self::CACHE_SYMLINKS)
        .with(Self::SETXATTR_EXT)
        .with(Self::INIT_EXT)
        .with(Self::DIRECT_IO_ALLOW_MMAP)
        .with(Self::HAS_RESEND);

    /// Both sets together.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// This set without that.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// Whether all of `other` is in it.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How a mount is served.
#[derive(Clone, Debug)]
pub struct Config {
    /// The features to request, as far as the kernel offers them.
    pub features: Features,
    /// Largest WRITE and READ in bytes; the kernel allows 1 MiB unless `fs.fuse.max_pages_limit`
    /// says more.
    pub max_write: u32,
    /// Read-ahead in bytes; in INIT the kernel grants 128 KiB at most.
    pub max_readahead: u32,
    /// Read-ahead in KiB, set on the mount's backing device afterwards, which has no such limit.
    /// Needs root.
    pub read_ahead_kb: Option<u32>,
    /// Asynchronous requests (read-ahead, direct I/O, writeback) in flight at once.
    pub max_background: u16,
    /// Of these, how many make the kernel call the device congested.
    pub congestion_threshold: u16,
    /// How long an operation may take before its caller gets EIO; waiting for a lock is not
    /// counted. It should be longer than the operation itself may wait: for a store and an engine
    /// that do not answer, five minutes each by default.
    pub deadline: Option<Duration>,
    /// Threads that wait for requests while there are none; at least 2.
    pub idle_readers: usize,
    /// Threads at most, those in blocked operations included.
    pub max_readers: usize,
    /// With `io_uring`: requests of one CPU that can be under way at once, fewer on machines with
    /// many CPUs. More wait in the kernel. The rings can take this number for each CPU times
    /// [`max_write`](Self::max_write) of memory, if all their requests are that large.
    pub ring_depth: usize,
    /// How long the end of a mount waits for operations that are still running.
    pub shutdown_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        let cpus = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            features: Features::DEFAULT,
            max_write: 1 << 20,
            max_readahead: 1 << 20,
            read_ahead_kb: None,
            max_background: 128,
            congestion_threshold: 96,
            deadline: Some(Duration::from_mins(15)),
            idle_readers: cpus.max(2),
            max_readers: 256,
            ring_depth: 256,
            shutdown_timeout: Duration::from_secs(10),
        }
    }
}

/// What kernel and mount agreed on.
#[derive(Clone, Copy, Debug)]
pub struct Negotiated {
    /// Minor version of the protocol, 7.x.
    pub minor: u32,
    /// What is on.
    pub features: Features,
    /// Largest WRITE in bytes.
    pub max_write: u32,
    /// Read-ahead in bytes.
    pub max_readahead: u32,
}

impl Negotiated {
    /// Negotiates. Returns the kernel's version if that is too old.
    pub(crate) fn agree(kernel: &InitIn, config: &Config) -> Result<Self, (u32, u32)> {
        if kernel.major != abi::MAJOR || kernel.minor < abi::OLDEST_MINOR {
            return Err((kernel.major, kernel.minor));
        }
        let mut offered = Features(u64::from(kernel.flags));
        if offered.has(Features::INIT_EXT) {
            offered = offered.with(Features(u64::from(kernel.flags2) << 32));
        }
        let features = Features(config.features.0 & offered.0);
        let largest = if features.has(Features::MAX_PAGES) { u32::from(u16::MAX) } else { 32 };
        Ok(Self {
            minor: kernel.minor.min(abi::MINOR),
            features,
            max_write: config.max_write.clamp(abi::PAGE, largest * abi::PAGE),
            max_readahead: config.max_readahead.min(kernel.max_readahead),
        })
    }

    pub(crate) fn reply(&self, config: &Config) -> InitOut {
        InitOut {
            major: abi::MAJOR,
            minor: self.minor,
            max_readahead: self.max_readahead,
            flags: self.features.0 as u32,
            flags2: (self.features.0 >> 32) as u32,
            max_background: config.max_background,
            congestion_threshold: config.congestion_threshold,
            max_write: self.max_write,
            time_gran: 1,
            max_pages: self.max_write.div_ceil(abi::PAGE).min(u32::from(u16::MAX)) as u16,
            ..InitOut::default()
        }
    }

    /// Bytes that the largest request takes.
    pub(crate) fn buffer_size(&self) -> usize {
        self.max_write as usize + abi::HEADER_ROOM
    }

    pub(crate) fn setxattr_ext(&self) -> bool {
        self.features.has(Features::SETXATTR_EXT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(minor: u32, features: Features) -> InitIn {
        InitIn {
            major: 7,
            minor,
            max_readahead: 131_072,
            flags: features.0 as u32,
            flags2: (features.0 >> 32) as u32,
            ..InitIn::default()
        }
    }

    #[test]
    fn nothing_is_asked_for_that_was_not_offered() {
        let offered = Features::ASYNC_READ.with(Features::DIRECT_IO_ALLOW_MMAP);
        let agreed = Negotiated::agree(&kernel(31, offered), &Config::default()).expect("new enough");
        assert_eq!(agreed.features, Features::ASYNC_READ, "flags2 means nothing without INIT_EXT");
        assert_eq!((agreed.minor, agreed.max_write, agreed.max_readahead), (31, 128 << 10, 128 << 10));
        let agreed = Negotiated::agree(&kernel(99, Features(u64::MAX)), &Config::default()).expect("newer");
        assert_eq!((agreed.minor, agreed.features), (abi::MINOR, Features::DEFAULT));
        let reply = agreed.reply(&Config::default());
        assert_eq!((reply.max_write, reply.max_pages), (1 << 20, 256));
    }

    #[test]
    fn old_kernels_are_refused() {
        let refused = Negotiated::agree(&kernel(22, Features(0)), &Config::default());
        assert_eq!(refused.map(|_| ()), Err((7, 22)));
    }
}
