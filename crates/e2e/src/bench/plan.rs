//! What is measured, and how much of it.

use crate::rig::Engine;
use std::{path::PathBuf, time::Duration};

/// What to measure, and how.
#[derive(Debug)]
pub struct Plan {
    /// The program.
    pub sluice: PathBuf,
    /// The one beside it.
    pub juicefs: Option<PathBuf>,
    /// A program that mounts a file system in memory on its first argument: what FUSE alone can do.
    pub floor: Option<PathBuf>,
    /// What prints the figures of `JuiceFS`' operations on metadata as `go test -bench` does, all
    /// on one engine: a file, or a command that is told a volume's URL as `META_URL` and the time
    /// for each operation as `BENCH_TIME`.
    pub juicefs_meta: Option<String>,
    /// The `mdtest` of IOR, which `mpirun` starts, for the shapes of the published benchmark.
    pub mdtest: Option<PathBuf>,
    /// Where volumes are made.
    pub within: PathBuf,
    /// Engines to measure on; those of each row's own choice if it is none.
    pub engines: Option<Vec<Engine>>,
    /// More options of Sluice's mounts.
    pub mount_options: Vec<String>,
    /// Rows whose name contains one of these; all if empty.
    pub words: Vec<String>,
    /// Turns of each program in each row.
    pub rounds: usize,
    /// Of the order in which places are visited.
    pub seed: u64,
    /// How much work a turn is.
    pub sizes: Sizes,
}

/// How much work a turn is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Files of `mdtest` with 100 threads, a multiple of 100.
    pub many: usize,
    /// Files of eight clients together, a multiple of 96.
    pub crowd: usize,
    /// Files of `mdtest` with one thread.
    pub alone: usize,
    /// Files of the directory that is cloned and removed, a multiple of 100.
    pub flat: usize,
    /// Files of the volume that is backed up, a multiple of 100.
    pub backed: usize,
    /// Files created, looked at and unlinked through the mount.
    pub small: usize,
    /// Files of the tree that is unpacked, copied, cloned and removed.
    pub tree: usize,
    /// Size of the large file, MiB.
    pub large: usize,
    /// Random reads and random writes of 4 KiB, each.
    pub random: usize,
    /// Time for each operation on metadata.
    pub operation: Duration,
    /// Files created, renamed and unlinked through the mount of a volume that is far away.
    pub far: usize,
    /// Files touched and removed through the mount, whose trips are counted.
    pub counted: usize,
    /// Items of each rank in each directory: files of 100 KiB, and ten times the empty ones.
    pub items: usize,
}

impl Sizes {
    /// What a claim is made from.
    pub const FULL: Self = Self {
        many: 10_000,
        crowd: 48_000,
        alone: 5_000,
        flat: 100_000,
        backed: 1_000_000,
        small: 3_000,
        tree: 4_800,
        large: 1024,
        random: 10_000,
        operation: Duration::from_millis(500),
        far: 200,
        counted: 1_000,
        items: 1_000,
    };
    /// To see that all rows run.
    pub const QUICK: Self = Self {
        many: 1_000,
        crowd: 960,
        alone: 200,
        flat: 1_000,
        backed: 2_000,
        small: 200,
        tree: 64,
        large: 32,
        random: 300,
        operation: Duration::from_millis(5),
        far: 10,
        counted: 50,
        items: 20,
    };

    /// One of the two, with so many files in the flat directory.
    pub fn of(quick: bool, files: Option<usize>) -> Self {
        let sizes = if quick { Self::QUICK } else { Self::FULL };
        Self { flat: files.unwrap_or(sizes.flat).next_multiple_of(100), ..sizes }
    }
}
