//! The same clients on real mounts: Sluice with a cache node, and JuiceFS, which has no group.
//!
//! What must stay true: both programs mount the same volume with their defaults and empty caches,
//! and the same program reads the same bytes in the same order.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use super::{
    crowd::{self, Outcome},
    data_set::DataSet,
    farm::{Farm, FarmArgs},
    mount::Directory,
    work::{Visitor, Work},
};

/// JuiceFS and the object store do not encrypt either.
const GROUP: [&str; 3] = ["--cache-group", "farm", "--group-plaintext"];
/// Longest wait for a mount to be there, or gone.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Compares real mounts with JuiceFS. Needs root.
#[derive(Args)]
pub(crate) struct Beside {
    /// The program `sluice`
    #[arg(long)]
    sluice: PathBuf,
    /// The program `juicefs`; without it, Sluice alone is measured
    #[arg(long)]
    juicefs: Option<PathBuf>,
    /// Mounts of each program, one client on each
    #[arg(long, default_value_t = 20)]
    mounts: usize,
    #[command(flatten)]
    farm: FarmArgs,
    #[command(flatten)]
    work: Work,
}

/// A mount, until this is dropped.
struct Mounted {
    point: PathBuf,
}

impl Beside {
    pub(crate) fn run(&self) -> Result<()> {
        let set = DataSet::new(self.work.scale);
        let mut farm = Farm::start(&self.farm, &set)?;
        let files = self.work.files(self.mounts, &set);
        println!(
            "{} files of {:.0} MB; {} mounts, {files} files each",
            set.files(),
            set.bytes() as f64 / 1e6,
            self.mounts
        );
        println!("| | completion, s: mean | longest | bytes from the object store, MB | requests to it |");
        println!("|---|---|---|---|---|");
        let sluice = self.measure(&mut farm, &set, "Sluice", |farm, name| self.sluice(farm, name))?;
        let Some(program) = &self.juicefs else { return Ok(()) };
        let juicefs = self.measure(&mut farm, &set, "JuiceFS", |farm, name| juicefs(program, farm, name))?;
        println!("| JuiceFS / Sluice | | {:.1} | {:.1} | |", juicefs.0 / sluice.0, juicefs.1 / sluice.1);
        Ok(())
    }

    /// The longest completion, and bytes from the object store.
    fn measure(
        &self,
        farm: &mut Farm,
        set: &DataSet,
        program: &str,
        mount: impl Fn(&Farm, &str) -> Result<Mounted>,
    ) -> Result<(f64, f64)> {
        let mut mounted = Vec::new();
        if program == "Sluice" {
            mounted.push(self.cache_node(farm)?);
        }
        let first = mounted.len();
        for number in 0..self.mounts {
            mounted.push(mount(farm, &format!("{program}{number}"))?);
        }
        let visitor = |(number, mounted): (usize, &Mounted)| {
            Visitor::new(Directory::new(mounted.point.clone()), number, self.mounts, &self.work, set)
        };
        let visitors: Vec<_> = mounted[first..].iter().enumerate().map(visitor).collect();
        let before = farm.counts()?;
        let (Outcome { completions, failed, messages, .. }, _) =
            crowd::run(visitors, self.mounts, &self.work, set);
        let after = farm.counts()?;
        ensure!(failed == 0, "{failed} clients on {program} failed: {messages:?}");
        let longest = completions.iter().copied().fold(0.0, f64::max);
        let mean = completions.iter().sum::<f64>() / completions.len().max(1) as f64;
        let bytes = (after.get_bytes - before.get_bytes) as f64 / 1e6;
        println!("| {program} | {mean:.1} | {longest:.1} | {bytes:.0} | {} |", after.gets - before.gets);
        Ok((longest, bytes))
    }

    fn cache_node(&self, farm: &Farm) -> Result<Mounted> {
        let cache = farm.dir().join("cache-of-node").display().to_string();
        let flags = ["--group-ip", "127.0.0.1", "--free-space-ratio", "0.01", "--cache-dir", &cache];
        mount(&self.sluice, farm, "node", &[&GROUP[..], &flags].concat())
    }

    fn sluice(&self, farm: &Farm, name: &str) -> Result<Mounted> {
        let flags = ["--no-sharing", "--cache-size", "0", "--no-bgjob"];
        mount(&self.sluice, farm, name, &[&GROUP[..], &flags].concat())
    }
}

fn juicefs(program: &Path, farm: &Farm, name: &str) -> Result<Mounted> {
    let cache = farm.dir().join(format!("cache-of-{name}")).display().to_string();
    let flags = ["--no-usage-report", "--backup-meta", "0", "--no-bgjob", "--free-space-ratio", "0.01"];
    mount(program, farm, name, &[&flags[..], &["--cache-dir", &cache]].concat())
}

fn mount(program: &Path, farm: &Farm, name: &str, flags: &[&str]) -> Result<Mounted> {
    let point = farm.dir().join(name);
    std::fs::create_dir_all(&point)?;
    let log = farm.dir().join(format!("log-of-{name}"));
    let mut command = Command::new(program);
    command.args(["mount", "-d", &farm.url]).arg(&point).args(flags).arg("--log").arg(&log);
    let output = command.stdin(Stdio::null()).output()?;
    let said = || String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{} cannot mount: {}", program.display(), said());
    let until = Instant::now() + TIMEOUT;
    while !is_mounted(&point) {
        ensure!(Instant::now() < until, "{} does not mount: {}", program.display(), said());
        std::thread::yield_now();
    }
    Ok(Mounted { point })
}

fn is_mounted(point: &Path) -> bool {
    let wanted = point.to_str().unwrap_or_default();
    std::fs::read_to_string("/proc/self/mountinfo")
        .is_ok_and(|text| text.lines().any(|line| line.split(' ').nth(4) == Some(wanted)))
}

impl Mounted {
    fn end(&self) -> Result<()> {
        let status = Command::new("umount").arg(&self.point).stderr(Stdio::null()).status();
        status.context("umount")?.success().then_some(()).context("it is in use")
    }
}

impl Drop for Mounted {
    /// A mount that is in use a moment longer is taken away from the others at least.
    fn drop(&mut self) {
        if self.end().is_err() {
            let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        }
    }
}
