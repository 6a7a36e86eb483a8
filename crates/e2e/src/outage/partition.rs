//! One of two mounts is cut off from the engine for longer than its session lives, then comes back.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::rig::{Volume, until};
use anyhow::{Context, ensure};
use rustix::fs::{FlockOperation, flock};
use std::{
    fs::{self, File},
    io::Write,
    path::Path,
    time::Duration,
};

/// Both mounts show that they live once a second: who does not for five counts as dead.
const HEARTBEAT: [&str; 2] = ["--heartbeat", "1s"];
/// How long those who are cut off must be seen to wait.
const FELT: Duration = Duration::from_secs(2);
/// How long names and attributes may look old, once everybody is back.
const STALE: Duration = Duration::from_secs(10);

pub(super) fn run(plan: &Plan) -> anyhow::Result<()> {
    let mut volume = Volume::divided(&plan.program, plan.engine, &plan.within, &[])?;
    let done = partitioned(plan, &mut volume);
    report(&volume, done)
}

fn partitioned(plan: &Plan, volume: &mut Volume) -> anyhow::Result<()> {
    let (near, far) = (volume.mount(&HEARTBEAT)?, volume.mount_apart(&HEARTBEAT)?);
    for name in ["changed", "renamed", "removed", "locked"] {
        fs::write(near.join(name), format!("{name} before"))?;
    }
    let mut crew = Crew::start(&[near.clone(), far.clone()], plan.writers, plan.seed)?;
    crew.more(100)?;
    look(&far)?;
    let locked = File::options().append(true).open(far.join("locked"))?;
    flock(&locked, FlockOperation::LockExclusive)?;
    ensure!(sessions(plan, volume)? == 2, "both mounts have sessions");

    volume.namespace()?.cut()?;
    crew.stuck_at(1, 2, FELT)?;
    crew.until("the session to be removed", || sessions(plan, volume).is_ok_and(|count| count == 1))?;
    let taken = File::open(near.join("locked"))?;
    crew.until("its lock to be free", || flock(&taken, FlockOperation::NonBlockingLockExclusive).is_ok())?;
    fs::write(near.join("changed"), "by the other, and longer")?;
    fs::rename(near.join("renamed"), near.join("moved"))?;
    fs::remove_file(near.join("removed"))?;

    volume.namespace()?.heal()?;
    crew.everybody().context("after the cable was put in again")?;
    let seen = fs::read(far.join("changed"))?;
    ensure!(seen == b"by the other, and longer", "an open shows {:?}", String::from_utf8_lossy(&seen));
    until("names to be those of the other", STALE, || {
        let there = |name| far.join(name).symlink_metadata().is_ok();
        there("moved") && !there("renamed") && !there("removed")
    })?;
    lost(locked)?;
    let again = File::options().append(true).open(far.join("locked"))?;
    ensure!(flock(&again, FlockOperation::NonBlockingLockExclusive).is_err(), "two mounts hold one lock");
    drop(taken);
    until("the lock to be free", STALE, || flock(&again, FlockOperation::NonBlockingLockExclusive).is_ok())?;
    (&again).write_all(b" and after")?;
    again.sync_all()?;
    drop(again);
    ensure!(sessions(plan, volume)? == 2, "the session came back");

    crew.more(100)?;
    let outcome = crew.end()?;
    let text = fs::read_to_string(near.join("locked"))?;
    ensure!(text == "locked before and after", "the locked file holds {text:?}");
    let meta = volume.meta.clone();
    check(volume, meta, &outcome)
}

/// Has the mount remember what the other will change.
fn look(point: &Path) -> anyhow::Result<()> {
    for name in ["changed", "renamed", "removed"] {
        fs::read(point.join(name))?;
    }
    Ok(())
}

/// Whoever held the lock is told that it is lost.
fn lost(mut locked: File) -> anyhow::Result<()> {
    let report = locked.write_all(b"by one who lost the lock").and_then(|()| locked.sync_all());
    ensure!(report.is_err(), "whoever lost its lock goes on as if it had it");
    Ok(())
}

/// Sessions of the volume. Asked by another process, since files are open in a mount that hangs.
fn sessions(plan: &Plan, volume: &Volume) -> anyhow::Result<usize> {
    let program = plan.program.to_str().context("a program with a strange name")?;
    let status = volume.namespace()?.run_here(&[program, "status", &volume.meta])?;
    Ok(status.matches("\"Sid\"").count())
}
