//! The JSON form: settings, counters and collections, then the tree of names.
//!
//! A node is an object of its attributes and content; a directory has its entries by name, in
//! `entries`, which comes last. A file with several names is listed under each name. The dump does
//! not contain what can be computed from the tree (parents, usage, reference counts of slices).

mod escape;
mod members;
mod read;
mod write;

use bytes::Bytes;
use sluice_meta::{
    engine::LogLine,
    schema::{AclRule, Counter, Quota, QuotaKey},
};
use sluice_types::{Attr, FileType, Ino, Name, Slice};

pub use read::{Event, Reader};
pub use write::Writer;

/// What stands before the trees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The settings, JSON.
    pub setting: Bytes,
    /// The counters that dumps have.
    pub counters: Vec<(Counter, i64)>,
    /// Files without names that a session had open.
    pub sustained: Vec<(u64, Ino)>,
    /// Deleted files: node, length and Unix seconds of the deletion. Their chunks are not there.
    pub del_files: Vec<(Ino, u64, i64)>,
    /// Limits. What is used follows from the tree.
    pub quotas: Vec<(QuotaKey, Quota)>,
    /// The number of the last line of the change log, 0 of none. Nothing reads it back.
    pub last_logged: u64,
    /// Lines of the change log. Nothing reads them back.
    pub lines: Vec<LogLine>,
}

/// A node with what belongs to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its number.
    pub ino: Ino,
    /// Its attributes; parent and ids of ACLs mean nothing.
    pub attr: Attr,
    /// Target of a symbolic link.
    pub symlink: Bytes,
    /// Extended attributes.
    pub xattrs: Vec<(Name, Bytes)>,
    /// Access ACL.
    pub access_acl: Option<AclRule>,
    /// Default ACL.
    pub default_acl: Option<AclRule>,
    /// Chunks of a file: index and slices, oldest first.
    pub chunks: Vec<(u32, Vec<Slice>)>,
}

impl Node {
    /// A node without content.
    pub const fn new(ino: Ino, attr: Attr) -> Self {
        Self {
            ino,
            attr,
            symlink: Bytes::new(),
            xattrs: Vec::new(),
            access_acl: None,
            default_acl: None,
            chunks: Vec::new(),
        }
    }
}

/// The trees of a dump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Below the root.
    Files,
    /// The trash.
    Trash,
}

impl Tree {
    const fn name(self) -> &'static str {
        match self {
            Self::Files => "FSTree",
            Self::Trash => "Trash",
        }
    }
}

/// The counters that dumps have, and their names there.
const COUNTERS: [(Counter, &str); 6] = [
    (Counter::UsedSpace, "usedSpace"),
    (Counter::TotalInodes, "usedInodes"),
    (Counter::NextInode, "nextInodes"),
    (Counter::NextChunk, "nextChunk"),
    (Counter::NextSession, "nextSession"),
    (Counter::NextTrash, "nextTrash"),
];

/// The counters that dumps have.
pub(crate) fn counters() -> [Counter; 6] {
    COUNTERS.map(|(counter, _)| counter)
}

/// The types of nodes, and their names there.
const KINDS: [(FileType, &str); 7] = [
    (FileType::File, "regular"),
    (FileType::Dir, "directory"),
    (FileType::Symlink, "symlink"),
    (FileType::Fifo, "fifo"),
    (FileType::Block, "blockdev"),
    (FileType::Char, "chardev"),
    (FileType::Socket, "socket"),
];
