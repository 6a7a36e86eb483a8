//! Threads that read files through mounts and compare every byte.
//!
//! What must stay true: a read that is under way counts as long as it lasts, so that one that hangs
//! is seen while it hangs.

use super::files::{FILES, SIZE, content, file_name};
use anyhow::{Context, bail, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::{
    fs::File,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Threads of each mount.
const THREADS: usize = 4;
/// Pause of a thread after each read, so that two processors have time to answer.
const PAUSE: Duration = Duration::from_millis(8);
/// Bytes of reads, and how often each size is drawn, of a hundred.
const SIZES: [(usize, u32); 4] = [(1_600, 25), (11_800, 60), (64 << 10, 12), (400 << 10, 3)];

/// A read that ended: when it began and how long it took.
#[derive(Clone, Copy, Debug)]
struct Done {
    at: Duration,
    took: Duration,
}

#[derive(Debug)]
struct Shared {
    begun: Instant,
    done: Mutex<Vec<Done>>,
    /// When the read began that a thread is waiting for, in microseconds; 0 for none.
    under_way: Vec<AtomicU64>,
    stop: AtomicBool,
    contents: Vec<Vec<u8>>,
}

/// Readers of several mounts.
pub(super) struct Readers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

/// Reads of a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) reads: usize,
    pub(super) p99: Duration,
    pub(super) longest: Duration,
}

impl Readers {
    /// Begins to read.
    ///
    /// # Errors
    /// When a file cannot be opened.
    pub(super) fn start(points: &[PathBuf], seed: u64) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            begun: Instant::now(),
            done: Mutex::default(),
            under_way: (0..points.len() * THREADS).map(|_| AtomicU64::new(0)).collect(),
            stop: AtomicBool::new(false),
            contents: (0..FILES).map(|file| content(seed, file)).collect(),
        });
        let mut threads = Vec::new();
        for (number, point) in points.iter().cycle().take(points.len() * THREADS).enumerate() {
            let files = open(point)?;
            let (shared, point) = (Arc::clone(&shared), point.clone());
            threads.push(thread::spawn(move || {
                work(&shared, &files, number, seed).with_context(|| point.display().to_string())
            }));
        }
        Ok(Self { shared, threads })
    }

    /// Time since they began.
    pub(super) fn now(&self) -> Duration {
        self.shared.begun.elapsed()
    }

    /// Nobody saw an error yet.
    ///
    /// # Errors
    /// When a reader saw an error or a wrong byte.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let Some(fell) = self.threads.iter().position(JoinHandle::is_finished) else { return Ok(()) };
        match self.threads.swap_remove(fell).join() {
            Ok(Err(error)) => Err(error),
            ended => bail!("a reader ended: {ended:?}"),
        }
    }

    /// Reads that began in a time; those under way count as far as they got. Nothing if nobody
    /// read.
    ///
    /// # Errors
    /// When a reader saw an error or a wrong byte.
    pub(super) fn times(&mut self, from: Duration, to: Duration) -> anyhow::Result<Option<Times>> {
        self.check()?;
        let now = self.now();
        let done = self.shared.done.lock().unwrap_or_else(PoisonError::into_inner);
        let of_now = self.shared.under_way.iter().filter_map(|began| {
            let at = Some(began.load(Ordering::SeqCst)).filter(|began| *began > 0)?;
            let at = Duration::from_micros(at);
            Some(Done { at, took: now.saturating_sub(at) })
        });
        let mut took: Vec<Duration> = of_now
            .chain(done.iter().rev().take_while(|done| done.at + Duration::from_mins(1) >= from).copied())
            .filter(|done| done.at >= from && done.at < to)
            .map(|done| done.took)
            .collect();
        took.sort_unstable();
        let p99 = took.len().checked_sub(took.len() / 100 + 1).map(|at| took[at]);
        Ok(p99.zip(took.last().copied()).map(|(p99, longest)| Times { reads: took.len(), p99, longest }))
    }

    /// Ends them.
    ///
    /// # Errors
    /// When a reader saw an error or a wrong byte.
    pub(super) fn end(self) -> anyhow::Result<usize> {
        self.shared.stop.store(true, Ordering::SeqCst);
        for thread in self.threads {
            match thread.join() {
                Ok(ended) => ended?,
                Err(_) => bail!("a reader panicked"),
            }
        }
        Ok(self.shared.done.lock().unwrap_or_else(PoisonError::into_inner).len())
    }
}

/// Reads all files of a mount once, and compares them.
pub(super) fn read_all(point: &Path, seed: u64) -> anyhow::Result<()> {
    for (number, file) in open(point)?.iter().enumerate() {
        let mut bytes = vec![0; SIZE];
        file.read_exact_at(&mut bytes, 0)?;
        ensure!(bytes == content(seed, number), "{} is wrong", file_name(number));
    }
    Ok(())
}

/// Opened so that the kernel caches nothing.
fn open(point: &Path) -> anyhow::Result<Vec<File>> {
    let direct = rustix::fs::OFlags::DIRECT.bits() as i32;
    let open = |file| File::options().read(true).custom_flags(direct).open(point.join(file_name(file)));
    Ok((0..FILES).map(open).collect::<Result<_, _>>()?)
}

fn work(shared: &Shared, files: &[File], number: usize, seed: u64) -> anyhow::Result<()> {
    let mut rng = StdRng::seed_from_u64(seed ^ (number as u64) << 32);
    let mut bytes = Vec::new();
    while !shared.stop.load(Ordering::SeqCst) {
        let mut drawn = rng.random_range(0..100);
        let size = SIZES.iter().find(|(_, share)| {
            let hit = drawn < *share;
            drawn = drawn.saturating_sub(*share);
            hit
        });
        let (file, size) = (rng.random_range(0..FILES), size.map_or(1, |(size, _)| *size));
        let from = rng.random_range(0..=SIZE - size);
        bytes.resize(size, 0);
        bytes.fill(0);
        let at = shared.begun.elapsed();
        shared.under_way[number].store((at.as_micros() as u64).max(1), Ordering::SeqCst);
        let read = files[file].read_exact_at(&mut bytes, from as u64);
        let took = shared.begun.elapsed().saturating_sub(at);
        shared.done.lock().unwrap_or_else(PoisonError::into_inner).push(Done { at, took });
        shared.under_way[number].store(0, Ordering::SeqCst);
        let place = || format!("{} bytes at {from} of {}, after {took:?}", size, file_name(file));
        read.with_context(place)?;
        let right = &shared.contents[file][from..from + size];
        if let Some(wrong) = bytes.iter().zip(right).position(|(got, right)| got != right) {
            bail!("byte {wrong} of {} is wrong", place());
        }
        thread::park_timeout(PAUSE);
    }
    Ok(())
}
