//! The engine takes no commit for three times as long as a session lives: Redis is stopped,
//! PostgreSQL refuses to write.
//!
//! What must stay true: no client is fenced, because no client could send a heartbeat. Locks stay
//! held, and files that were removed while they were open still exist.

use super::{
    Plan,
    check::{check, report},
    work::Crew,
};
use crate::rig::{Engine, Volume, until};
use anyhow::{Context, bail, ensure};
use rustix::{
    fs::{FlockOperation, flock},
    process::{Pid, Signal, kill_process},
};
use sluice_testkit::server::{Postgres, PostgresOptions, Redis, RedisOptions};
use std::{
    fs::{self, File},
    io::Write,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    time::Duration,
};

/// Both mounts show that they live once a second: who does not for five counts as dead.
const HEARTBEAT: [&str; 2] = ["--heartbeat", "1s"];
/// Three lives of a session.
const AWAY: Duration = Duration::from_secs(15);
/// How long sessions are looked at afterwards: whoever buries others does so within two heartbeats
/// and a life.
const AFTERWARDS: Duration = Duration::from_secs(7);
const TIMEOUT: Duration = Duration::from_mins(1);

/// A server that can be told to take no commit.
enum Server {
    Redis(Redis),
    Postgres(Postgres),
}

impl Server {
    fn start(engine: Engine) -> anyhow::Result<(Self, String)> {
        match engine {
            Engine::Redis => {
                let redis = Redis::start(RedisOptions { durable: true, ..RedisOptions::default() })?;
                let meta = redis.url(1);
                Ok((Self::Redis(redis), meta))
            }
            Engine::Postgres => {
                let postgres =
                    Postgres::start(&PostgresOptions { durable: true, ..PostgresOptions::default() })?;
                let meta = postgres.url(&postgres.database()?);
                Ok((Self::Postgres(postgres), meta))
            }
            other => bail!("no way to have {other:?} refuse commits"),
        }
    }

    /// No process is started for it: one closes the files of this one, and closing those of a mount
    /// waits for the engine.
    fn takes_commits(&self, on: bool) -> anyhow::Result<()> {
        match self {
            Self::Redis(redis) => Ok(redis.freeze(!on)?),
            Self::Postgres(postgres) => {
                let settings = postgres.dir().join("data/postgresql.auto.conf");
                let refuse = if on { "off" } else { "on" };
                let line = format!("default_transaction_read_only = {refuse}\n");
                File::options().append(true).open(settings)?.write_all(line.as_bytes())?;
                let pid = postgres.pid().and_then(|pid| Pid::from_raw(pid as i32));
                Ok(kill_process(pid.context("the server does not run")?, Signal::HUP)?)
            }
        }
    }
}

pub(super) fn run(plan: &Plan) -> anyhow::Result<()> {
    let (server, meta) = Server::start(plan.engine)?;
    let mut volume = Volume::at(&plan.program, &meta, &plan.within, &[])?;
    let done = away(plan, &mut volume, &server);
    // What waits for the server ends only then.
    let _ = server.takes_commits(true);
    report(&volume, done)
}

fn away(plan: &Plan, volume: &mut Volume, server: &Server) -> anyhow::Result<()> {
    let points = [volume.mount(&HEARTBEAT)?, volume.mount(&HEARTBEAT)?];
    let mut crew = Crew::start(&points, plan.writers, plan.seed)?;
    crew.more(100)?;
    let holders: Vec<Holder> = points.iter().enumerate().map(Holder::start).collect::<anyhow::Result<_>>()?;
    let before = sessions(volume)?;
    ensure!(before.len() == 2, "both mounts have sessions: {before:?}");

    server.takes_commits(false)?;
    let waited = crew.stuck(AWAY);
    // Before files are closed, which waits for the engine.
    server.takes_commits(true)?;
    waited?;
    crew.everybody().context("after the engine came back")?;

    let mut seen = Ok(());
    let begin = std::time::Instant::now();
    crew.until("a while to pass", || {
        seen = sessions(volume).and_then(|now| {
            ensure!(now == before, "sessions were {before:?} and are {now:?}");
            Ok(())
        });
        seen.is_err() || begin.elapsed() > AFTERWARDS
    })?;
    seen?;
    for (number, holder) in holders.iter().enumerate() {
        holder.holds(&points[1 - number]).with_context(|| format!("of mount {number}"))?;
    }
    for (number, holder) in holders.into_iter().enumerate() {
        holder.end(&points[1 - number]).with_context(|| format!("of mount {number}"))?;
    }
    crew.more(100)?;
    let outcome = crew.end()?;
    ensure!(outcome.longest >= AWAY, "nobody noticed that the engine was away");
    let meta = volume.meta.clone();
    check(volume, meta, &outcome)
}

/// What a program in one mount has: a lock on a file, and a file without a name.
struct Holder {
    name: String,
    locked: File,
    removed: File,
}

impl Holder {
    fn start((number, point): (usize, &PathBuf)) -> anyhow::Result<Self> {
        let name = format!("locked{number}");
        let open = File::options().create(true).append(true).read(true).clone();
        let mut locked = open.open(point.join(&name))?;
        flock(&locked, FlockOperation::NonBlockingLockExclusive)?;
        locked.write_all(b"before")?;
        locked.sync_all()?;
        let path = point.join(format!("removed{number}"));
        let mut removed = open.open(&path)?;
        removed.write_all(b"still here")?;
        removed.sync_all()?;
        fs::remove_file(&path)?;
        Ok(Self { name, locked, removed })
    }

    /// Nobody at `elsewhere` gets the lock, and the removed file is what it was.
    fn holds(&self, elsewhere: &Path) -> anyhow::Result<()> {
        let other = File::open(elsewhere.join(&self.name))?;
        ensure!(flock(&other, FlockOperation::NonBlockingLockShared).is_err(), "two mounts hold one lock");
        let mut seen = [0; 10];
        self.removed.read_exact_at(&mut seen, 0).context("a removed file that is open")?;
        ensure!(&seen == b"still here", "a removed file holds {:?}", String::from_utf8_lossy(&seen));
        ensure!(self.removed.metadata()?.nlink() == 0, "a removed file has a name");
        Ok(())
    }

    /// Writes go on under the lock, which others get once it is let go.
    fn end(self, elsewhere: &Path) -> anyhow::Result<()> {
        let Self { name, mut locked, mut removed } = self;
        locked.write_all(b" and after").and_then(|()| locked.sync_all()).context("under the lock")?;
        removed.write_all(b" and more").and_then(|()| removed.sync_all()).context("a removed file")?;
        drop((locked, removed));
        let other = File::open(elsewhere.join(&name))?;
        until("the lock to be free", TIMEOUT, || {
            flock(&other, FlockOperation::NonBlockingLockExclusive).is_ok()
        })?;
        let text = fs::read_to_string(elsewhere.join(&name))?;
        ensure!(text == "before and after", "the locked file holds {text:?}");
        Ok(())
    }
}

/// The numbers of all sessions, in order.
fn sessions(volume: &Volume) -> anyhow::Result<Vec<String>> {
    let status = volume.command(&["status", &volume.meta])?;
    let mut sids: Vec<String> =
        status.lines().filter(|line| line.contains("\"Sid\"")).map(|line| line.trim().to_owned()).collect();
    sids.sort();
    Ok(sids)
}
