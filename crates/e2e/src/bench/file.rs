//! Rows about one large file: sequential write and read in requests of 1 MiB, random reads and
//! writes of 4 KiB, by one thread and by many, and appends.
//!
//! What must stay true: each page of the file contains its own number and the number of its last
//! write. All data that is read is checked.

use super::{
    Turn,
    place::{Blocks, Place},
    rate,
};
use crate::{pattern, rig};
use anyhow::{Context, bail, ensure};
use rand::{SeedableRng, rngs::StdRng, seq::index};
use rustix::fs::{Advice, Mode, OFlags};
use std::{
    os::fd::OwnedFd,
    path::Path,
    thread,
    time::{Duration, Instant},
};

pub(super) const PAGE: usize = 4096;
pub(super) const PIECE: usize = 1 << 20;
/// Threads that read at once.
const READERS: usize = 16;
/// What is appended at once.
const LINE: &[u8] = b"log\n";

pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let Some(mut place) = Place::new(turn)? else { return Ok(vec![None; 7]) };
    let sizes = turn.plan.sizes;
    let file = place.path().join("large");
    let mut buffer = pattern::bytes(turn.seed(), PIECE);

    let start = Instant::now();
    write(&file, sizes.large, &mut buffer)?;
    let written = rate(sizes.large, start);

    place.cold(Blocks::Go)?;
    let start = Instant::now();
    read(&file, sizes.large, &mut buffer)?;
    let sequential = rate(sizes.large, start);

    warm(&mut place, &file, sizes.large, &mut buffer)?;
    place.cold(Blocks::Stay)?;
    let mut rng = StdRng::seed_from_u64(turn.seed());
    let chosen = pages(&mut rng, sizes.large, sizes.random);
    let random_read = read_pages(&open(&file, OFlags::RDONLY)?, &chosen)?;

    place.cold(Blocks::Stay)?;
    let chosen = pages(&mut rng, sizes.large, 4 * sizes.random);
    let crowded_read = read_at_once(&file, &chosen)?;
    let opened = open(&file, OFlags::RDWR)?;

    let chosen = pages(&mut rng, sizes.large, sizes.random);
    let start = Instant::now();
    for &page in &chosen {
        stamp(&mut buffer[..PAGE], page, 1);
        write_at(&opened, &buffer[..PAGE], page * PAGE)?;
    }
    rustix::fs::fsync(&opened).context("fsync")?;
    let random_write = rate(chosen.len(), start);
    drop(opened);

    place.cold(Blocks::Stay)?;
    let opened = open(&file, OFlags::RDONLY)?;
    for &page in chosen.iter().take(200) {
        read_page(&opened, page, 1, &mut buffer[..PAGE])?;
    }
    drop(opened);

    let appended = append(&place.path().join("log"), sizes.random)?;
    let highest = place.highest()?;
    place.finish()?;
    let rates = [written, sequential, random_read, crowded_read, random_write, appended];
    Ok(rates.map(Some).into_iter().chain([highest]).collect())
}

/// Appends so many lines to a new file; lines a second.
fn append(path: &Path, count: usize) -> anyhow::Result<f64> {
    let file = open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::APPEND)?;
    let start = Instant::now();
    for _ in 0..count {
        ensure!(rustix::io::write(&file, LINE).context("append")? == LINE.len(), "a part was appended");
    }
    let appended = rate(count, start);
    drop(file);
    let length = std::fs::metadata(path)?.len();
    ensure!(length == (count * LINE.len()) as u64, "{length} bytes are in {}", path.display());
    Ok(appended)
}

/// `count` pages of a file of so many pieces, none twice.
pub(super) fn pages(rng: &mut StdRng, pieces: usize, count: usize) -> Vec<usize> {
    let pages = pieces * PIECE / PAGE;
    index::sample(rng, pages, count.min(pages)).into_vec()
}

/// Reads these pages of a file that nobody has written twice; pages a second.
pub(super) fn read_pages(file: &OwnedFd, pages: &[usize]) -> anyhow::Result<f64> {
    // Each request by itself: the kernel shall fetch what is asked for, from everybody.
    rustix::fs::fadvise(file, 0, None, Advice::Random)?;
    let mut buffer = [0; PAGE];
    let start = Instant::now();
    for &page in pages {
        read_page(file, page, 0, &mut buffer)?;
    }
    Ok(rate(pages.len(), start))
}

