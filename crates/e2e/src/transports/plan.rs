//! What is measured, and figures.

use std::path::PathBuf;

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    /// A program that mounts a file system in memory: the directory, and options of `-o`.
    pub memfs: PathBuf,
    /// Where it is mounted.
    pub within: PathBuf,
    /// How often each is measured.
    pub rounds: usize,
    /// Milliseconds for each measurement.
    pub millis: u64,
    /// Numbers of threads.
    pub threads: Vec<usize>,
    /// Only works whose names contain one of these; all if empty.
    pub works: Vec<String>,
}

/// Rate and processor time of one turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figure {
    /// Operations a second.
    pub(super) rate: f64,
    /// Microseconds of the processor for an operation, of programs and server together.
    pub(super) cost: f64,
}

/// What each thread does, in a directory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Stat,
    Open,
    Create,
    Unlink,
    ReadSmall,
    ReadLarge,
    WriteLarge,
}

impl Work {
    pub(super) const ALL: [Self; 7] = [
        Self::Stat,
        Self::Open,
        Self::Create,
        Self::Unlink,
        Self::ReadSmall,
        Self::ReadLarge,
        Self::WriteLarge,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Open => "open, close",
            Self::Create => "create, close",
            Self::Unlink => "unlink",
            Self::ReadSmall => "read 4 KiB",
            Self::ReadLarge => "read 1 MiB",
            Self::WriteLarge => "write 1 MiB",
        }
    }

    pub(super) fn is_large(self) -> bool {
        matches!(self, Self::ReadLarge | Self::WriteLarge)
    }
}
