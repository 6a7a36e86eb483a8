//! The faults that a check can find.
//!
//! What must stay true: each says what is wrong with which file or record, in words that users
//! know.

use std::fmt;

use sluice_types::{FileType, Ino, Name};

use crate::{
    engine::EngineError,
    schema::{Counter, DirStat},
};

/// A number as it is stored and as it was counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Counted {
    /// As stored.
    pub stored: i64,
    /// As counted.
    pub counted: i64,
}

/// What a finding means to who uses the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something is lost, or will be.
    Error,
    /// Storage that nobody uses is not given back.
    Leak,
    /// A number that is only informative: clients add to it some time after they did something, and
    /// a crash lets it drift.
    Advisory,
}

/// Something that does not agree.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Finding {
    /// A record cannot be read.
    Unreadable {
        /// Which, and why.
        reason: String,
    },
    /// The volume has no root directory, so nobody can mount it.
    NoRoot,
    /// A name that no program can use, such as `a/b`. [`Name::new`] refuses it.
    UnusableName {
        /// Directory of the entry.
        dir: Ino,
        /// Its name.
        name: Name,
        /// What it stands for.
        ino: Ino,
    },
    /// A name stands for a node that does not exist.
    EntryWithoutNode {
        /// Directory of the entry.
        dir: Ino,
        /// Its name.
        name: Name,
        /// The missing node.
        ino: Ino,
        /// Its kind, as the entry has it.
        kind: FileType,
    },
    /// A name is in a directory that does not exist.
    EntryWithoutDir {
        /// The missing directory.
        dir: Ino,
        /// The name.
        name: Name,
        /// What it stands for.
        ino: Ino,
    },
    /// An entry says another kind than its node.
    Kind {
        /// Directory of the entry.
        dir: Ino,
        /// Its name.
        name: Name,
        /// The node.
        ino: Ino,
        /// Kind of the node.
        kind: FileType,
    },
    /// No name stands for a node that nobody has open.
    NodeWithoutEntry {
        /// The node.
        ino: Ino,
        /// Its kind.
        kind: FileType,
    },
    /// A directory has several names.
    SeveralNames {
        /// The directory.
        ino: Ino,
        /// How many.
        names: u32,
    },
    /// No way leads from the root to a directory, although it has a name: it is below itself.
    Unreachable {
        /// The directory.
        ino: Ino,
    },
    /// The number of links is wrong.
    Links {
        /// The node.
        ino: Ino,
        /// Links.
        links: Counted,
    },
    /// A node names another directory than the one it is in.
    Parent {
        /// The node.
        ino: Ino,
        /// As stored.
        stored: Ino,
        /// Where its entry is.
        found: Ino,
    },
    /// The record of how many names a file has in a directory is wrong.
    Parents {
        /// The file.
        ino: Ino,
        /// The directory.
        dir: Ino,
        /// Names.
        names: Counted,
    },
    /// A symbolic link has no target.
    SymlinkWithoutTarget {
        /// The link.
        ino: Ino,
    },
    /// A chunk belongs to no file, not even a deleted one.
    ChunkWithoutFile {
        /// The file that does not exist.
        ino: Ino,
        /// Number of the chunk.
        index: u32,
    },
    /// The number of references to a slice is wrong.
    References {
        /// Slice id.
        id: u64,
        /// Slice size.
        size: u32,
        /// References; stored as -1 if there is no record where there has to be one.
        references: Counted,
    },
    /// A number would be given out a second time.
    NextNumber {
        /// The counter.
        counter: Counter,
        /// Next number as stored, and the least it may be.
        next: Counted,
    },
    /// A total of the volume has drifted.
    Total {
        /// [`Counter::UsedSpace`] or [`Counter::TotalInodes`].
        counter: Counter,
        /// The total.
        total: Counted,
    },
    /// The usage of a directory has drifted.
    Usage {
        /// The directory.
        dir: Ino,
        /// As stored; none if there is no record.
        stored: Option<DirStat>,
        /// As counted.
        counted: DirStat,
    },
}

impl Finding {
    /// What an engine says of a record that it cannot read.
    pub(super) fn unreadable(damage: EngineError) -> Self {
        let reason = match damage {
            EngineError::Corrupt { engine, record, reason } => {
                format!("record {record} in {engine} cannot be read: {reason}")
            }
            other => other.to_string(),
        };
        Self::Unreadable { reason }
    }

