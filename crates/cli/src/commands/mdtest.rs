//! `sluice mdtest`: measures how many files per second the metadata engine can create.
//!
//! Creates directories and files through the metadata layer alone. It commits a slice to each file,
//! and stores no object. `juicefs mdtest` does the same work.

use std::{process::ExitCode, thread, time::Instant};

use anyhow::{Context, Result};
use clap::Args;
use sluice_meta::{Interrupt, Meta, op::At, ops::write::Write};
use sluice_types::{CHUNK_SIZE, Clock, FileType, FsResult, Ino, Name, Rng, Slice, SystemClock};

use crate::{
    progress::Progress,
    tree::{create, directory, found_or_made, make_dir},
    volume,
};

/// Measure how fast files are created
#[derive(Args)]
#[command(after_help = "Example:
  sluice mdtest redis://localhost/1 /bench --threads 4 --files 1000")]
pub(crate) struct Mdtest {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Directory of the test, made if it does not exist
    path: String,
    /// Threads
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Sub-directories of each directory
    #[arg(long, default_value_t = 3)]
    dirs: usize,
    /// Levels of the tree
    #[arg(long, default_value_t = 2)]
    depth: usize,
    /// Files of each thread in each directory
    #[arg(long, default_value_t = 10)]
    files: usize,
    /// Bytes that each file is said to have. None is stored: the files cannot be read, and are to
    /// be removed
    #[arg(long, default_value_t = 0)]
    write: u64,
    /// Number of the first thread, which is part of the names: processes with different ones may
    /// fill one tree together
    #[arg(long, value_name = "N")]
    first_thread: Option<usize>,
}

impl Mdtest {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let meta = volume::open_meta(&self.meta_url, "mdtest", false)?;
        let done = self.measure(&meta);
        meta.close()?;
        done
    }

    fn measure(&self, meta: &Meta) -> Result<ExitCode> {
        let start = Instant::now();
        let top = directory(meta, &self.path).with_context(|| format!("cannot make {}", self.path))?;
        let top = self
            .make_dir(meta, top, "test-dir.0-0")
            .context("the test has been run in this directory before")?;
        let root = self.make_dir(meta, top, "mdtest_tree.0")?;
        let mut dirs = vec![root];
        let mut level = vec![root];
        for _ in 0..self.depth {
            let mut next = Vec::new();
            for dir in level {
                for i in 0..self.dirs {
                    next.push(self.make_dir(meta, dir, &format!("mdtest_tree.{i}"))?);
                }
            }
            dirs.extend_from_slice(&next);
            level = next;
        }
        let elapsed = start.elapsed().as_secs_f64();
        outln!("Created {} dirs in {elapsed:.2}s ({:.0} dirs/s)", dirs.len(), dirs.len() as f64 / elapsed);

        let total = (dirs.len() * self.threads * self.files) as u64;
        let progress = Progress::new("create file", Some(total));
        let failed = thread::scope(|scope| {
            let workers: Vec<_> = (0..self.threads)
                .map(|thread| self.first_thread.unwrap_or_default() + thread)
                .map(|thread| {
                    let (dirs, progress) = (&dirs, &progress);
                    scope.spawn(move || self.create_files(meta, thread, dirs, progress))
                })
                .collect();
            workers.into_iter().find_map(|worker| worker.join().ok()?.err())
        });
        let (done, elapsed) = progress.finish();
        let elapsed = elapsed.as_secs_f64();
        outln!("Created {done} files in {elapsed:.2}s ({:.0} files/s)", done as f64 / elapsed);
        match failed {
            Some(error) => Err(error).context("not all files could be created"),
            None => Ok(ExitCode::SUCCESS),
        }
    }

    /// Makes a directory. One tree may be made by many.
    fn make_dir(&self, meta: &Meta, dir: Ino, name: &str) -> FsResult<Ino> {
        if self.first_thread.is_some() {
            found_or_made(meta, dir, name.as_bytes())
        } else {
            make_dir(meta, dir, name.as_bytes())
        }
    }

    fn create_files(&self, meta: &Meta, thread: usize, dirs: &[Ino], progress: &Progress) -> FsResult<()> {
        let mut order = dirs.to_vec();
        let mut rng = Rng::seeded(thread as u64);
        for i in (1..order.len()).rev() {
            order.swap(i, rng.below(i as u64 + 1) as usize);
        }
        let never = Interrupt::never();
        for dir in order {
            for i in 0..self.files {
                let name = Name::new(format!("file.mdtest.{thread}.{i}").as_bytes())?;
                let ino = meta.new_ino(&never)?;
                meta.run(create(At::new(dir, name), ino, FileType::File, 0o666), &never)?;
                for index in 0..self.write.div_ceil(CHUNK_SIZE) {
                    let size = CHUNK_SIZE.min(self.write - index * CHUNK_SIZE) as u32;
                    let slices = vec![Slice::whole(0, meta.new_slice(&never)?, size)];
                    meta.run(Write { ino, index: index as u32, slices, mtime: SystemClock.now() }, &never)?;
                }
                progress.add(1);
            }
        }
        Ok(())
    }
}
