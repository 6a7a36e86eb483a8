//! The closed set of records that a volume's metadata is made of.
//!
//! [`Key`] names a record, [`Row`] is the record with its value. Both are closed enums: after a
//! kind of record is added, the code does not compile until every engine maps it. The engine
//! decides the layout of a record. The byte forms that several engines share (attributes, entries,
//! slices, locks, ACL rules) are here beside the types, as the JuiceFS volume format has them.

mod acl;
mod chunk;
mod counter;
mod entry;
mod extra;
mod format;
mod group_keys;
mod json;
mod last_commits;
mod lock;
mod member;
mod node;
mod notice;
mod plain;
mod session;
mod usage;
mod writer;

use bytes::Bytes;
use sluice_types::{Attr, Ino, Name, Slice};

pub use acl::{AclEntry, AclRule, UNSET};
pub use chunk::{decode_replaced, decode_slices, encode_replaced, encode_slices};
pub use counter::Counter;
pub use entry::Entry;
pub use extra::{Extra, Opaque};
pub use format::{FormatError, Tier, TrashDays, VolumeFormat};
pub use group_keys::{GroupKey, GroupKeys, Secret};
pub use last_commits::LastCommits;
pub use lock::{FlockKind, LockOwner, PlockRange, decode_plocks, encode_plocks};
pub use member::Member;
pub use node::{decode_attr, encode_attr};
pub use notice::{Change, Notice, decode_changes, encode_changes};
pub(crate) use session::EXPIRED;
pub use session::{Session, SessionInfo};
pub use usage::{DirStat, Quota, QuotaKey};
pub use writer::{RING, WriterId};

/// Names one record.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// The volume's settings; one per volume.
    Setting,
    /// A volume-wide number.
    Counter(Counter),
    /// Attributes of an inode.
    Node(Ino),
    /// The entry of that name in that directory.
    Entry(Ino, Name),
    /// How many entries of a several-times linked inode (first) are in a directory (second).
    Parents(Ino, Ino),
    /// Target of a symbolic link.
    Symlink(Ino),
    /// One extended attribute.
    Xattr(Ino, Name),
    /// The slice records of one chunk of a file.
    Chunk(Ino, u32),
    /// How many records refer to a slice, by id and size.
    SliceRef(u64, u32),
    /// A deleted file whose chunks are still to be removed, by inode and length.
    DelFile(Ino, u64),
    /// Slices replaced by a compaction that stay as long as the trash keeps files: id of the new
    /// slice and Unix seconds of the compaction.
    DelSlices(u64, i64),
    /// An ACL rule.
    Acl(u32),
    /// Usage of the direct children of a directory.
    DirStat(Ino),
    /// Limits and usage of a directory tree, user or group.
    Quota(QuotaKey),
    /// A mounted client.
    Session(u64),
    /// A file without links that a session (first) still has open.
    Sustained(u64, Ino),
    /// A BSD lock on a file.
    Flock(Ino, LockOwner),
    /// The POSIX locks of one owner on a file.
    Plock(Ino, LockOwner),
    /// Root of a tree that is being cloned and has no entry yet.
    Detached(Ino),
    /// Sluice's own: the last commit of one lane of one process.
    Writer(WriterId, u16),
    /// Sluice's own: what one of the last [`RING`] commits of a lane of a process changed, by its
    /// number modulo that. Written where the engine has no messages.
    Changes(WriterId, u16, u16),
    /// Sluice's own: one of a kind, by its number.
    Extra(Extra, u64),
}

/// A record: its key and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is described at the key of the same name")]
pub enum Row {
    /// JSON, as stored; see [`VolumeFormat::parse`].
    Setting(Bytes),
    Counter(Counter, i64),
    Node(Ino, Attr),
    Entry(Ino, Name, Entry),
    Parents(Ino, Ino, i64),
    Symlink(Ino, Bytes),
    Xattr(Ino, Name, Bytes),
    /// Oldest record first.
    Chunk(Ino, u32, Vec<Slice>),
    /// References, 1 for a slice to which one record refers. A slice without a stored row has one.
    SliceRef(u64, u32, i64),
    /// Unix seconds of the deletion.
    DelFile(Ino, u64, i64),
    /// Ids and sizes of the replaced slices.
    DelSlices(u64, i64, Vec<(u64, u32)>),
    Acl(u32, AclRule),
    DirStat(Ino, DirStat),
    Quota(QuotaKey, Quota),
    Session(u64, Session),
    Sustained(u64, Ino),
    Flock(Ino, LockOwner, FlockKind),
    /// Sorted, not overlapping.
    Plock(Ino, LockOwner, Vec<PlockRange>),
    /// Unix seconds when the clone began.
    Detached(Ino, i64),
    /// Number of the last commit, 0 before the first.
    Writer(WriterId, u16, u64),
    /// Number of the commit, and what it changed.
    Changes(WriterId, u16, u16, u64, Vec<Change>),
    Extra(Extra, u64, Opaque),
}

impl Row {
    /// The settings as this version writes them.
    pub fn setting(format: &VolumeFormat) -> Self {
        Self::Setting(format.to_json().into())
    }

    /// The key of this record.
    pub fn key(&self) -> Key {
        match self {
            Self::Setting(_) => Key::Setting,
            Self::Counter(counter, _) => Key::Counter(*counter),
            Self::Node(ino, _) => Key::Node(*ino),
            Self::Entry(dir, name, _) => Key::Entry(*dir, name.clone()),
            Self::Parents(ino, parent, _) => Key::Parents(*ino, *parent),
            Self::Symlink(ino, _) => Key::Symlink(*ino),
            Self::Xattr(ino, name, _) => Key::Xattr(*ino, name.clone()),
            Self::Chunk(ino, index, _) => Key::Chunk(*ino, *index),
            Self::SliceRef(id, size, _) => Key::SliceRef(*id, *size),
            Self::DelFile(ino, length, _) => Key::DelFile(*ino, *length),
            Self::DelSlices(id, time, _) => Key::DelSlices(*id, *time),
            Self::Acl(id, _) => Key::Acl(*id),
            Self::DirStat(ino, _) => Key::DirStat(*ino),
            Self::Quota(key, _) => Key::Quota(*key),
            Self::Session(sid, _) => Key::Session(*sid),
            Self::Sustained(sid, ino) => Key::Sustained(*sid, *ino),
            Self::Flock(ino, owner, _) => Key::Flock(*ino, *owner),
            Self::Plock(ino, owner, _) => Key::Plock(*ino, *owner),
            Self::Detached(ino, _) => Key::Detached(*ino),
            Self::Writer(id, lane, _) => Key::Writer(*id, *lane),
            Self::Changes(id, lane, slot, ..) => Key::Changes(*id, *lane, *slot),
            Self::Extra(kind, number, _) => Key::Extra(*kind, *number),
        }
    }
}
