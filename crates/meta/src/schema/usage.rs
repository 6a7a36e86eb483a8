//! Usage: the statistics of each directory, and the usage of quotas.

use sluice_types::Ino;

/// Usage of the *direct* children of a directory. Advisory: it may drift, and `fsck` says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DirStat {
    /// Sum of the lengths of regular files, bytes.
    pub length: i64,
    /// Sum of their lengths in 4 KiB units, bytes; 0 for everything but regular files.
    pub space: i64,
    /// Number of entries.
    pub inodes: i64,
}

impl DirStat {
    /// Whether adding it changes nothing.
    pub const fn is_zero(&self) -> bool {
        self.length == 0 && self.space == 0 && self.inodes == 0
    }

    /// Sum of both.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            length: self.length + other.length,
            space: self.space + other.space,
            inodes: self.inodes + other.inodes,
        }
    }
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuotaKey {
    /// A directory tree.
    Dir(Ino),
    /// Everything a user owns.
    User(u32),
    /// Everything a group owns.
    Group(u32),
}

impl QuotaKey {
    /// The record that the first charge makes: that of a user or group, whose usage is kept whether
    /// it is limited or not. Of a directory only usage under a limit is kept.
    pub const fn kept(self) -> Option<Quota> {
        match self {
            Self::Dir(_) => None,
            Self::User(_) | Self::Group(_) => Some(Quota::UNLIMITED),
        }
    }
}

/// Limits and usage. A limit of 0 (directories) or -1 (users, groups) means none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// Bytes allowed.
    pub max_space: i64,
    /// Inodes allowed.
    pub max_inodes: i64,
    /// Bytes in use.
    pub used_space: i64,
    /// Inodes in use.
    pub used_inodes: i64,
}

impl Quota {
    /// Nothing used, and no limit.
    pub const UNLIMITED: Self = Self { max_space: -1, max_inodes: -1, used_space: 0, used_inodes: 0 };

    /// Adds to what is used.
    pub const fn charge(&mut self, space: i64, inodes: i64) {
        self.used_space = self.used_space.saturating_add(space);
        self.used_inodes = self.used_inodes.saturating_add(inodes);
    }

    /// Whether it admits `space` more bytes and `inodes` more inodes. What takes nothing more is
    /// always admitted.
    pub const fn admits(&self, space: i64, inodes: i64) -> bool {
        let space_fits =
            self.max_space <= 0 || space <= 0 || self.used_space.saturating_add(space) <= self.max_space;
        let inodes_fit =
            self.max_inodes <= 0 || inodes <= 0 || self.used_inodes.saturating_add(inodes) <= self.max_inodes;
        space_fits && inodes_fit
    }
}
