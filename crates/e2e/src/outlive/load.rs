//! Threads at work in a mount with files that they keep open, which know what must be there.
//!
//! What must stay true: stored data is never lost. Data that was not stored may be lost with the
//! mount process. Then exactly one call on each open file reports the loss.

use super::timeout::TIMEOUT;
use crate::{pattern, rig::until};
use anyhow::{Context, ensure};
use rand::{Rng, SeedableRng, rngs::StdRng};
use rustix::fs::FlockOperation;
use std::{
    fs::{self, File},
    io::{self, Read, Write},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread::{self, JoinHandle},
};

/// Pages of a file that is mapped.
const PAGES: usize = 16;
const PAGE: usize = 4096;

/// Fills page after page of a mapped file with the number of the step, and says which step is
/// stored.
const MAPPER: &str = "import mmap, os, sys\n\
    pages, page = int(sys.argv[2]), 4096\n\
    f = open(sys.argv[1], 'r+b')\n\
    m = mmap.mmap(f.fileno(), pages * page)\n\
    step = 0\n\
    while sys.stdin.readline():\n\
    \x20   step += 1\n\
    \x20   at = step % pages * page\n\
    \x20   m[at:at + page] = step.to_bytes(8, 'little') * (page // 8)\n\
    \x20   try:\n\
    \x20       m.flush()\n\
    \x20       os.fsync(f.fileno())\n\
    \x20       print('stored', flush=True)\n\
    \x20   except OSError as e:\n\
    \x20       print('failed', e.errno, flush=True)\n";

/// What all threads share.
struct Shared {
    folder: PathBuf,
    /// Steps done.
    steps: AtomicU64,
    /// Files that told of a loss.
    errors: AtomicU64,
    stop: AtomicBool,
    failed: AtomicBool,
    /// Somebody has the lock that all take in turn.
    inside: AtomicBool,
    /// Whether what is not stored may be lost.
    may_lose: bool,
}

/// Threads at work.
pub(super) struct Load {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

type Work = fn(&Shared, &mut StdRng, usize) -> anyhow::Result<()>;

impl Load {
    /// Sets them to work below `point`.
    pub(super) fn start(point: &Path, seed: u64, may_lose: bool) -> anyhow::Result<Self> {
        let folder = point.join(format!("load{seed:016x}"));
        fs::create_dir(&folder)?;
        File::create(folder.join("turns"))?;
        let shared = Arc::new(Shared {
            folder,
            steps: AtomicU64::new(0),
            errors: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failed: AtomicBool::new(false),
            inside: AtomicBool::new(false),
            may_lose,
        });
        let works: [Work; 7] = [append, append, replace, names, take_turns, take_turns, map];
        let threads = works.into_iter().enumerate().map(|(number, work)| {
            let shared = Arc::clone(&shared);
            let mut rng = StdRng::seed_from_u64(seed ^ number as u64);
            thread::spawn(move || {
                let done = work(&shared, &mut rng, number).with_context(|| format!("thread {number}"));
                shared.failed.fetch_or(done.is_err(), Ordering::SeqCst);
                done
            })
        });
        Ok(Self { threads: threads.collect(), shared })
    }

    /// Waits for so many more steps, or a failure.
    pub(super) fn progress(&self, steps: u64) -> anyhow::Result<()> {
        let wanted = self.shared.steps.load(Ordering::SeqCst) + steps;
        Ok(until("programs to go on", TIMEOUT, || {
            self.shared.failed.load(Ordering::SeqCst) || self.shared.steps.load(Ordering::SeqCst) >= wanted
        })?)
    }

