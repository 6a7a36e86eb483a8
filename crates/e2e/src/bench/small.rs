//! Rows about small files through the mount, one thread: create, cold stat, unlink.

use super::{
    Turn,
    place::{Blocks, Place},
    rate,
};
use anyhow::{Context, ensure};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use rustix::fs::{Mode, OFlags};
use std::{fs, path::PathBuf, time::Instant};

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let Some(mut place) = Place::new(turn)? else { return Ok(vec![None; 4]) };
    let count = turn.plan.sizes.small;
    let folder = place.path().join("small");
    fs::create_dir(&folder)?;
    let mut files: Vec<PathBuf> = (0..count).map(|file| folder.join(format!("file-{file:06}"))).collect();

    let start = Instant::now();
    for file in &files {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY;
        drop(rustix::fs::open(file, flags, Mode::from(0o644)).context("create")?);
    }
    let create = rate(count, start);

    // In an order of its own: nobody asks for names as they were made.
    files.shuffle(&mut StdRng::seed_from_u64(turn.seed()));
    place.cold(Blocks::Stay)?;
    let start = Instant::now();
    for file in &files {
        ensure!(rustix::fs::lstat(file).context("stat")?.st_size == 0, "{} has grown", file.display());
    }
    let stat = rate(count, start);

    let start = Instant::now();
    for file in &files {
        rustix::fs::unlink(file).context("unlink")?;
    }
    let unlink = rate(count, start);
    ensure!(fs::read_dir(&folder)?.next().is_none(), "something is left in {}", folder.display());
    let highest = place.highest()?;
    place.finish()?;
    Ok(vec![Some(create), Some(stat), Some(unlink), highest])
}
