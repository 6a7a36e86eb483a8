//! The volume-wide numbers.

/// A volume-wide number. Values are in the sense of the SQL engines everywhere above the engines:
/// `NextInode` and `NextChunk` are the next free number (Redis stores the last one given out; its
/// codec adds the one).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Counter {
    /// Next free inode.
    NextInode,
    /// Next free slice id.
    NextChunk,
    /// Last session id given out.
    NextSession,
    /// Last hour directory of the trash given out, as an offset to the trash root.
    NextTrash,
    /// Bytes in use, in 4 KiB units.
    UsedSpace,
    /// Inodes in use.
    TotalInodes,
    /// Last ACL id given out (Redis, TiKV; the SQL tables number themselves, and their codec
    /// answers for it).
    AclMaxId,
    /// Unix seconds when stale sessions were last cleaned.
    LastCleanupSessions,
    /// Unix seconds when deleted files were last cleaned.
    LastCleanupFiles,
    /// Unix seconds when the trash was last cleaned.
    LastCleanupTrash,
    /// Unix seconds when slices without references were last cleaned.
    NextCleanupSlices,
    /// Unix seconds when the change log was last trimmed.
    LastCleanupChangelog,
    /// Sluice's own: how many directories have changed their parent. Whoever moves one counts it,
    /// so that two moves never pass each other unseen.
    DirMoves,
}

impl Counter {
    /// Every counter.
    pub const ALL: [Self; 13] = [
        Self::NextInode,
        Self::NextChunk,
        Self::NextSession,
        Self::NextTrash,
        Self::UsedSpace,
        Self::TotalInodes,
        Self::AclMaxId,
        Self::LastCleanupSessions,
        Self::LastCleanupFiles,
        Self::LastCleanupTrash,
        Self::NextCleanupSlices,
        Self::LastCleanupChangelog,
        Self::DirMoves,
    ];

    /// The value of one that has no record yet.
    pub const fn start(self) -> i64 {
        match self {
            Self::NextInode | Self::NextChunk => 1,
            _ => 0,
        }
    }

    /// Name in the volume format (SQL and TiKV; Redis writes the first three in lower case).
    pub const fn name(self) -> &'static str {
        match self {
            Self::NextInode => "nextInode",
            Self::NextChunk => "nextChunk",
            Self::NextSession => "nextSession",
            Self::NextTrash => "nextTrash",
            Self::UsedSpace => "usedSpace",
            Self::TotalInodes => "totalInodes",
            Self::AclMaxId => "aclMaxId",
            Self::LastCleanupSessions => "lastCleanupSessions",
            Self::LastCleanupFiles => "lastCleanupFiles",
            Self::LastCleanupTrash => "lastCleanupTrash",
            Self::NextCleanupSlices => "nextCleanupSlices",
            Self::LastCleanupChangelog => "lastCleanupChangelog",
            Self::DirMoves => "sluiceDirMoves",
        }
    }
}
