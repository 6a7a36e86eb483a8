//! Collections too large for one answer, and their pages.

use sluice_types::Ino;

use super::EngineError;
use crate::schema::{Key, Row};

/// A collection too large for one answer, read page by page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scan {
    /// Entries of a directory, with or without the nodes they name (each [`Row::Entry`] then is
    /// followed by its [`Row::Node`], if there is one). An entry that is there from before the
    /// first to after the last page appears at least once.
    Entries {
        /// The directory.
        dir: Ino,
        /// Whether the nodes are wanted too.
        nodes: bool,
    },
    /// Everything about inodes, in any order: nodes, entries, parents, chunks, targets, extended
    /// attributes. Only where [`Engine::is_mixed`](super::Engine::is_mixed).
    Inodes,
    /// Every node.
    Nodes,
    /// Every entry of every directory.
    AllEntries,
    /// Every chunk.
    Chunks,
    /// Every target of a symbolic link.
    Symlinks,
    /// Every extended attribute.
    Xattrs,
    /// Every stored slice reference.
    SliceRefs,
    /// Deleted files.
    DelFiles,
    /// Replaced slices.
    DelSlices,
    /// Sessions.
    Sessions,
    /// Files without links that are open somewhere.
    Sustained,
    /// Clones in progress.
    Detached,
    /// ACL rules.
    Acls,
    /// Directory usage.
    DirStats,
    /// Quotas.
    Quotas,
    /// Sluice's own writer records.
    Writers,
}

impl Scan {
    /// All but those of one directory and [`Self::Inodes`], which repeats others.
    pub const ALL: [Self; 15] = [
        Self::Nodes,
        Self::AllEntries,
        Self::Chunks,
        Self::Symlinks,
        Self::Xattrs,
        Self::SliceRefs,
        Self::DelFiles,
        Self::DelSlices,
        Self::Sessions,
        Self::Sustained,
        Self::Detached,
        Self::Acls,
        Self::DirStats,
        Self::Quotas,
        Self::Writers,
    ];

    /// Whether the record of that key belongs to it.
    pub fn contains(self, key: &Key) -> bool {
        match self {
            Self::Entries { dir, .. } => matches!(key, Key::Entry(of, _) if *of == dir),
            Self::Inodes => matches!(
                key,
                Key::Node(_)
                    | Key::Entry(..)
                    | Key::Parents(..)
                    | Key::Chunk(..)
                    | Key::Symlink(_)
                    | Key::Xattr(..)
            ),
            Self::Nodes => matches!(key, Key::Node(_)),
            Self::AllEntries => matches!(key, Key::Entry(..)),
            Self::Chunks => matches!(key, Key::Chunk(..)),
            Self::Symlinks => matches!(key, Key::Symlink(_)),
            Self::Xattrs => matches!(key, Key::Xattr(..)),
            Self::SliceRefs => matches!(key, Key::SliceRef(..)),
            Self::DelFiles => matches!(key, Key::DelFile(..)),
            Self::DelSlices => matches!(key, Key::DelSlices(..)),
            Self::Sessions => matches!(key, Key::Session(_)),
            Self::Sustained => matches!(key, Key::Sustained(..)),
            Self::Detached => matches!(key, Key::Detached(_)),
            Self::Acls => matches!(key, Key::Acl(_)),
            Self::DirStats => matches!(key, Key::DirStat(_)),
            Self::Quotas => matches!(key, Key::Quota(_)),
            Self::Writers => matches!(key, Key::Writer(..)),
        }
    }
}

/// Where a scan goes on; opaque, only good for the same [`Scan`] on the same engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(pub Vec<u8>);

/// One page of a scan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The records. A page may be empty although others follow.
    pub rows: Vec<Row>,
    /// What is stored but cannot be read, each an [`EngineError::Corrupt`]. It hides no other
    /// record; only a listing ([`Scan::Entries`]) fails as a whole when an entry is damaged, since
    /// one that lacks a name looks complete.
    pub damaged: Vec<EngineError>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<Cursor>,
}

impl Page {
    /// The page, if all of it could be read.
    ///
    /// # Errors
    /// The first of what is damaged.
    pub fn sound(mut self) -> Result<Self, EngineError> {
        if self.damaged.is_empty() { Ok(self) } else { Err(self.damaged.swap_remove(0)) }
    }
}
