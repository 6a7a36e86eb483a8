//! The process that works in the mount until it dies under it. It says the number of each step once
//! that step is durable, never before.

use super::step::{Step, content, step};
use anyhow::Context;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::{
    fs::File,
    io::Write,
    path::Path,
    time::{Duration, Instant},
};

/// Longer than any crash takes to come: a writer that was forgotten ends by itself.
const LIFE: Duration = Duration::from_mins(10);

/// Works in `folder` until something fails.
///
/// # Errors
/// What failed: the mount's death, if all is well.
pub fn run(folder: &Path, seed: u64) -> anyhow::Result<()> {
    // Both are held until death: the lock must be given free, the file without a name must go.
    let lock = open(&folder.join("lock"), OFlags::CREATE)?;
    let _ = rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive);
    let mut nameless = open(&folder.join("nameless"), OFlags::CREATE)?;
    nameless.write_all(&content(seed, u64::MAX, 100_000))?;
    nameless.sync_all()?;
    std::fs::remove_file(folder.join("nameless"))?;

    let begin = Instant::now();
    let mut said = std::io::stdout();
    for number in (0..).take_while(|_| begin.elapsed() < LIFE) {
        one(folder, seed, number).with_context(|| format!("step {number}: {:?}", step(seed, number)))?;
        writeln!(said, "{number}").and_then(|()| said.flush()).context("nobody listens")?;
    }
    Ok(())
}

fn one(folder: &Path, seed: u64, number: u64) -> anyhow::Result<()> {
    let (file, step) = step(seed, number);
    let path = folder.join(format!("f{file}"));
    match step {
        Step::Replace { length } => {
            let fresh = folder.join("fresh");
            let mut file = open(&fresh, OFlags::CREATE | OFlags::TRUNC)?;
            file.write_all(&content(seed, number, length))?;
            file.sync_all()?;
            std::fs::rename(&fresh, &path)?;
        }
        Step::Write { offset, length } => {
            use std::os::unix::fs::FileExt;
            let file = open(&path, OFlags::CREATE)?;
            file.write_all_at(&content(seed, number, length), offset as u64)?;
            file.sync_all()?;
        }
        Step::Truncate { length } => {
            let file = open(&path, OFlags::CREATE)?;
            file.set_len(length as u64)?;
            file.sync_all()?;
        }
        Step::Remove => match std::fs::remove_file(&path) {
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => {}
            result => result?,
        },
    }
    File::open(folder)?.sync_all().context("fsync of the directory")
}

fn open(path: &Path, flags: OFlags) -> anyhow::Result<File> {
    Ok(rustix::fs::open(path, OFlags::RDWR | flags, Mode::from(0o644))?.into())
}
