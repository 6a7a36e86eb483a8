//! A mount that survives its mount process: the process is killed or upgraded while programs work.
//!
//! What must stay true: the test does not help the mount: programs continue with the files that
//! they have open.

mod load;
mod others;
mod timeout;

use crate::rig::{Engine, FIRST_CACHE, Volume, until};
use anyhow::{Context, bail, ensure};
use load::Load;
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    io::ErrorKind,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};
use timeout::TIMEOUT;

/// Deaths of one guardian's mount processes: at five in a minute it gives up.
const DEATHS: u64 = 4;

/// How a mount process goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Way {
    /// It is killed, and its guardian starts another.
    Killed,
    /// Another program takes its place.
    Upgraded,
}

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program that formats, mounts and checks.
    pub program: PathBuf,
    /// The metadata engine.
    pub engine: Engine,
    /// A folder to work in.
    pub within: PathBuf,
    /// How mount processes go.
    pub way: Way,
    /// Further flags of `mount`.
    pub mount: Vec<String>,
    /// How many mount processes go.
    pub rounds: u64,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// Runs the plan.
///
/// # Errors
/// The first thing that was lost or hangs, an error that should not have been, with the seed.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut volume = Volume::new(&plan.program, plan.engine, &plan.within, &[])?;
    let mut times = Vec::new();
    let mut done = 0;
    while done < plan.rounds {
        let rounds = DEATHS.min(plan.rounds - done);
        one_mount(plan, &mut volume, &mut rng, rounds, &mut times).with_context(|| {
            format!("rounds from {done} on of seed {}; the mounts said:\n{}", plan.seed, volume.last_words())
        })?;
        done += rounds;
        println!("{done} mount processes went, nothing that was stored is lost, fsck is clean");
    }
    times.sort_unstable();
    let (Some(median), Some(most)) = (times.get(times.len() / 2), times.last()) else { return Ok(()) };
    println!("until the mount answered: median {median:.2?}, at most {most:.2?}");
    Ok(())
}

fn one_mount(
    plan: &Plan,
    volume: &mut Volume,
    rng: &mut StdRng,
    rounds: u64,
    times: &mut Vec<Duration>,
) -> anyhow::Result<()> {
    let options: Vec<&str> =
        ["--heartbeat", "2"].into_iter().chain(plan.mount.iter().map(String::as_str)).collect();
    let point = volume.mount(&options)?;
    let load = Load::start(&point, rng.random(), plan.way == Way::Killed)?;
    let others = if plan.way == Way::Upgraded {
        Some(others::Others::start(&point, &volume.path("repo"))?)
    } else {
        None
    };
    for round in 0..rounds {
        load.progress(rng.random_range(1..150))?;
        let begin = Instant::now();
        match plan.way {
            Way::Killed => kill_process(process(volume)?, Signal::KILL)?,
            Way::Upgraded => upgrade(volume, &point, &options)?,
        }
        answers(&point, round)?;
        times.push(begin.elapsed());
    }
    load.progress(20)?;
    if let Some(others) = others {
        others.end()?;
    }
    let errors = load.end(rounds)?;
    if plan.way == Way::Killed {
        println!("{errors} files told that they had lost what was not stored");
    }
    volume.unmount()?;
    ensure!(std::fs::read_dir(&point)?.next().is_none(), "something was written into the folder below");
    volume.fsck()
}

/// The process that serves the newest mount.
fn process(volume: &Volume) -> anyhow::Result<Pid> {
    let guardian = volume.guardian()?;
    let mut found = None;
    until("the guardian to have a mount process", TIMEOUT, || {
        let children = std::fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
        found = children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
        found.is_some()
    })?;
    found.and_then(Pid::from_raw).context("no mount process")
}

fn upgrade(volume: &Volume, point: &Path, options: &[&str]) -> anyhow::Result<()> {
    let (point, cache) = (point.to_string_lossy(), volume.path(FIRST_CACHE));
    let cache = cache.to_string_lossy();
    let head = ["mount", "--cache-dir", &cache, "--enable-xattr"];
    volume.command(&[&head, options, &[&volume.meta, &point]].concat()).map(drop)
}

/// Waits until the mount answers something that nobody knows but its mount process.
fn answers(point: &Path, round: u64) -> anyhow::Result<()> {
    let name = point.join(format!("not-there-{round}"));
    match std::fs::metadata(name) {
        Err(why) if why.kind() == ErrorKind::NotFound => Ok(()),
        Err(why) => bail!("the mount answers {why}"),
        Ok(_) => bail!("there is a name that nobody made"),
    }
}
