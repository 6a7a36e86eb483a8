//! The operations on a directory, as values. A list of operations is a test case. Every part of
//! such a list is also a test case.

/// How to open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is one flag of open(2)")]
pub struct How {
    /// Also for writing.
    pub write: bool,
    /// Every write goes to the end.
    pub append: bool,
    /// Made if missing.
    pub create: bool,
    /// Must be missing.
    pub exclusive: bool,
    /// Emptied.
    pub truncate: bool,
}

/// The forms of fallocate(2) that Sluice knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reserve {
    /// Grow the file.
    Grow,
    /// Keep its size.
    Keep,
    /// Make a hole, keep the size.
    Punch,
    /// Zeros, growing the file.
    Zero,
    /// Zeros, keeping the size.
    ZeroKeep,
}

/// The flags of renameat2(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RenameHow {
    /// Replaces what is there.
    Replace,
    /// Fails if something is there.
    NoReplace,
    /// Swaps the two.
    Exchange,
}

/// Kinds of file that mknod(2) makes here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// A socket's name.
    Socket,
    /// A regular file.
    Regular,
}

/// One operation. Paths are relative to the directory under test; a slot is one of a few open
/// files.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are those of the system calls")]
pub enum Op {
    Open { slot: usize, path: String, how: How },
    Close { slot: usize },
    Write { slot: usize, offset: u64, length: usize, pattern: u64 },
    Read { slot: usize, offset: u64, length: usize },
    Truncate { slot: usize, length: u64 },
    TruncatePath { path: String, length: u64 },
    Reserve { slot: usize, form: Reserve, offset: u64, length: u64 },
    Copy { from: usize, to: usize, from_offset: u64, to_offset: u64, length: usize },
    Holes { slot: usize },
    Sync { slot: usize },
    Mkdir { path: String, mode: u32 },
    Rmdir { path: String },
    Mknod { path: String, kind: Special, mode: u32 },
    Unlink { path: String },
    Rename { from: String, to: String, how: RenameHow },
    Link { from: String, to: String },
    Symlink { target: String, path: String },
    Readlink { path: String },
    Stat { path: String, follow: bool },
    Chmod { path: String, mode: u32 },
    Chown { path: String, uid: u32, gid: u32 },
    Utimens { path: String, atime: (i64, i64), mtime: (i64, i64) },
    SetXattr { path: String, name: String, length: usize, pattern: u64, how: u8 },
    RemoveXattr { path: String, name: String },
    List { path: String },
}

impl Op {
    /// The names that it touches, to be looked at afterwards.
    pub fn paths(&self) -> Vec<&str> {
        match self {
            Self::Rename { from, to, .. } | Self::Link { from, to } => vec![from, to],
            Self::Open { path, .. }
            | Self::TruncatePath { path, .. }
            | Self::Mkdir { path, .. }
            | Self::Rmdir { path }
            | Self::Mknod { path, .. }
            | Self::Unlink { path }
            | Self::Symlink { path, .. }
            | Self::Readlink { path }
            | Self::Stat { path, .. }
            | Self::Chmod { path, .. }
            | Self::Chown { path, .. }
            | Self::Utimens { path, .. }
            | Self::SetXattr { path, .. }
            | Self::RemoveXattr { path, .. }
            | Self::List { path } => vec![path],
            _ => Vec::new(),
        }
    }
}
