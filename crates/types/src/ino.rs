//! Inode numbers, and the few reserved ones.

use std::fmt;

/// An inode number. Never reused within a volume.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ino(pub u64);

impl Ino {
    /// "No inode": the parent of a file with several hard links.
    pub const NONE: Self = Self(0);
    /// The volume's root directory.
    pub const ROOT: Self = Self(1);
    /// Directory under which the hour directories of the trash live. It has no entry: `.trash` is
    /// synthetic.
    pub const TRASH: Self = Self(0x7FFF_FFFF_1000_0000);
    /// First inode of the internal files (`.accesslog` …) that exist only inside a client.
    pub const INTERNAL: Self = Self(0x7FFF_FFFF_0000_0000);

    /// Whether this is the trash root or one of its hour directories.
    pub const fn is_trash(self) -> bool {
        self.0 >= Self::TRASH.0
    }

    /// Whether a node with this *parent* sits in the trash, that is, in an hour directory.
    pub const fn is_trash_hour(self) -> bool {
        self.0 > Self::TRASH.0
    }

    /// Whether this is an internal file, never stored in an engine.
    pub const fn is_internal(self) -> bool {
        self.0 >= Self::INTERNAL.0 && self.0 < Self::TRASH.0
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{}", self.0)
    }
}
