//! The work of the programs on a mount.

use super::{
    plan::{Figure, Work},
    server::{Server, used},
};
use rustix::fs::OFlags;
use std::{
    fs::{self, File},
    io,
    os::unix::fs::{FileExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Bytes of a small and of a large request.
const SMALL: usize = 4 << 10;
const LARGE: usize = 1 << 20;
/// Bytes of a file that is read and written.
const FILE: usize = 16 << 20;

/// Work of so many threads for so many milliseconds.
pub(super) struct Load {
    pub(super) work: Work,
    pub(super) threads: usize,
    pub(super) millis: u64,
}

/// What one thread has.
struct Worker {
    work: Work,
    folder: PathBuf,
    file: File,
    buffer: Vec<u8>,
    /// Operations done, and prepared.
    done: u64,
    prepared: u64,
    random: u64,
}

impl Load {
    pub(super) fn run(&self, server: &Server) -> anyhow::Result<Figure> {
        let (ready, stop) = (Barrier::new(self.threads + 1), AtomicBool::new(false));
        let (before, began, results) = thread::scope(|scope| {
            let threads: Vec<_> = (0..self.threads)
                .map(|number| {
                    let (ready, stop) = (&ready, &stop);
                    scope.spawn(move || -> io::Result<(Worker, u64)> {
                        let worker = Worker::new(self, server.point(), number);
                        ready.wait();
                        let mut worker = worker?;
                        let this = Path::new("/proc/thread-self");
                        let before = used(this);
                        while !stop.load(Ordering::Relaxed) && worker.step()? {}
                        let used = used(this) - before;
                        Ok((worker, used))
                    })
                })
                .collect();
            ready.wait();
            let (before, began) = (server.used(), Instant::now());
            // What has a given number of operations ends by itself.
            let end = began + Duration::from_millis(self.millis);
            while Instant::now() < end && !threads.iter().all(thread::ScopedJoinHandle::is_finished) {
                thread::park_timeout(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
            let results: Vec<_> = threads.into_iter().map(thread::ScopedJoinHandle::join).collect();
            (before, began, results)
        });
        let took = began.elapsed();
        let used = server.used()? - before?;
        let (mut done, mut own) = (0, 0);
        for result in results {
            let (worker, time) = result.map_err(|_| anyhow::anyhow!("a thread panicked"))??;
            done += worker.done;
            own += time;
            worker.clean()?;
        }
        let cost = (used + own) as f64 / 1000.0 / done as f64;
        Ok(Figure { rate: done as f64 / took.as_secs_f64(), cost })
    }
}

impl Worker {
    fn new(load: &Load, point: &Path, number: usize) -> io::Result<Self> {
        let folder = point.join(format!("thread{number}"));
        fs::create_dir(&folder)?;
        let path = folder.join("file");
        let size = match load.work {
            Work::ReadSmall | Work::ReadLarge | Work::WriteLarge => FILE,
            _ => 1,
        };
        fs::write(&path, vec![7; size])?;
        let direct = OFlags::DIRECT.bits() as i32;
        let file = File::options().read(true).write(true).custom_flags(direct).open(&path)?;
        let buffer = vec![5; if load.work == Work::ReadSmall { SMALL } else { LARGE }];
        let random = 0x9E37_79B9_7F4A_7C15_u64.wrapping_mul(number as u64 + 1);
        let mut worker = Self { work: load.work, folder, file, buffer, done: 0, prepared: 0, random };
        if load.work == Work::Unlink {
            // As many as are unlinked in the time on a fast machine.
            worker.prepared = 100 * load.millis / load.threads as u64;
            for number in 0..worker.prepared {
                File::create(worker.name(number))?;
            }
        }
        Ok(worker)
    }

    /// Removes what is left of the work.
    fn clean(self) -> io::Result<()> {
        let left = match self.work {
            Work::Create => 0..self.done,
            _ => self.done.min(self.prepared)..self.prepared,
        };
        for number in left {
            fs::remove_file(self.name(number))?;
        }
        fs::remove_file(self.folder.join("file"))?;
        fs::remove_dir(&self.folder)
    }

    fn name(&self, number: u64) -> PathBuf {
        self.folder.join(number.to_string())
    }

    /// Does one operation; `false` after the last one.
    fn step(&mut self) -> io::Result<bool> {
        let number = self.done;
        let place = number % (FILE / LARGE) as u64 * LARGE as u64;
        match self.work {
            Work::Stat => {
                fs::metadata(self.folder.join("file"))?;
            }
            Work::Open => drop(File::open(self.folder.join("file"))?),
            Work::Create => drop(File::create(self.name(number))?),
            Work::Unlink if number == self.prepared => return Ok(false),
            Work::Unlink => fs::remove_file(self.name(number))?,
            Work::ReadSmall => {
                self.random ^= self.random << 13;
                self.random ^= self.random >> 7;
                self.random ^= self.random << 17;
                let at = self.random % (FILE / SMALL) as u64 * SMALL as u64;
                self.file.read_exact_at(&mut self.buffer, at)?;
            }
            Work::ReadLarge => self.file.read_exact_at(&mut self.buffer, place)?,
            Work::WriteLarge => self.file.write_all_at(&self.buffer, place)?,
        }
        self.done += 1;
        Ok(true)
    }
}
