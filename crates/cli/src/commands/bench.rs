//! `sluice bench`: how fast a directory is, for big and for small files.

use std::{
    fs::{self, File},
    io::{Read, Write},
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use clap::Args;
use sluice_types::Rng;

use crate::{progress::Progress, sizes, table};

/// Measure reading and writing in a directory
#[derive(Args)]
#[command(after_help = "Example:\n  sluice bench /mnt/vol")]
pub(crate) struct Bench {
    /// A directory, of a mounted volume or any other
    path: PathBuf,
    /// Size of one read or write; a bare number is MiB
    #[arg(long, value_name = "SIZE", default_value = "1M", value_parser = sizes::mib)]
    block_size: u64,
    /// Size of each big file, 0 for none; a bare number is MiB
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = sizes::mib)]
    big_file_size: u64,
    /// Size of each small file, 0 for none; a bare number is KiB
    #[arg(long, value_name = "SIZE", default_value = "128K", value_parser = sizes::kib)]
    small_file_size: u64,
    /// Small files of each thread
    #[arg(long, value_name = "N", default_value_t = 100)]
    small_file_count: u64,
    /// Threads
    #[arg(short = 'p', long, default_value_t = 1)]
    threads: usize,
}

/// Files of one size.
struct Files<'a> {
    dir: &'a Path,
    kind: &'static str,
    /// Of each thread.
    count: u64,
    size: u64,
    block: u64,
    threads: usize,
}

/// What is done with one file. Says after each block that it is done.
type Work<'a> = fn(&Files<'a>, &Path, &mut [u8], &Progress) -> Result<()>;

impl Bench {
    pub(crate) fn run(self) -> Result<ExitCode> {
        ensure!(self.threads > 0 && self.block_size > 0, "at least one thread and one byte at a time");
        let dir = self.path.join(format!("__sluice_benchmark_{}__", process::id()));
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let measured = self.measure(&dir);
        let removed = fs::remove_dir_all(&dir).with_context(|| format!("cannot remove {}", dir.display()));
        let rows = measured?;
        removed?;
        outln!(
            "block size {}, big files {}, small files {}, threads {}",
            sizes::human(self.block_size),
            sizes::human(self.big_file_size),
            sizes::human(self.small_file_size),
            self.threads
        );
        table::print(&rows, &[0]);
        Ok(ExitCode::SUCCESS)
    }

    fn measure(&self, dir: &Path) -> Result<Vec<Vec<String>>> {
        let mut rows = vec![["ITEM", "VALUE", "COST"].map(str::to_owned).to_vec()];
        let caches = Caches::default();
        let files = |kind, count, size| Files {
            dir,
            kind,
            count,
            size,
            block: self.block_size.min(size),
            threads: self.threads,
        };
        if self.big_file_size > 0 {
            let big = files("big", 1, self.big_file_size);
            let row = |what, time: Duration| {
                let seconds = time.as_secs_f64();
                let speed = (self.big_file_size * self.threads as u64) as f64 / f64::from(1 << 20) / seconds;
                [format!("{what} big file"), format!("{speed:.2} MiB/s"), format!("{seconds:.2} s/file")]
                    .to_vec()
            };
            rows.push(row("Write", big.run("write big files", big.blocks(), Files::write)?));
            caches.drop();
            rows.push(row("Read", big.run("read big files", big.blocks(), Files::read)?));
        }
        if self.small_file_size > 0 && self.small_file_count > 0 {
            let small = files("small", self.small_file_count, self.small_file_size);
            let row = |what, time: Duration| {
                let seconds = time.as_secs_f64();
                let each = seconds * 1000.0 / self.small_file_count as f64;
                let rate = (self.small_file_count * self.threads as u64) as f64 / seconds;
                [format!("{what} file"), format!("{rate:.1} files/s"), format!("{each:.2} ms/file")].to_vec()
            };
            rows.push(row("Write small", small.run("write small files", small.blocks(), Files::write)?));
            caches.drop();
            rows.push(row("Read small", small.run("read small files", small.blocks(), Files::read)?));
            caches.drop();
            rows.push(row("Stat", small.run("stat small files", 1, Files::stat)?));
        }
        Ok(rows)
    }
}

impl<'a> Files<'a> {
    fn path(&self, thread: usize, number: u64) -> PathBuf {
        self.dir.join(format!("{}.{thread}.{number}", self.kind))
    }

    /// Does something with each file, in so many steps, and answers the time it took.
    fn run(&self, what: &'static str, steps: u64, each: Work<'a>) -> Result<Duration> {
        let progress = Progress::new(what, Some(self.count * self.threads as u64 * steps));
        let begin = Instant::now();
        let failed = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| {
                    let progress = &progress;
                    scope.spawn(move || -> Result<()> {
                        let mut block = vec![0; self.block as usize];
                        Rng::seeded(thread as u64).fill(&mut block);
                        for number in 0..self.count {
                            let path = self.path(thread, number);
                            each(self, &path, &mut block, progress)
                                .with_context(|| path.display().to_string())?;
                        }
                        Ok(())
                    })
                })
                .collect();
            workers.into_iter().find_map(|worker| worker.join().ok()?.err())
        });
        let time = begin.elapsed();
        progress.finish();
        failed.map_or(Ok(time), Err)
    }

    /// Blocks of a file.
    fn blocks(&self) -> u64 {
        self.size.div_ceil(self.block)
    }

    fn write(&self, path: &Path, block: &mut [u8], progress: &Progress) -> Result<()> {
        let mut file = File::create(path)?;
        let mut left = self.size;
        while left > 0 {
            let size = left.min(self.block);
            file.write_all(&block[..size as usize])?;
            left -= size;
            progress.add(1);
        }
        // Closed, not synced, as programs do; reading checks that everything arrived.
        Ok(())
    }

    fn read(&self, path: &Path, block: &mut [u8], progress: &Progress) -> Result<()> {
        let mut file = File::open(path)?;
        let mut total = 0;
        loop {
            match file.read(block)? {
                0 => break,
                read => {
                    let before = total;
                    total += read as u64;
                    // A read may be short.
                    progress.add(total / self.block - before / self.block);
                }
            }
        }
        progress.add(u64::from(!total.is_multiple_of(self.block)));
        ensure!(total == self.size, "{total} bytes read, {} written", self.size);
        Ok(())
    }

    fn stat(&self, path: &Path, _: &mut [u8], progress: &Progress) -> Result<()> {
        progress.add(1);
        let size = fs::metadata(path)?.len();
        ensure!(size == self.size, "{size} bytes seen, {} written", self.size);
        Ok(())
    }
}

/// The kernel's caches, which root can drop.
#[derive(Default)]
struct Caches {
    warned: AtomicBool,
}

impl Caches {
    fn drop(&self) {
        rustix::fs::sync();
        if fs::write("/proc/sys/vm/drop_caches", "3").is_err() && !self.warned.swap(true, Ordering::Relaxed) {
            errln!("only root can drop the kernel's caches: reads may come from them");
        }
    }
}
