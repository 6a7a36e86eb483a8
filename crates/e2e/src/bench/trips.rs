//! Rows about round trips: one thread uses a mount that reaches its database server only through a
//! proxy. They measure how long operations take if each round trip takes one millisecond more, and
//! how many round trips there are.
//!
//! What must stay true: the proxy delays and counts both programs in the same way. Only the
//! measured requests and the mount's heartbeat pass through it.

use super::{NOTHING, Side, Targets, Turn, rate};
use crate::rig;
use anyhow::{Context, ensure};
use rustix::fs::{Mode, OFlags};
use sluice_testkit::server::Behaviour;
use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// How many times as fast changes have to be where trips decide.
pub(super) const FAR: Targets = Targets { redis: 2.0, postgres: 2.5, mariadb: 2.5, ..NOTHING };

pub(super) fn far(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None; 3]);
    }
    let count = turn.plan.sizes.far;
    let mut volume = turn.volume_behind_proxy()?;
    let folder = turn.mount(&mut volume)?.join("far");
    fs::create_dir(&folder)?;
    let named = |name: &str| -> Vec<PathBuf> {
        (0..count).map(|file| folder.join(format!("{name}-{file:06}"))).collect()
    };
    let (old, new) = (named("old"), named("new"));
    // Connections and statements are made once.
    create(&folder.join("first"))?;
    fs::rename(folder.join("first"), folder.join("second"))?;
    fs::remove_file(folder.join("second"))?;

    let away = Behaviour { request_delay: Duration::from_millis(1), ..Behaviour::default() };
    volume.proxy()?.set(away);
    let start = Instant::now();
    old.iter().try_for_each(|file| create(file))?;
    let created = rate(count, start);

    let start = Instant::now();
    for (old, new) in old.iter().zip(&new) {
        fs::rename(old, new).context("rename")?;
    }
    let renamed = rate(count, start);

    let start = Instant::now();
    for file in &new {
        fs::remove_file(file).context("unlink")?;
    }
    let removed = rate(count, start);
    volume.proxy()?.heal();
    ensure!(fs::read_dir(&folder)?.next().is_none(), "something is left in {}", folder.display());
    volume.unmount()?;
    Ok([created, renamed, removed].map(Some).to_vec())
}

fn create(file: &Path) -> anyhow::Result<()> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
    rustix::fs::open(file, flags, Mode::from(0o644)).context("create").map(drop)
}

/// Trips and statements that `touch` and `rm` take for each of many files.
pub(super) fn counted(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        return Ok(vec![None; 4]);
    }
    let count = turn.plan.sizes.counted;
    let mut volume = turn.volume_behind_proxy()?;
    let folder = turn.mount(&mut volume)?.join("counted");
    fs::create_dir(&folder)?;
    let names = (0..count).map(|file| folder.join(format!("file-{file:06}")).to_string_lossy().into_owned());
    let names: Vec<String> = names.collect();
    let arguments: Vec<&str> = names.iter().map(String::as_str).collect();
    let run = |program: &str| -> anyhow::Result<[f64; 2]> {
        let passed = || anyhow::Ok([volume.proxy()?.requests(), volume.counter("Questions")?]);
        let before = passed()?;
        rig::command(Path::new(program), &arguments)?;
        let after = passed()?;
        Ok([0, 1].map(|at| (after[at] - before[at]) as f64 / count as f64))
    };
    let touch = run("touch")?;
    let rm = run("rm")?;
    ensure!(fs::read_dir(&folder)?.next().is_none(), "something is left in {}", folder.display());
    volume.unmount()?;
    Ok([touch[0], rm[0], touch[1], rm[1]].map(Some).to_vec())
}