    /// Ends the work; how many files told of a loss. Mount processes went `deaths` times.
    pub(super) fn end(self, deaths: u64) -> anyhow::Result<u64> {
        self.shared.stop.store(true, Ordering::SeqCst);
        until("programs to end", TIMEOUT, || self.threads.iter().all(JoinHandle::is_finished))?;
        for thread in self.threads {
            thread.join().ok().context("a thread panicked")??;
        }
        let errors = self.shared.errors.load(Ordering::SeqCst);
        // Two that append, one that replaces, one that maps.
        ensure!(errors <= 4 * deaths, "{errors} files told of a loss after {deaths} deaths");
        Ok(errors)
    }
}

impl Shared {
    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::SeqCst) && !self.failed.load(Ordering::SeqCst)
    }

    fn step(&self) {
        self.steps.fetch_add(1, Ordering::SeqCst);
    }

    /// Whether a call that stores worked; a loss that may be is counted.
    fn stored(&self, result: io::Result<()>) -> anyhow::Result<bool> {
        match result {
            Err(why) if self.may_lose && why.raw_os_error() == Some(5) => {
                self.errors.fetch_add(1, Ordering::SeqCst);
                Ok(false)
            }
            result => Ok(result.map(|()| true)?),
        }
    }
}

/// Appends to a file that stays open, and stores it now and then.
fn append(shared: &Shared, rng: &mut StdRng, number: usize) -> anyhow::Result<()> {
    let path = shared.folder.join(format!("appended{number}"));
    let mut file = File::options().create(true).append(true).read(true).open(&path)?;
    let (mut stored, mut written) = (Vec::new(), Vec::new());
    while shared.goes_on() {
        for _ in 0..rng.random_range(1..6) {
            let piece = pattern::bytes(rng.random(), rng.random_range(1..40_000));
            file.write_all(&piece).context("append")?;
            written.extend(piece);
            shared.step();
        }
        if shared.stored(file.sync_all()).context("fsync")? {
            stored.append(&mut written);
            if stored.len() > 1 << 20 {
                same(&file, &stored)?;
                file.set_len(0).context("truncate")?;
                stored.clear();
                ensure!(shared.stored(file.sync_all())?, "a file without data has lost some");
            }
            continue;
        }
        // Once is enough: the next call does not say it again.
        written.clear();
        same(&file, &stored)?;
        file.set_len(stored.len() as u64).context("truncate after a loss")?;
        file.sync_all().context("the loss was told before")?;
    }
    shared.stored(file.sync_all())?;
    same(&file, &stored)
}

/// The file begins with what was stored.
fn same(file: &File, stored: &[u8]) -> anyhow::Result<()> {
    let mut seen = vec![0; stored.len()];
    file.read_exact_at(&mut seen, 0).context("what was stored cannot be read")?;
    let alike = seen.iter().zip(stored).take_while(|(a, b)| a == b).count();
    ensure!(alike == stored.len(), "of {} stored bytes only the first {alike} are there", stored.len());
    Ok(())
}

/// Replaces a file by a new one that was stored before.
fn replace(shared: &Shared, rng: &mut StdRng, number: usize) -> anyhow::Result<()> {
    let (fresh, path) = (shared.folder.join("fresh"), shared.folder.join(format!("replaced{number}")));
    while shared.goes_on() {
        let content = pattern::bytes(rng.random(), rng.random_range(1..200_000));
        let mut file = File::create(&fresh).context("create")?;
        file.write_all(&content).context("write")?;
        if !shared.stored(file.sync_all()).context("fsync")? {
            continue;
        }
        drop(file);
        fs::rename(&fresh, &path).context("rename")?;
        ensure!(fs::read(&path).context("read")? == content, "a replaced file has other content");
        shared.step();
    }
    Ok(())
}

