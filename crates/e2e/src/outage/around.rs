//! A program of others works on a volume while its Redis and its object store go away and come
//! back. The program itself checks that it sees a delay only, and works until a file exists.

use super::check::report;
use crate::rig::{Volume, until};
use anyhow::{Context, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use sluice_testkit::server::{
    Redis, RedisOptions,
    s3::{ACCESS_KEY, BUCKET, Fault, S3, SECRET_KEY},
};
use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command},
    time::{Duration, Instant},
};
use tokio::runtime::Runtime;

/// How long a server is away. A session of a client with heartbeats each second expires earlier.
const AWAY: Duration = Duration::from_secs(10);
/// How long the program may take to begin, to go on after an outage, and to end.
const TIMEOUT: Duration = Duration::from_mins(4);
/// Requests to the object store that show that the program works: some for each of its threads.
const REQUESTS: u64 = 400;

/// What runs, and where.
#[derive(Debug, Clone)]
pub struct Around {
    /// The program that formats, mounts and checks.
    pub program: PathBuf,
    /// A folder to work in.
    pub within: PathBuf,
    /// Flags of `format`.
    pub format: Vec<String>,
    /// The command. `{meta}` is replaced by the URL of the metadata, `{mnt}` by a mount, and
    /// `{until}` by the file that exists once the program may end.
    pub command: Vec<String>,
}

/// The servers of the volume.
struct Servers {
    redis: Redis,
    s3: S3,
    failed: u64,
}

/// The program at work, with all processes that it starts.
struct Work {
    process: Child,
    until: PathBuf,
}

/// Runs the program around all outages.
///
/// # Errors
/// The program failed or did not go on, or `fsck` found something.
pub fn around(plan: &Around) -> anyhow::Result<()> {
    let runtime = Runtime::new()?;
    let s3 = runtime.block_on(S3::start());
    let redis = Redis::start(RedisOptions { durable: true, ..RedisOptions::default() })?;
    let (bucket, meta) = (s3.url(BUCKET), redis.url(1));
    let keys = ["--access-key", ACCESS_KEY, "--secret-key", SECRET_KEY];
    let flags: Vec<&str> = plan.format.iter().map(String::as_str).collect();
    let options = [&["--storage", "s3", "--bucket", &bucket], &keys[..], &flags[..]].concat();
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &options)?;
    let mut servers = Servers { redis, s3, failed: 0 };
    let done = worked(plan, &mut volume, &mut servers);
    // What waits for the servers ends only then.
    let _ = servers.stopped(false);
    servers.s3.heal();
    report(&volume, done)
}

fn worked(plan: &Around, volume: &mut Volume, servers: &mut Servers) -> anyhow::Result<()> {
    let mut work = Work::start(plan, volume)?;
    servers.serve(&mut work)?;
    servers.outages(&mut work)?;
    work.end()?;
    ensure!(servers.failed > 0, "no request failed");
    println!("{} requests to the object store failed", servers.failed);
    volume.unmount()?;
    volume.fsck()
}

impl Work {
    fn start(plan: &Around, volume: &mut Volume) -> anyhow::Result<Self> {
        let until = volume.path("until");
        let mut words = plan.command.clone();
        let mut replace = |place: &str, by: &str| {
            for word in &mut words {
                *word = word.replace(place, by);
            }
        };
        replace("{meta}", &volume.meta);
        replace("{until}", &until.to_string_lossy());
        if plan.command.iter().any(|word| word.contains("{mnt}")) {
            replace("{mnt}", &volume.mount(&[])?.to_string_lossy());
        }
        let (first, rest) = words.split_first().context("no command")?;
        let process = Command::new(first)
            .args(rest)
            .process_group(0)
            .spawn()
            .with_context(|| format!("cannot run {first}"))?;
        Ok(Self { process, until })
    }

    /// Waits for `condition` while the program works.
    fn until(&mut self, what: &str, mut condition: impl FnMut() -> bool) -> anyhow::Result<()> {
        let mut ended = None;
        until(what, TIMEOUT, || {
            ended = self.process.try_wait().ok().flatten();
            ended.is_some() || condition()
        })?;
        ensure!(ended.is_none(), "{what}: the program ended before, {ended:?}");
        Ok(())
    }

    /// Lets the program end.
    fn end(mut self) -> anyhow::Result<()> {
        fs::write(&self.until, "")?;
        let mut ended = None;
        until("the program to end", TIMEOUT, || {
            ended = self.process.try_wait().ok().flatten();
            ended.is_some()
        })?;
        ensure!(ended.is_some_and(|status| status.success()), "the program ended with {ended:?}");
        Ok(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
            let _ = self.process.wait();
        }
    }
}

impl Servers {
    /// Each server goes away in each way, then both go at once.
    fn outages(&mut self, work: &mut Work) -> anyhow::Result<()> {
        for fault in [Fault::Status(503), Fault::Refuse, Fault::LoseAnswer] {
            self.break_store(work, fault)?;
            away(work)?;
            self.s3.heal();
            self.serve(work).with_context(|| format!("after the store: {fault:?}"))?;
        }
        self.stopped(true)?;
        away(work)?;
        self.stopped(false)?;
        self.serve(work).context("after Redis was stopped")?;

        self.redis.kill();
        away(work)?;
        self.redis.restart()?;
        self.serve(work).context("after Redis was killed")?;

        self.break_store(work, Fault::Status(500))?;
        self.redis.kill();
        away(work)?;
        self.redis.restart()?;
        away(work)?;
        self.s3.heal();
        self.serve(work).context("after both were away")
    }

    /// Waits until the store answers the program.
    fn serve(&self, work: &mut Work) -> anyhow::Result<()> {
        let wanted = self.s3.requests() + REQUESTS;
        work.until("the program to go on", || self.s3.requests() >= wanted)
    }

    /// Breaks the store, and waits until the program has met it.
    fn break_store(&mut self, work: &mut Work, fault: Fault) -> anyhow::Result<()> {
        let before = self.s3.broken();
        self.s3.break_all(fault);
        work.until("requests to fail", || self.s3.broken() > before)?;
        self.failed = self.s3.broken();
        Ok(())
    }

    fn stopped(&self, stopped: bool) -> anyhow::Result<()> {
        let pid = self.redis.pid().and_then(|pid| Pid::from_raw(pid as i32)).context("Redis does not run")?;
        Ok(kill_process(pid, if stopped { Signal::STOP } else { Signal::CONT })?)
    }
}

/// Waits while a server is away.
fn away(work: &mut Work) -> anyhow::Result<()> {
    let begin = Instant::now();
    work.until("the outage to last", || begin.elapsed() >= AWAY)
}
