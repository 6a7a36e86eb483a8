//! The structures of the header.
//!
//! What must stay true: their layout never changes; something new gets a structure of its own.

use sluice_fs::{Attr, FileType, Item, Quota, Stat, Summary, VolumeSize};

/// Attributes of a node.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceStat {
    /// Inode.
    pub ino: u64,
    /// Length in bytes.
    pub size: u64,
    /// Bytes it counts for, in units of 512.
    pub blocks: u64,
    /// Time of the last access: seconds since 1970.
    pub atime: i64,
    /// Time of the last change of the content.
    pub mtime: i64,
    /// Time of the last change of the attributes.
    pub ctime: i64,
    /// Nanoseconds on top of `atime`.
    pub atime_nsec: u32,
    /// Nanoseconds on top of `mtime`.
    pub mtime_nsec: u32,
    /// Nanoseconds on top of `ctime`.
    pub ctime_nsec: u32,
    /// Type and permission bits, as in `st_mode`: `S_ISDIR()` and its kin take it.
    pub mode: u32,
    /// Number of names; of a directory, 2 and its directories.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device.
    pub rdev: u32,
}

/// Sizes of a volume.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceStatvfs {
    /// Bytes in all.
    pub total: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub free_inodes: u64,
}

/// One name of a directory.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceEntry {
    /// Attributes. If `has_stat` is 0, only `ino` and the type in `mode` are known: the user may
    /// not search the directory, or the node was removed meanwhile.
    pub stat: SluiceStat,
    /// Whether all of `stat` is known.
    pub has_stat: u32,
    /// Bytes of the name.
    pub name_length: u32,
    /// The name, which ends in NUL.
    pub name: [u8; 256],
}

/// What a tree holds.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceSummary {
    /// Sum of the lengths of files, bytes.
    pub length: u64,
    /// Bytes they count for, in units of 4 KiB for each node.
    pub size: u64,
    /// Everything but directories.
    pub files: u64,
    /// Directories, the root of the tree included.
    pub dirs: u64,
    /// Directories that the user may not list. They are left out of the sums.
    pub denied: u64,
}

/// Limits of a directory, a user or a group, and what is used.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceQuota {
    /// Bytes allowed, -1 for no limit.
    pub max_space: i64,
    /// Inodes allowed, -1 for no limit.
    pub max_inodes: i64,
    /// Bytes in use, in units of 4 KiB for each node.
    pub used_space: i64,
    /// Inodes in use.
    pub used_inodes: i64,
}

/// One entry of an ACL.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceAclEntry {
    /// For whom: `SLUICE_ACL_USER_OBJ` and so on.
    pub tag: u32,
    /// Id of a named user or group, else 0.
    pub id: u32,
    /// 4 to read, 2 to write, 1 to execute or search.
    pub perm: u32,
}

/// A time to set.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct SluiceTime {
    /// Seconds since 1970.
    pub sec: i64,
    /// Nanoseconds on top, or `SLUICE_TIME_NOW`, or `SLUICE_TIME_OMIT`.
    pub nsec: u32,
}

impl From<Stat> for SluiceStat {
    fn from(stat: Stat) -> Self {
        Self::new(stat.ino.0, &stat.attr)
    }
}

impl SluiceStat {
    fn new(ino: u64, attr: &Attr) -> Self {
        let whole = attr.space().max(0) as u64;
        Self {
            ino,
            size: attr.length,
            blocks: if attr.length == 0 { 0 } else { whole / 512 },
            atime: attr.atime.sec,
            mtime: attr.mtime.sec,
            ctime: attr.ctime.sec,
            atime_nsec: attr.atime.nsec,
            mtime_nsec: attr.mtime.nsec,
            ctime_nsec: attr.ctime.nsec,
            mode: attr.st_mode(),
            nlink: attr.nlink,
            uid: attr.uid,
            gid: attr.gid,
            rdev: attr.rdev,
        }
    }

    fn unknown(ino: u64, kind: FileType) -> Self {
        Self {
            ino,
            size: 0,
            blocks: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            atime_nsec: 0,
            mtime_nsec: 0,
            ctime_nsec: 0,
            mode: kind.mode_bits(),
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
        }
    }
}

impl From<VolumeSize> for SluiceStatvfs {
    fn from(size: VolumeSize) -> Self {
        let VolumeSize { total, used, inodes, free_inodes } = size;
        Self { total, used, inodes, free_inodes }
    }
}

impl From<&Item> for SluiceEntry {
    fn from(item: &Item) -> Self {
        let stat = match &item.attr {
            Some(attr) => SluiceStat::new(item.ino.0, attr),
            None => SluiceStat::unknown(item.ino.0, item.kind),
        };
        let mut name = [0; 256];
        // A name has at most 255 bytes.
        let length = item.name.len().min(255);
        name[..length].copy_from_slice(&item.name[..length]);
        Self { stat, has_stat: item.attr.is_some().into(), name_length: length as u32, name }
    }
}

impl From<Quota> for SluiceQuota {
    fn from(quota: Quota) -> Self {
        let Quota { max_space, max_inodes, used_space, used_inodes } = quota;
        let limit = |limit: i64| if limit > 0 { limit } else { -1 };
        Self { max_space: limit(max_space), max_inodes: limit(max_inodes), used_space, used_inodes }
    }
}

impl SluiceSummary {
    pub(crate) fn new(summary: &Summary, denied: u64) -> Self {
        let Summary { length, size, files, dirs } = *summary;
        Self { length, size, files, dirs, denied }
    }
}
