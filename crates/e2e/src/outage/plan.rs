//! What breaks during the test, and where.

use crate::rig::Engine;
use std::path::PathBuf;

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// A Redis that writes to disk before it answers is killed and started again, several times.
    Restarts,
    /// Answers of Redis do not arrive, connections break, packets vanish.
    Answers,
    /// Redis is stopped, or PostgreSQL refuses to write, for three times as long as a session
    /// lives.
    Away,
    /// One of three members of an etcd at a time is killed or frozen and comes back, several times.
    Members,
    /// One of two mounts is cut off from the engine for longer than its session lives.
    Partition,
    /// The object store answers errors for half a minute, while hundreds of readers wait in each of
    /// four mounts, and loses answers for a while.
    Store,
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What breaks.
    pub case: Case,
    /// On which engine; only a partition and `away` have the choice.
    pub engine: Engine,
    /// The program that formats, mounts and checks.
    pub program: PathBuf,
    /// A folder to work in.
    pub within: PathBuf,
    /// Threads that write at once.
    pub writers: usize,
    /// How many times something breaks.
    pub rounds: u64,
    /// Where the random numbers begin.
    pub seed: u64,
}
