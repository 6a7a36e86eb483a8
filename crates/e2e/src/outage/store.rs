//! The object store answers errors.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::{
    pattern,
    rig::{Volume, mounted, until},
};
use anyhow::{Context, bail, ensure};
use rustix::fs::Advice;
use sluice_testkit::server::s3::{ACCESS_KEY, BUCKET, Fault, S3, SECRET_KEY};
use std::{
    fs::{self, File},
    io::Write as _,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// How long the store answers nothing but errors.
const OUTAGE: Duration = Duration::from_secs(30);
/// Readers of each mount. Each reads a block that its mount has never read before.
const READERS: u64 = 400;
/// Files that the readers of a mount share.
const FILES: u64 = 20;
/// Bytes of a block.
const BLOCK: usize = 64 << 10;
/// Options of a mount for each transport of FUSE. A kernel without rings has only the first.
const TRANSPORTS: [&[&str]; 2] = [&[], &["-o", "io_uring"]];

/// Breaks the store under those who write and fsync in one mount, and under hundreds of readers in
/// each of the other mounts, of which half are unmounted meanwhile.
pub(super) fn errors(plan: &Plan) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let s3 = runtime.block_on(S3::start());
    let folder = tempfile::tempdir_in(fs::create_dir_all(&plan.within).map(|()| &plan.within)?)?;
    let meta = format!("sqlite3://{}", folder.path().join("meta.db").display());
    let bucket = s3.url(BUCKET);
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let options = [&["--storage", "s3", "--bucket", &bucket, "--block-size", "64"], &keys[..]].concat();
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &options)?;
    let done = broken(plan, &mut volume, &s3);
    report(&volume, done)
}

fn broken(plan: &Plan, volume: &mut Volume, s3: &S3) -> anyhow::Result<()> {
    let point = volume.mount(&[])?;
    Readers::prepare(&point, plan.seed)?;
    let mut mounts = || TRANSPORTS.iter().map(|options| volume.mount(options)).collect::<Result<Vec<_>, _>>();
    // They have read nothing yet.
    let (staying, leaving) = (mounts()?, mounts()?);
    let unmounts = leaving.iter().map(|point| Unmount::prepare(&plan.program, point));
    let unmounts = unmounts.collect::<Result<Vec<_>, _>>()?;
    let mut crew = Crew::start(&[point], plan.writers, plan.seed)?;
    crew.more(50)?;

    let begun = Instant::now();
    s3.break_all(Fault::Status(500));
    let started = staying.iter().chain(&leaving).map(|point| Readers::start(point, plan.seed));
    let readers = started.collect::<Result<Vec<_>, _>>()?;
    crew.until("all to meet the errors", || s3.broken() >= READERS)?;
    crew.stuck(Duration::from_secs(1))?;
    for point in &staying {
        // Those who wait for data do not keep others from names.
        let names = fs::read_dir(point.join(Readers::FOLDER))?.count();
        ensure!(names == FILES as usize, "{names} names are in {}", point.display());
    }
    for (unmount, point) in unmounts.into_iter().zip(&leaving) {
        unmount.run(point)?;
    }
    let early = || readers.iter().any(Readers::any_ended);
    crew.until("the outage to last", || begun.elapsed() >= OUTAGE || early())?;
    ensure!(!early(), "somebody read what nobody could give");
    s3.heal();
    readers.into_iter().try_for_each(Readers::end)?;
    for _ in &leaving {
        volume.vanish(false)?;
    }
    crew.more(50)?;
    let resumed = begun.elapsed().saturating_sub(OUTAGE);
    println!("{} requests failed; all went on within {resumed:?}", s3.broken());

    for (round, fault) in [Fault::LoseAnswer, Fault::Refuse, Fault::Status(503)].into_iter().enumerate() {
        let before = s3.broken();
        s3.break_all(fault);
        crew.until("requests to fail", || s3.broken() > before + 20)?;
        s3.heal();
        crew.more(20).with_context(|| format!("after short outage {round}"))?;
    }
    let outcome = crew.end()?;
    ensure!(outcome.longest >= OUTAGE / 2, "nobody waited for the store");
    let meta = volume.meta.clone();
    check(volume, meta, &outcome)
}

/// A process that will unmount what readers use. It starts before there are files with data that is
/// not stored: the start of a process closes copies of them, which waits for the store.
struct Unmount(Child);

impl Unmount {
    /// First as usual, which must be refused, and then by force.
    const SCRIPT: &str = r#"read _ && ! "$0" umount "$1" && "$0" umount --force "$1""#;

    fn prepare(program: &Path, point: &Path) -> anyhow::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", Self::SCRIPT]).arg(program).arg(point);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Self(shell.spawn()?))
    }

    fn run(mut self, point: &Path) -> anyhow::Result<()> {
        self.0.stdin.take().context("no pipe")?.write_all(b"\n")?;
        let output = self.0.wait_with_output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success() && said.contains("busy"), "umount: {}: {said}", output.status);
        ensure!(!mounted(point), "{} is still mounted", point.display());
        Ok(())
    }
}

/// Threads of one mount that each read a block.
struct Readers(Vec<JoinHandle<anyhow::Result<()>>>);

impl Readers {
    const FOLDER: &str = "old";

    fn path(point: &Path, file: u64) -> PathBuf {
        point.join(Self::FOLDER).join(format!("f{file}"))
    }

    fn content(seed: u64, file: u64) -> Vec<u8> {
        pattern::bytes(seed ^ file << 32, BLOCK * (READERS / FILES) as usize)
    }

    /// Writes what they will read.
    fn prepare(point: &Path, seed: u64) -> anyhow::Result<()> {
        fs::create_dir(point.join(Self::FOLDER))?;
        (0..FILES).try_for_each(|file| Ok(fs::write(Self::path(point, file), Self::content(seed, file))?))
    }

    fn start(point: &Path, seed: u64) -> anyhow::Result<Self> {
        let mut threads = Vec::new();
        for number in 0..FILES {
            let file = File::open(Self::path(point, number))?;
            // A request for each reader: the kernel does not read for others.
            rustix::fs::fadvise(&file, 0, None, Advice::Random)?;
            let (file, content) = (Arc::new(file), Self::content(seed, number));
            for (block, wanted) in content.chunks(BLOCK).enumerate() {
                let (file, wanted) = (Arc::clone(&file), wanted.to_vec());
                threads.push(thread::spawn(move || read(&file, block, &wanted)));
            }
        }
        Ok(Self(threads))
    }

    fn any_ended(&self) -> bool {
        self.0.iter().any(JoinHandle::is_finished)
    }

    /// Waits until all have read what is right.
    fn end(self) -> anyhow::Result<()> {
        until("the readers to end", super::work::TIMEOUT, || self.0.iter().all(JoinHandle::is_finished))?;
        for reader in self.0 {
            let Ok(read) = reader.join() else { bail!("a reader panicked") };
            read?;
        }
        Ok(())
    }
}

/// Reads a block.
fn read(file: &File, block: usize, wanted: &[u8]) -> anyhow::Result<()> {
    let mut seen = vec![0; wanted.len()];
    file.read_exact_at(&mut seen, (block * BLOCK) as u64).with_context(|| format!("read block {block}"))?;
    ensure!(seen == wanted, "block {block} holds something else");
    Ok(())
}