/// Names come and go: none of it may fail, or happen twice.
fn names(shared: &Shared, rng: &mut StdRng, number: usize) -> anyhow::Result<()> {
    let folder = shared.folder.join(format!("names{number}"));
    fs::create_dir(&folder).context("mkdir")?;
    let mut count = 0;
    while shared.goes_on() {
        count += 1;
        let name = |kind: &str| folder.join(format!("{kind}{count}"));
        fs::create_dir(name("dir")).context("mkdir")?;
        let file = File::options().write(true).create_new(true).open(name("file")).context("create")?;
        fs::hard_link(name("file"), name("link")).context("link")?;
        ensure!(file.metadata().context("fstat")?.nlink() == 2, "a link counts not once");
        std::os::unix::fs::symlink("file", name("symlink")).context("symlink")?;
        fs::rename(name("link"), name("dir").join("moved")).context("rename")?;
        if rng.random() {
            fs::remove_file(name("symlink")).context("unlink")?;
        }
        fs::remove_file(name("file")).context("unlink")?;
        fs::remove_file(name("dir").join("moved")).context("unlink")?;
        ensure!(file.metadata().context("fstat")?.nlink() == 0, "a removed file has a link");
        fs::remove_dir(name("dir")).context("rmdir")?;
        shared.step();
    }
    for entry in fs::read_dir(&folder).context("readdir")? {
        let name = entry?.file_name();
        ensure!(name.to_string_lossy().starts_with("symlink"), "{} is left", name.display());
    }
    Ok(())
}

/// Takes a lock, waiting for it: nobody else may have it then.
fn take_turns(shared: &Shared, _: &mut StdRng, _: usize) -> anyhow::Result<()> {
    let file = File::options().read(true).write(true).open(shared.folder.join("turns")).context("open")?;
    while shared.goes_on() {
        rustix::fs::flock(&file, FlockOperation::LockExclusive).context("flock")?;
        ensure!(!shared.inside.swap(true, Ordering::SeqCst), "two have one lock");
        thread::yield_now();
        shared.inside.store(false, Ordering::SeqCst);
        rustix::fs::flock(&file, FlockOperation::Unlock).context("unlock")?;
        shared.step();
    }
    Ok(())
}

/// Has a process change a mapped file.
fn map(shared: &Shared, _: &mut StdRng, number: usize) -> anyhow::Result<()> {
    let path = shared.folder.join(format!("mapped{number}"));
    let file = File::create(&path).context("create")?;
    file.set_len((PAGES * PAGE) as u64).context("truncate")?;
    file.sync_all().context("fsync")?;
    let mut mapper = Command::new("python3")
        .args(["-c", MAPPER])
        .arg(&path)
        .arg(PAGES.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("python3 is needed")?;
    let done = drive(shared, &mut mapper, &path);
    drop(mapper.stdin.take());
    if done.is_err() {
        let _ = mapper.kill();
    }
    mapper.wait()?;
    done
}

fn drive(shared: &Shared, mapper: &mut Child, path: &Path) -> anyhow::Result<()> {
    let mut orders = mapper.stdin.take().context("no pipe")?;
    let mut answers = io::BufReader::new(mapper.stdout.take().context("no pipe")?);
    let mut stored = [0_u64; PAGES];
    let mut step = 0_u64;
    while shared.goes_on() {
        step += 1;
        orders.write_all(b"\n")?;
        let mut line = String::new();
        io::BufRead::read_line(&mut answers, &mut line)?;
        let page = step as usize % PAGES;
        match line.trim() {
            "stored" => stored[page] = step,
            "failed 5" if shared.may_lose => {
                shared.errors.fetch_add(1, Ordering::SeqCst);
                // It may have been stored all the same.
                stored[page] = 0;
            }
            other => anyhow::bail!("a mapped file: {other}"),
        }
        shared.step();
    }
    drop(orders);
    let mut content = Vec::new();
    File::open(path)?.read_to_end(&mut content)?;
    for (page, step) in stored.iter().enumerate().filter(|(_, step)| **step > 0) {
        let expected = step.to_le_bytes().repeat(PAGE / 8);
        ensure!(
            content[page * PAGE..][..PAGE] == expected,
            "page {page} of a mapped file is not that of step {step}"
        );
    }
    Ok(())
}
