//! `kill -9` under load: writers work in a mount and report what is durable. The mount dies at a
//! random point. A new one must have all that was reported, `fsck` must be clean, and everything
//! that the dead session held must be released.

mod death;
mod process;
mod step;
pub mod writer;

use crate::rig::{Engine, Volume, until};
use anyhow::{Context, bail, ensure};
pub use death::Death;
use process::{ROUND, Writer};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::{
    collections::{BTreeMap, HashSet},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    time::Duration,
};
use step::{Model, step};

/// How long what a dead session held may stay taken. Sessions are asked for a heartbeat of two
/// seconds.
const RELEASE: Duration = Duration::from_mins(3);

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The program that formats, mounts and checks.
    pub program: PathBuf,
    /// The metadata engine.
    pub engine: Engine,
    /// A folder to work in.
    pub within: PathBuf,
    /// How the mount dies.
    pub death: Death,
    /// Further flags of `mount`.
    pub mount: Vec<String>,
    /// How many times the mount dies.
    pub rounds: u64,
    /// Processes that write at once.
    pub writers: usize,
    /// Where the random numbers begin.
    pub seed: u64,
}

/// Runs the plan.
///
/// # Errors
/// The first thing that was lost, wrong or still held, with the seed and the round.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(plan.seed);
    let mut volume = Volume::new(&plan.program, plan.engine, &plan.within, &[])?;
    let mut models: Vec<Model> = vec![Model::default(); plan.writers];
    let mut base = None;
    for round in 0..plan.rounds {
        let last = round + 1 == plan.rounds;
        one_round(plan, &mut volume, &mut models, (round, &mut rng), &mut base, last).with_context(|| {
            format!("round {round} of seed {}; the mounts said:\n{}", plan.seed, volume.last_words())
        })?;
        println!("round {round}: all that was durable is there, fsck is clean");
    }
    Ok(())
}

fn one_round(
    plan: &Plan,
    volume: &mut Volume,
    models: &mut [Model],
    (round, rng): (u64, &mut StdRng),
    base: &mut Option<u64>,
    last: bool,
) -> anyhow::Result<()> {
    let mut options = vec!["--heartbeat", "2"];
    options.extend(plan.mount.iter().map(String::as_str));
    let point = volume.mount(&options)?;
    if base.is_none() {
        *base = Some(hidden(&point)?);
    }
    let folders: Vec<PathBuf> =
        (0..models.len()).map(|writer| point.join(format!("writer{writer}"))).collect();
    for folder in &folders {
        std::fs::create_dir_all(folder)?;
    }
    let mut writers = folders
        .iter()
        .map(|folder| Writer::start(folder, rng.random()))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let enough = rng.random_range(1..200);
    let mut ended = false;
    until("the writers' work", ROUND, || {
        ended = writers.iter_mut().any(Writer::has_ended);
        ended || writers.iter().map(|writer| writer.done.load(Ordering::SeqCst)).sum::<u64>() >= enough
    })?;
    if plan.death == Death::Kill || ended {
        volume.die();
    } else {
        death::unmount(volume, &point, &mut writers, (round, rng))?;
    }
    let mut said = String::new();
    let seeds =
        writers.into_iter().map(|writer| writer.end(&mut said)).collect::<anyhow::Result<Vec<_>>>()?;
    ensure!(!ended, "a writer failed while the mount was alive:\n{said}");

    let point = volume.mount(&options)?;
    for (number, (model, (seed, done))) in models.iter_mut().zip(seeds).enumerate() {
        verify(&point.join(format!("writer{number}")), model, seed, done)
            .with_context(|| format!("writer {number}"))?;
    }
    volume.fsck()?;
    if last {
        for number in 0..models.len() {
            released(&point.join(format!("writer{number}/lock")))?;
        }
        let base = base.unwrap_or_default();
        until("files without a name to go", RELEASE, || hidden(&point).is_ok_and(|now| now == base))?;
    }
    volume.unmount()?;
    ensure!(std::fs::read_dir(&point)?.next().is_none(), "something was written into the folder below");
    Ok(())
}

/// All of `done` steps must be there; the next one may be, wholly, partly or not.
fn verify(folder: &Path, model: &mut Model, seed: u64, done: u64) -> anyhow::Result<()> {
    for number in 0..done {
        model.apply(seed, number);
    }
    let mut seen = BTreeMap::new();
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(file) = name.strip_prefix('f').and_then(|number| number.parse::<usize>().ok()) {
            seen.insert(file, std::fs::read(entry.path()).with_context(|| format!("read {name}"))?);
        }
    }
    let (pending, what) = step(seed, done);
    let files: HashSet<usize> = seen.keys().chain(model.files.keys()).copied().chain([pending]).collect();
    for file in files {
        let (seen, expected) =
            (seen.get(&file).map(Vec::as_slice), model.files.get(&file).map(Vec::as_slice));
        let right = if file == pending { model.allows(seed, done, seen) } else { seen == expected };
        if !right {
            let of =
                |bytes: Option<&[u8]>| bytes.map(|bytes| (bytes.len(), crate::pattern::fingerprint(bytes)));
            let same = seen.zip(expected).map(|(a, b)| a.iter().zip(b).take_while(|(a, b)| a == b).count());
            bail!(
                "f{file} is {:?}, durable was {:?} (length, fingerprint), alike up to byte {same:?}; \
                 {done} steps were durable, in flight was {what:?} of f{pending}",
                of(seen),
                of(expected)
            );
        }
    }
    // What the crash left of the step in flight is what there is now.
    model.files = seen;
    Ok(())
}

/// The lock that the dead writer held can be taken.
fn released(path: &Path) -> anyhow::Result<()> {
    let file = rustix::fs::open(path, OFlags::RDWR, Mode::empty())?;
    Ok(until("the dead session's lock to come free", RELEASE, || {
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
    })?)
}

/// Inodes that the volume counts and that no name leads to.
fn hidden(point: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(point)?;
    let mut found = HashSet::new();
    let mut folders = vec![point.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if found.insert(entry.metadata()?.ino()) && entry.file_type()?.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    Ok((stat.f_files - stat.f_ffree).saturating_sub(found.len() as u64))
}
