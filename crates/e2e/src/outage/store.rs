//! The object store answers errors.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::{
    pattern,
    rig::{Volume, until},
};
use anyhow::{Context, bail, ensure};
use sluice_testkit::server::s3::{ACCESS_KEY, BUCKET, Fault, S3, SECRET_KEY};
use std::{
    fs,
    path::{Path, PathBuf},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// How long the store answers nothing but errors.
const OUTAGE: Duration = Duration::from_secs(30);
/// Files that are read meanwhile by who never read them before.
const READERS: u64 = 4;

/// Breaks the store under those who write and fsync in one mount, and under those who read in
/// another.
pub(super) fn errors(plan: &Plan) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let s3 = runtime.block_on(S3::start());
    let folder = tempfile::tempdir_in(fs::create_dir_all(&plan.within).map(|()| &plan.within)?)?;
    let meta = format!("sqlite3://{}", folder.path().join("meta.db").display());
    let bucket = s3.url(BUCKET);
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let options = [&["--storage", "s3", "--bucket", &bucket], &keys[..]].concat();
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &options)?;
    let done = broken(plan, &mut volume, &s3);
    report(&volume, done)
}

fn broken(plan: &Plan, volume: &mut Volume, s3: &S3) -> anyhow::Result<()> {
    let point = volume.mount(&[])?;
    let old = |number: u64| pattern::bytes(plan.seed ^ number << 32, 300_000);
    fs::create_dir(point.join("old"))?;
    for number in 0..READERS {
        fs::write(point.join(format!("old/f{number}")), old(number))?;
    }
    // It has read nothing yet.
    let other = volume.mount(&[])?;
    let mut crew = Crew::start(&[point], plan.writers, plan.seed)?;
    crew.more(50)?;

    let begun = Instant::now();
    s3.break_all(Fault::Status(500));
    let readers: Vec<_> =
        (0..READERS).map(|number| read(&other, &format!("old/f{number}"), old(number))).collect();
    crew.until("all to meet the errors", || s3.broken() >= READERS + plan.writers as u64)?;
    crew.stuck(Duration::from_secs(1))?;
    crew.until("the outage to last", || {
        begun.elapsed() >= OUTAGE || readers.iter().any(JoinHandle::is_finished)
    })?;
    ensure!(!readers.iter().any(JoinHandle::is_finished), "somebody read what nobody could give");
    s3.heal();
    end(readers)?;
    crew.more(50)?;
    let resumed = begun.elapsed().saturating_sub(OUTAGE);
    println!("{} requests failed; all went on within {resumed:?}", s3.broken());

    for (round, fault) in [Fault::LoseAnswer, Fault::Refuse, Fault::Status(503)].into_iter().enumerate() {
        let before = s3.broken();
        s3.break_all(fault);
        crew.until("requests to fail", || s3.broken() > before + 20)?;
        s3.heal();
        crew.more(20).with_context(|| format!("after short outage {round}"))?;
    }
    let outcome = crew.end()?;
    ensure!(outcome.longest >= OUTAGE / 2, "nobody waited for the store");
    let meta = volume.meta.clone();
    check(volume, meta, &outcome)
}

fn read(point: &Path, name: &str, wanted: Vec<u8>) -> JoinHandle<anyhow::Result<()>> {
    let path: PathBuf = point.join(name);
    thread::spawn(move || {
        let seen = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        ensure!(seen == wanted, "{} holds something else", path.display());
        Ok(())
    })
}

fn end(readers: Vec<JoinHandle<anyhow::Result<()>>>) -> anyhow::Result<()> {
    until("the readers to end", super::work::TIMEOUT, || readers.iter().all(JoinHandle::is_finished))?;
    for reader in readers {
        let Ok(read) = reader.join() else { bail!("a reader panicked") };
        read?;
    }
    Ok(())
}