    /// What it means to who uses the volume.
    pub const fn severity(&self) -> Severity {
        match self {
            Self::Total { .. } | Self::Usage { .. } => Severity::Advisory,
            Self::ChunkWithoutFile { .. } => Severity::Leak,
            // One that is used more often than its record says is removed under those who use it;
            // where nobody uses it, what did may be lost.
            Self::References { references, .. }
                if references.stored > references.counted && references.counted > 0 =>
            {
                Severity::Leak
            }
            _ => Severity::Error,
        }
    }

    /// The inode it is about, if it is about one.
    pub const fn ino(&self) -> Option<Ino> {
        Some(match self {
            Self::EntryWithoutNode { dir, .. }
            | Self::UnusableName { dir, .. }
            | Self::Kind { dir, .. }
            | Self::Usage { dir, .. } => *dir,
            Self::NodeWithoutEntry { ino, .. }
            | Self::SeveralNames { ino, .. }
            | Self::Links { ino, .. }
            | Self::Parent { ino, .. }
            | Self::Parents { ino, .. }
            | Self::SymlinkWithoutTarget { ino } => *ino,
            _ => return None,
        })
    }
}

fn shown(name: &Name) -> impl fmt::Display + '_ {
    String::from_utf8_lossy(name.as_ref())
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { reason } => {
                write!(f, "{reason}; put it back from a backup, or delete it, and check again")
            }
            Self::NoRoot => write!(f, "the volume has no root directory, so nobody can mount it"),
            Self::UnusableName { dir, name, ino } => {
                let name = name.escape_ascii();
                write!(
                    f,
                    "entry \"{name}\" (inode {ino}) in directory {dir} has a name that no program can use"
                )
            }
            Self::EntryWithoutNode { dir, name, ino, .. } => {
                write!(
                    f,
                    "entry \"{}\" in directory {dir} stands for inode {ino}, which does not exist",
                    shown(name)
                )
            }
            Self::EntryWithoutDir { dir, name, ino } => {
                write!(
                    f,
                    "entry \"{}\" (inode {ino}) is in directory {dir}, which does not exist",
                    shown(name)
                )
            }
            Self::Kind { dir, name, ino, kind } => {
                write!(
                    f,
                    "entry \"{}\" in directory {dir} says another kind than inode {ino}: {kind:?}",
                    shown(name)
                )
            }
            Self::NodeWithoutEntry { ino, kind } => {
                write!(f, "inode {ino} ({kind:?}) has no name, and nobody has it open")
            }
            Self::SeveralNames { ino, names } => write!(f, "directory {ino} has {names} names"),
            Self::Unreachable { ino } => write!(f, "directory {ino} is below itself: no way leads to it"),
            Self::Links { ino, links } => {
                write!(f, "inode {ino} says it has {} links, it has {}", links.stored, links.counted)
            }
            Self::Parent { ino, stored, found } => {
                write!(f, "inode {ino} says it is in directory {stored}, it is in {found}")
            }
            Self::Parents { ino, dir, names } => {
                let Counted { stored, counted } = names;
                write!(f, "inode {ino} says it has {stored} names in directory {dir}, it has {counted}")
            }
            Self::SymlinkWithoutTarget { ino } => write!(f, "symbolic link {ino} has no target"),
            Self::ChunkWithoutFile { ino, index } => {
                write!(f, "chunk {index} belongs to inode {ino}, which does not exist")
            }
            Self::References { id, size, references } => {
                let Counted { stored, counted } = references;
                if *stored < 0 && *counted > 0 {
                    let used = format!("it is used {counted} times");
                    return write!(f, "slice {id} of {size} bytes has no record of its uses, {used}");
                }
                write!(
                    f,
                    "slice {id} of {size} bytes says it is used {stored} times, it is used {counted} times"
                )
            }
            Self::NextNumber { counter, next } => {
                let Counted { stored, counted } = next;
                write!(f, "{} is {stored}, but numbers up to {} are in use", counter.name(), counted - 1)
            }
            Self::Total { counter, total } => {
                write!(f, "{} is {}, counted are {}", counter.name(), total.stored, total.counted)
            }
            Self::Usage { dir, stored, counted } => {
                let (length, space, inodes) = (counted.length, counted.space, counted.inodes);
                match stored {
                    Some(stored) => write!(
                        f,
                        "directory {dir} says it holds {} entries with {} bytes in {} bytes of space, it holds \
                         {inodes} with {length} in {space}",
                        stored.inodes, stored.length, stored.space
                    ),
                    None => write!(f, "directory {dir} has no record of what it holds"),
                }
            }
        }
    }
}
