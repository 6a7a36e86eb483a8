//! Rows about large files that several threads write and read at once, and the processor time that
//! the mount process needs for it.
//!
//! What must stay true: all programs write the same bytes in requests of the same size, and every
//! page that is read is checked. The limit is the same work on the disk below, without a mount.

use super::{
    Side, Turn,
    file::{PAGE, check, open, read_at, stamp, write_at},
    place::{Blocks, Place},
    rate,
};
use crate::pattern;
use anyhow::{Context, ensure};
use rustix::fs::OFlags;
use std::{
    fs,
    path::{Path, PathBuf},
    thread,
    time::Instant,
};
use tempfile::TempDir;

const KIB: usize = 1 << 10;
pub(super) const MIB: usize = 1 << 20;
/// The units in which Linux counts processor time, per second.
const TICKS: f64 = 100.0;

/// Where the files are.
enum Files<'t> {
    Mounted(Place<'t>),
    /// A directory of the disk.
    Bare(TempDir),
}

impl Files<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::Mounted(place) => place.path(),
            Self::Bare(directory) => directory.path(),
        }
    }

    /// Seconds of processor time that served the files so far.
    fn processor(&self) -> anyhow::Result<Option<f64>> {
        match self {
            Self::Mounted(place) => processor(place.path()).map(Some),
            Self::Bare(_) => Ok(None),
        }
    }

    fn highest(&mut self) -> anyhow::Result<Option<f64>> {
        match self {
            Self::Mounted(place) => place.highest(),
            Self::Bare(_) => Ok(None),
        }
    }

    fn cold(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Mounted(place) => place.cold(Blocks::Go),
            Self::Bare(_) => super::place::forget(),
        }
    }
}

/// Some files, written or read by a thread each.
#[derive(Clone, Copy)]
pub(super) struct Work {
    pub(super) name: &'static str,
    pub(super) files: usize,
    /// MiB of each.
    pub(super) large: usize,
    pub(super) request: usize,
    pub(super) fsync: bool,
}

impl Work {
    /// Writes the files into a directory, and returns MiB per second.
    pub(super) fn write(self, directory: &Path, seed: u64) -> anyhow::Result<f64> {
        self.run(|number| self.write_one(&self.path(directory, number), seed))
    }

    fn write_one(self, path: &Path, seed: u64) -> anyhow::Result<()> {
        let mut buffer = pattern::bytes(seed, self.request);
        let file = open(path, OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY)?;
        for at in (0..self.large * MIB).step_by(self.request) {
            for (page, bytes) in buffer.chunks_mut(PAGE).enumerate() {
                stamp(bytes, at / PAGE + page, 0);
            }
            write_at(&file, &buffer, at)?;
        }
        if self.fsync {
            rustix::fs::fsync(&file).context("fsync")?;
        }
        Ok(())
    }

    /// Reads the files, and returns MiB per second.
    pub(super) fn read(self, directory: &Path) -> anyhow::Result<f64> {
        self.run(|number| {
            let mut buffer = vec![0; self.request];
            let file = open(&self.path(directory, number), OFlags::RDONLY)?;
            for at in (0..self.large * MIB).step_by(self.request) {
                read_at(&file, &mut buffer, at)?;
                for (page, bytes) in buffer.chunks(PAGE).enumerate() {
                    check(bytes, at / PAGE + page, 0)?;
                }
            }
            Ok(())
        })
    }

    fn run(self, one: impl Fn(usize) -> anyhow::Result<()> + Sync) -> anyhow::Result<f64> {
        let one = &one;
        let start = Instant::now();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.files).map(|number| scope.spawn(move || one(number))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread of the bench"))
        })?;
        Ok(rate(self.files * self.large, start))
    }

    fn path(self, directory: &Path, number: usize) -> PathBuf {
        directory.join(format!("{}-{number}", self.name))
    }

    fn remove(self, directory: &Path) -> anyhow::Result<()> {
        (0..self.files).try_for_each(|number| Ok(fs::remove_file(self.path(directory, number))?))
    }
}

/// As `JuiceFS`, Sluice does not sync the blocks.
pub(super) fn turn(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let options: &[&str] = if turn.side == Side::Sluice { &["--no-store-sync"] } else { &[] };
    let mut files = files(turn, options)?;
    let large = turn.plan.sizes.large;
    let works = [
        Work { name: "two", files: 2, large, request: MIB, fsync: false },
        Work { name: "four", files: 4, large: large / 2, request: 4 * MIB, fsync: true },
        Work { name: "one", files: 1, large, request: 128 * KIB, fsync: false },
    ];
    let gib =
        |works: &[Work]| works.iter().map(|work| work.files * work.large).sum::<usize>() as f64 / 1024.0;
    let begun = files.processor()?;
    let mut figures = Vec::new();
    for work in works {
        // Unwritten data of the work before is no work of this one.
        rustix::fs::sync();
        figures.push(Some(work.write(files.path(), turn.seed())?));
        if work.name == "two" {
            work.remove(files.path())?;
        }
    }
    let spent = |begun: Option<f64>, ended: Option<f64>, gib| Some((ended? - begun?) / gib);
    figures.push(spent(begun, files.processor()?, gib(&works)));
    figures.push(files.highest()?);

    let reads = [works[2], works[1]];
    let mut used = Some(0.0);
    for work in reads {
        files.cold()?;
        let begun = files.processor()?;
        figures.push(Some(Work { request: MIB, ..work }.read(files.path())?));
        used = spent(begun, files.processor()?, 1.0).zip(used).map(|(more, used)| more + used);
    }
    figures.push(used.map(|used| used / gib(&reads)));
    figures.push(files.highest()?);
    finish(files)?;
    Ok(figures)
}

/// Sluice syncs the blocks, which `JuiceFS` never does.
pub(super) fn synced(turn: &Turn) -> anyhow::Result<Vec<Option<f64>>> {
    let files = files(turn, &[])?;
    let work =
        Work { name: "four", files: 4, large: turn.plan.sizes.large / 2, request: 4 * MIB, fsync: true };
    let written = work.write(files.path(), turn.seed())?;
    finish(files)?;
    Ok(vec![Some(written)])
}

fn files<'t>(turn: &'t Turn<'t>, options: &'static [&'static str]) -> anyhow::Result<Files<'t>> {
    if turn.side == Side::Limit {
        fs::create_dir_all(&turn.plan.within)?;
        return Ok(Files::Bare(tempfile::Builder::new().prefix("bare-").tempdir_in(&turn.plan.within)?));
    }
    Ok(Files::Mounted(Place::with_options(turn, options)?))
}

fn finish(files: Files<'_>) -> anyhow::Result<()> {
    match files {
        Files::Mounted(place) => place.finish(),
        Files::Bare(_) => Ok(()),
    }
}

/// Seconds of processor time of all processes that serve a mount point.
pub(super) fn processor(point: &Path) -> anyhow::Result<f64> {
    let servers = super::memory::servers(point)?;
    ensure!(!servers.is_empty(), "no process serves {}", point.display());
    let ticks: u64 = servers
        .into_iter()
        .filter_map(|process| fs::read_to_string(process.join("stat")).ok())
        .map(|stat| {
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum::<u64>()
        })
        .sum();
    Ok(ticks as f64 / TICKS)
}
