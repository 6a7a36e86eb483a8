//! Outages under load: the server of the metadata dies, answers are lost, the object store fails. Applications see a
//! delay, never an error; afterwards all is there once, and `fsck` is clean.

mod away;
mod etcd;
mod partition;
mod redis;
mod store;
mod work;
mod writer;

use crate::rig::{Engine, Volume};
use anyhow::Context;
use std::path::PathBuf;
use work::Outcome;

/// What breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Case {
    /// A Redis that writes to disk before it answers is killed and started again, several times.
    Restarts,
    /// Answers of Redis do not arrive, connections break, packets vanish.
    Answers,
    /// Redis is stopped, or PostgreSQL refuses to write, for three times as long as a session lives.
    Away,
    /// One of three members of an etcd at a time is killed or frozen and comes back, several times.
    Members,
    /// One of two mounts is cut off from the engine for longer than its session lives.
    Partition,
    /// The object store answers errors for half a minute, and loses answers for a while.
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

/// Runs the plan.
///
/// # Errors
/// The first thing that an application was told or that was not as it must be, with the seed.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let ran = match plan.case {
        Case::Restarts => redis::restarts(plan),
        Case::Answers => redis::answers(plan),
        Case::Away => away::run(plan),
        Case::Members => etcd::members(plan),
        Case::Partition => partition::run(plan),
        Case::Store => store::errors(plan),
    };
    ran.with_context(|| format!("seed {}", plan.seed))
}

/// What the mounts said goes with an error.
fn told<T>(volume: &Volume, done: anyhow::Result<T>) -> anyhow::Result<T> {
    done.with_context(|| format!("the mounts said:\n{}", volume.last_words()))
}

/// Unmounts all, checks what is there through a fresh mount on `meta`, and the volume with it.
fn check(volume: &mut Volume, meta: String, outcome: &Outcome) -> anyhow::Result<()> {
    volume.unmount()?;
    volume.meta = meta;
    let point = volume.mount(&[])?;
    outcome.verify(&point)?;
    volume.unmount()?;
    volume.fsck()?;
    println!("{} steps, the longest took {:?}: all is there, once", outcome.done, outcome.longest);
    Ok(())
}
