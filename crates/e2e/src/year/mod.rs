//! A volume in operation: each step of a run is one calendar day for the volume. A seed selects
//! what happens on each day. Programs work, trees are removed, clients are killed, limits change,
//! backups are taken, space is cleaned up, and the metadata moves to another engine. A directory on
//! a trusted file system is the oracle: the same is done there.
//!
//! At the end nothing is wrong, nothing is leaked, and no byte is lost.

mod clock;
mod day;
mod end;

use crate::{
    compare::{Capabilities, Links, Side, difference},
    rig::{Engine, Volume},
};
use anyhow::{Context, ensure};
use clock::Clock;
use rand::{SeedableRng, rngs::StdRng};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program under test.
    pub program: PathBuf,
    /// Another program that looks at the volume at the end.
    pub juicefs: Option<PathBuf>,
    /// Where the metadata is at first.
    pub engine: Engine,
    /// Where it may move to.
    pub engines: Vec<Engine>,
    /// A folder to work in, on a file system that is trusted.
    pub within: PathBuf,
    /// How many days.
    pub days: u64,
    /// Random operations of a day.
    pub operations: usize,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// A volume and what it must look like.
struct Run<'p> {
    plan: &'p Plan,
    rng: StdRng,
    volume: Volume,
    clock: Clock,
    /// The trusted directory.
    reference: TempDir,
    can: Capabilities,
    /// Folders of past days.
    folders: Vec<String>,
    /// Which of them have a limit.
    limited: Vec<String>,
    engine: Engine,
    /// How often the metadata has moved.
    moves: u64,
}

/// Runs the plan.
///
/// # Errors
/// The first thing that is not as it must be.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    std::fs::create_dir_all(&plan.within)?;
    let reference = tempfile::Builder::new().prefix("year-").tempdir_in(&plan.within)?;
    let can = Capabilities::probe(reference.path())?;
    let clock = Clock::new(&plan.program, reference.path())?;
    std::fs::create_dir(reference.path().join("tree"))?;
    let volume = Volume::new(clock.program(), plan.engine, &plan.within, &["--trash-days", "1"])?;
    let mut run = Run {
        plan,
        rng: StdRng::seed_from_u64(plan.seed),
        volume,
        clock,
        reference,
        can,
        folders: Vec::new(),
        limited: Vec::new(),
        engine: plan.engine,
        moves: 0,
    };
    for number in 0..plan.days {
        run.clock.set_day(number)?;
        run.day(number).with_context(|| {
            format!("day {number} of seed {} on {:?}:\n{}", plan.seed, run.engine, run.volume.last_words())
        })?;
    }
    run.end()
}

impl Run<'_> {
    /// The tree on the trusted file system.
    fn trusted(&self) -> PathBuf {
        self.reference.path().join("tree")
    }

    /// The tree in a mount is that of the trusted file system.
    fn compare(&self, mount: &Path) -> anyhow::Result<()> {
        let sides = [self.trusted(), mount.join("tree")].map(|root| Side::new(root, Links::None));
        let seen = difference(&sides[0], &sides[1]);
        ensure!(seen.is_none(), "the tree is not what it was: {}", seen.unwrap_or_default());
        Ok(())
    }
}
