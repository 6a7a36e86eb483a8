//! A mount with a client cache, and its kernel, see the changes of another mount at once, although
//! both may cache everything for half a minute. Repeated lookups send no request to the server.

use crate::rig::{Engine, Volume, until};
use anyhow::{Context, ensure};
use std::{
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

/// What to do it on.
#[derive(Debug)]
pub struct Plan {
    /// The program.
    pub program: PathBuf,
    /// Where the metadata is.
    pub engine: Engine,
    /// Where volumes are made.
    pub within: PathBuf,
    /// Changes of each kind.
    pub rounds: usize,
}

/// Longer than anything here takes that is not forgotten.
const BELIEVED: [&str; 6] = ["--attr-cache", "30", "--entry-cache", "30", "--dir-entry-cache", "30"];
const NOT_BELIEVED: [&str; 6] = ["--attr-cache", "0", "--entry-cache", "0", "--dir-entry-cache", "0"];
/// A change that takes so long to be seen was not told.
const UNNOTICED: Duration = Duration::from_secs(10);
const CACHE: &str = "client-cache=true";
/// Changes of each kind by a program that tells nothing.
const ROUNDS_BESIDE: usize = 20;
/// Looks one name up.
const LOOKS: usize = 5000;

/// # Errors
/// What was not seen, or not in time, or what asked the server although nothing had changed.
pub fn run(plan: &Plan) -> anyhow::Result<()> {
    changes(plan)?;
    match plan.engine {
        Engine::Redis | Engine::Postgres | Engine::Mariadb => looks(plan),
        // Nothing counts what they are asked.
        Engine::Sqlite | Engine::Tikv | Engine::Etcd | Engine::RedisCluster | Engine::RedisSentinel => Ok(()),
    }
}

/// How soon a change must usually be seen: where there are messages, and where numbers are
/// compared.
fn bar(engine: Engine) -> Duration {
    match engine {
        Engine::Redis | Engine::RedisCluster | Engine::RedisSentinel | Engine::Postgres | Engine::Etcd => {
            Duration::from_millis(100)
        }
        Engine::Sqlite | Engine::Mariadb | Engine::Tikv => Duration::from_secs(1),
    }
}

/// Changes through one mount, watched through the other.
fn changes(plan: &Plan) -> anyhow::Result<()> {
    let mut volume = Volume::new(&plan.program, plan.engine, &plan.within, &[])?;
    volume.add_option(CACHE);
    let (here, there) = (volume.mount(&BELIEVED)?, volume.mount(&BELIEVED)?);
    all_seen([&here, &there], plan.rounds, bar(plan.engine))?;
    volume.unmount()
}

/// The same with changes by `other`, which tells nothing, on an engine that sees them by itself.
///
/// # Errors
/// What was not seen, or not in time.
pub fn by_another(program: &Path, other: &Path, engine: Engine, within: &Path) -> anyhow::Result<()> {
    let mut volume = Volume::new(program, engine, within, &[])?;
    let here = volume.mount_by(other, &[])?;
    volume.add_option(CACHE);
    let there = volume.mount(&BELIEVED)?;
    let seen = all_seen([&here, &there], ROUNDS_BESIDE, bar(engine));
    seen.with_context(|| format!("the mounts said:\n{}", volume.log()))?;
    volume.unmount()
}

/// Changes in one mount, watched in the other.
fn all_seen([here, there]: [&Path; 2], rounds: usize, bar: Duration) -> anyhow::Result<()> {
    fs::create_dir(here.join("d"))?;
    let (here, there) = (here.join("d"), there.join("d"));
    until("the directory", UNNOTICED, || there.exists())?;
    let mut delays = [const { Vec::new() }; 4];
    for round in 0..rounds {
        let (name, other) = (format!("f{round}"), format!("g{round}"));
        ensure!(!there.join(&name).exists(), "{name} is there before it was made");
        fs::write(here.join(&name), "first")?;
        delays[0].push(seen("a new name", || there.join(&name).exists())?);

        let mode = |path: &Path| fs::metadata(path).map(|found| found.mode() & 0o777).ok();
        ensure!(mode(&there.join(&name)) == Some(0o644), "{name} was made with another mode");
        fs::set_permissions(here.join(&name), Permissions::from_mode(0o600))?;
        delays[1].push(seen("a mode", || mode(&there.join(&name)) == Some(0o600))?);

        ensure!(!there.join(&other).exists(), "{other} is there before it was made");
        fs::rename(here.join(&name), here.join(&other))?;
        delays[2].push(seen("a rename", || there.join(&other).exists() && !there.join(&name).exists())?);

        // An open waits for nobody's message.
        ensure!(fs::read(there.join(&other))? == b"first", "{other} has other content");
        fs::write(here.join(&other), format!("second {round}"))?;
        let read = fs::read_to_string(there.join(&other))?;
        ensure!(read == format!("second {round}"), "an open after the close saw {read:?}");

        fs::remove_file(here.join(&other))?;
        delays[3].push(seen("an unlink", || !there.join(&other).exists())?);
    }
    for (what, mut delays) in ["new names", "modes", "renames", "unlinks"].into_iter().zip(delays) {
        delays.sort_unstable();
        let (middle, worst) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        println!("{what}: seen after {middle:.1?}, at worst {worst:.1?}");
        ensure!(middle <= bar, "{what} are seen after {middle:?} only");
    }
    Ok(())
}

/// How long it takes to be seen.
fn seen(what: &str, mut now: impl FnMut() -> bool) -> anyhow::Result<Duration> {
    let changed = Instant::now();
    while !now() {
        ensure!(changed.elapsed() < UNNOTICED, "{what} was not seen within {UNNOTICED:?}");
        std::thread::yield_now();
    }
    Ok(changed.elapsed())
}

/// Looks that the kernel passes on, none of which may reach the server.
fn looks(plan: &Plan) -> anyhow::Result<()> {
    let mut volume = Volume::behind_proxy(&plan.program, plan.engine, &plan.within, &[])?;
    volume.add_option(CACHE);
    let file = volume.mount(&NOT_BELIEVED)?.join("file");
    fs::write(&file, "content")?;
    // A mount that has just begun looks what is to be cleaned up, and asks the server until it
    // hears what others change.
    let look = |times: usize| -> anyhow::Result<u64> {
        let before = volume.proxy()?.requests();
        (0..times).try_for_each(|_| fs::metadata(&file).map(drop)).context("stat")?;
        Ok(volume.proxy()?.requests() - before)
    };
    until("looks that ask nothing", UNNOTICED, || look(100).is_ok_and(|asked| asked == 0))?;
    let began = Instant::now();
    let asked = look(LOOKS)?;
    let took = began.elapsed();
    println!("{LOOKS} looks: {asked} requests in {took:.1?}");
    // Numbers are compared, and the session's heart beats.
    let besides = 50 + 20 * took.as_secs();
    ensure!(asked <= besides, "{LOOKS} looks at one file asked the server {asked} times in {took:?}");
    volume.unmount()
}
