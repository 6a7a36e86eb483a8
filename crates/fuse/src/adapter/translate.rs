//! Converts the kernel's types to those of the volume, and back.
//!
//! What must stay true: the kernel gets only errno values, file types and flags that it knows.

use std::{borrow::Cow, fs};

use sluice_types::{Caller, FileType, FsError};
use sluice_vfs::{Allocation, SetTime as Set};

use crate::{
    args::{SetTime, Timestamp},
    errno::Errno,
    reply::{Attr, Entry},
};

/// Preferred size of reads and writes of programs, in bytes.
const BLKSIZE: u32 = 4096;

fn time(time: sluice_types::Time) -> Timestamp {
    Timestamp { secs: time.sec, nanos: time.nsec }
}

pub(super) fn set_time(time: SetTime) -> Set {
    match time {
        SetTime::Now => Set::Now,
        SetTime::At(at) => Set::At(sluice_types::Time { sec: at.secs, nsec: at.nanos }),
    }
}

pub(super) fn attr(ino: u64, attr: &sluice_types::Attr) -> Attr {
    Attr {
        ino,
        size: attr.length,
        blocks: attr.length.div_ceil(512),
        atime: time(attr.atime),
        mtime: time(attr.mtime),
        ctime: time(attr.ctime),
        mode: attr.st_mode(),
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: attr.rdev,
        blksize: BLKSIZE,
    }
}

/// An entry of which the kernel only learns the name and the type.
pub(super) fn name_only(ino: u64, kind: FileType) -> Entry {
    Entry { attr: Attr { ino, mode: kind.mode_bits(), ..Attr::default() }, ..Entry::default() }
}

pub(super) fn errno(error: &FsError) -> Errno {
    if let FsError::Io(reason) = error {
        tracing::error!("{reason}");
    }
    Errno(error.errno())
}

/// Adds the supplementary groups of a caller. Returns false if there are none. For a process
/// outside of this PID namespace, only the kernel knows them, and its checks are trusted.
pub(super) fn add_groups(caller: &mut Caller) -> bool {
    if caller.superuser || !caller.groups.is_empty() || caller.admitted {
        return false;
    }
    if caller.pid == 0 {
        caller.admitted = true;
        return true;
    }
    let Ok(status) = fs::read_to_string(format!("/proc/{}/status", caller.pid)) else { return false };
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    caller.groups = line.split_whitespace().filter_map(|gid| gid.parse().ok()).collect();
    !caller.groups.is_empty()
}

/// The caller, with groups if `needed`: for operations that the groups decide without an error, so
/// that they would not be tried again with them.
pub(super) fn with_groups(caller: &Caller, needed: bool) -> Cow<'_, Caller> {
    let mut caller = Cow::Borrowed(caller);
    if needed {
        add_groups(caller.to_mut());
    }
    caller
}

/// The operation of a `fallocate(2)` call; `None` if the format cannot do it.
pub(super) fn allocation(mode: i32) -> Option<Allocation> {
    const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
    const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
    const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
    const ZERO_KEEP: i32 = ZERO | KEEP;
    Some(match mode {
        0 => Allocation::Extend,
        KEEP => Allocation::KeepSize,
        PUNCH => Allocation::PunchHole,
        ZERO => Allocation::ZeroRange { keep_size: false },
        ZERO_KEEP => Allocation::ZeroRange { keep_size: true },
        _ => return None,
    })
}