/// The same by many threads at once, each with a part of the pages and a descriptor of its own.
fn read_at_once(path: &Path, pages: &[usize]) -> anyhow::Result<f64> {
    let start = Instant::now();
    thread::scope(|scope| {
        let read = |pages| read_pages(&open(path, OFlags::RDONLY)?, pages);
        let parts = pages.chunks(pages.len().div_ceil(READERS));
        let threads: Vec<_> = parts.map(|part| scope.spawn(move || read(part))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of the bench").map(drop))
    })?;
    Ok(rate(pages.len(), start))
}

/// Reads until all blocks are in the cache on disk: it is filled behind readers, and leaves out
/// what comes too fast.
pub(super) fn warm(place: &mut Place, file: &Path, pieces: usize, buffer: &mut [u8]) -> anyhow::Result<()> {
    let large = (pieces * PIECE) as u64;
    for _ in 0..5 {
        let filled = || place.cached().is_none_or(|cached| cached >= large);
        if rig::until("the block cache to fill", Duration::from_secs(3), filled).is_ok() {
            return Ok(());
        }
        place.cold(Blocks::Stay)?;
        read(file, pieces, buffer)?;
    }
    bail!("the block cache holds {} of {large} bytes that were read", place.cached().unwrap_or(0))
}

pub(super) fn open(path: &Path, flags: OFlags) -> anyhow::Result<OwnedFd> {
    rustix::fs::open(path, flags, Mode::from(0o644))
        .with_context(|| format!("cannot open {}", path.display()))
}

pub(super) fn write(path: &Path, pieces: usize, buffer: &mut [u8]) -> anyhow::Result<()> {
    let file = open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
    for piece in 0..pieces {
        for (page, bytes) in buffer.chunks_mut(PAGE).enumerate() {
            stamp(bytes, piece * PIECE / PAGE + page, 0);
        }
        write_at(&file, buffer, piece * PIECE)?;
    }
    rustix::fs::fsync(&file).context("fsync")
}

fn read(path: &Path, pieces: usize, buffer: &mut [u8]) -> anyhow::Result<()> {
    let file = open(path, OFlags::RDONLY)?;
    for piece in 0..pieces {
        read_at(&file, buffer, piece * PIECE)?;
        for (page, bytes) in buffer.chunks(PAGE).enumerate() {
            check(bytes, piece * PIECE / PAGE + page, 0)?;
        }
    }
    let mut beyond = [0; 1];
    ensure!(rustix::io::pread(&file, &mut beyond, (pieces * PIECE) as u64)? == 0, "the file is longer");
    Ok(())
}

fn read_page(file: &OwnedFd, page: usize, generation: u64, buffer: &mut [u8]) -> anyhow::Result<()> {
    read_at(file, buffer, page * PAGE)?;
    check(buffer, page, generation)
}

pub(super) fn read_at(file: &OwnedFd, buffer: &mut [u8], offset: usize) -> anyhow::Result<()> {
    let mut done = 0;
    while done < buffer.len() {
        match rustix::io::pread(file, &mut buffer[done..], (offset + done) as u64).context("read")? {
            0 => bail!("the file ends at {}", offset + done),
            count => done += count,
        }
    }
    Ok(())
}

pub(super) fn write_at(file: &OwnedFd, bytes: &[u8], offset: usize) -> anyhow::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        done += rustix::io::pwrite(file, &bytes[done..], (offset + done) as u64).context("write")?;
    }
    Ok(())
}

pub(super) fn stamp(page: &mut [u8], number: usize, generation: u64) {
    page[..8].copy_from_slice(&(number as u64).to_le_bytes());
    page[8..16].copy_from_slice(&generation.to_le_bytes());
}

pub(super) fn check(page: &[u8], number: usize, generation: u64) -> anyhow::Result<()> {
    let mut expected = [0; 16];
    stamp(&mut expected, number, generation);
    ensure!(page[..16] == expected, "page {number} reads {:?}, not {expected:?}", &page[..16]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_the_wrong_place_is_found() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("large");
        let mut buffer = pattern::bytes(1, PIECE);
        write(&path, 2, &mut buffer)?;
        read(&path, 2, &mut buffer)?;
        let file = open(&path, OFlags::RDWR)?;
        read_page(&file, 300, 0, &mut buffer[..PAGE])?;
        write_at(&file, &buffer[..PAGE], 301 * PAGE)?;
        assert!(read(&path, 2, &mut buffer).is_err());
        Ok(())
    }
}
