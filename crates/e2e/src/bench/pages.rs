//! Rows about the kernel's page cache: small files that the mount has just written, opened and read
//! again, and random reads of 512 bytes of a file whose pages are all in memory.
//!
//! What must stay true: the limit is a plain directory of the file system below `--within`. All
//! data that is read is checked.

use super::{
    Side, Turn,
    file::{self, PAGE, PIECE, open, read_at},
    place::Place,
    rate,
};
use crate::pattern;
use anyhow::ensure;
use rand::{SeedableRng, rngs::StdRng};
use rustix::fs::OFlags;
use std::{fs, path::Path, time::Instant};

/// Bytes of a small file.
const SMALL: usize = 64 << 10;
/// Bytes of a random read.
const SECTOR: usize = 512;
/// Random reads for each page of a round.
const READS_OF_PAGE: usize = 10;

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    if turn.side == Side::Limit {
        fs::create_dir_all(&turn.plan.within)?;
        let folder = tempfile::Builder::new().prefix("pages-").tempdir_in(&turn.plan.within)?;
        return Ok(rows(turn, folder.path())?.map(Some).into());
    }
    let place = Place::with_options(turn, &[])?;
    let figures = rows(turn, place.path())?;
    place.finish()?;
    Ok(figures.map(Some).into())
}

fn rows(turn: &Turn, folder: &Path) -> anyhow::Result<[f64; 2]> {
    Ok([own_files(turn, &folder.join("own"))?, sectors(turn, &folder.join("large"))?])
}

/// Files a second.
fn own_files(turn: &Turn, folder: &Path) -> anyhow::Result<f64> {
    fs::create_dir(folder)?;
    let mut bytes = pattern::bytes(turn.seed(), SMALL);
    let paths: Vec<_> = (0..turn.plan.sizes.many).map(|file| folder.join(format!("{file:06}"))).collect();
    for (number, path) in paths.iter().enumerate() {
        file::stamp(&mut bytes, number, 0);
        fs::write(path, &bytes)?;
    }
    let start = Instant::now();
    for (number, path) in paths.iter().enumerate() {
        let file = open(path, OFlags::RDONLY)?;
        read_at(&file, &mut bytes, 0)?;
        file::check(&bytes, number, 0)?;
        ensure!(rustix::io::pread(&file, &mut [0; 1], SMALL as u64)? == 0, "{} is longer", path.display());
    }
    Ok(rate(paths.len(), start))
}

/// Reads a second.
fn sectors(turn: &Turn, path: &Path) -> anyhow::Result<f64> {
    let pieces = turn.plan.sizes.large;
    let mut buffer = pattern::bytes(turn.seed(), PIECE);
    file::write(path, pieces, &mut buffer)?;
    let opened = open(path, OFlags::RDONLY)?;
    for piece in 0..pieces {
        read_at(&opened, &mut buffer, piece * PIECE)?;
    }
    let chosen = file::pages(&mut StdRng::seed_from_u64(turn.seed()), pieces, pieces * PIECE / PAGE);
    let mut sector = [0; SECTOR];
    let start = Instant::now();
    for &page in chosen.iter().cycle().take(chosen.len() * READS_OF_PAGE) {
        read_at(&opened, &mut sector, page * PAGE)?;
        file::check(&sector, page, 0)?;
    }
    Ok(rate(chosen.len() * READS_OF_PAGE, start))
}
