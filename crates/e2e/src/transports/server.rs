//! A file system in memory, served by a process of its own.

use super::plan::{Plan, Work};
use crate::rig;
use anyhow::{Context, ensure};
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use tempfile::TempDir;

/// A mounted file system that ends with this.
pub(super) struct Server {
    process: Child,
    point: PathBuf,
    folder: TempDir,
}

/// Two file systems over one transport.
pub(super) struct Pair {
    /// Each look at a file is a request.
    forgetful: Server,
    /// Attributes stay known.
    usual: Server,
}

impl Pair {
    pub(super) fn for_work(&self, work: Work) -> &Server {
        if work == Work::Stat { &self.forgetful } else { &self.usual }
    }
}

impl Server {
    /// Two of them, with these options of `-o`.
    pub(super) fn pair(plan: &Plan, options: &str) -> anyhow::Result<Pair> {
        let server = |ttl| Self::new(&plan.memfs, &plan.within, options, ttl);
        Ok(Pair { forgetful: server("0")?, usual: server("3600")? })
    }

    fn new(program: &Path, within: &Path, options: &str, ttl: &str) -> anyhow::Result<Self> {
        fs::create_dir_all(within)?;
        let folder = tempfile::Builder::new().prefix("memfs-").tempdir_in(within)?;
        let point = folder.path().join("mnt");
        fs::create_dir(&point)?;
        let log = fs::File::create(folder.path().join("log"))?;
        let process = Command::new(program)
            .arg(&point)
            .args((!options.is_empty()).then_some(options))
            .env("ATTR_TTL", ttl)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let mut server = Self { process, point, folder };
        let mut died = false;
        rig::until("the file system in memory", Duration::from_secs(20), || {
            died = server.process.try_wait().ok().flatten().is_some();
            died || rig::mounted(&server.point)
        })?;
        ensure!(!died, "{} ended at once", program.display());
        if options.contains("io_uring") {
            let log = server.folder.path().join("log");
            let mut said = String::new();
            rig::until("the file system says which transport it has", Duration::from_secs(20), || {
                said = fs::read_to_string(&log).unwrap_or_default();
                said.contains("come through io_uring")
            })?;
            ensure!(
                said.contains("requests come through"),
                "it has not the transport that it should:\n{said}"
            );
        }
        fs::metadata(&server.point).context("the file system does not answer")?;
        Ok(server)
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// Time of the processor that it has used, in nanoseconds.
    pub(super) fn used(&self) -> anyhow::Result<u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.process.id()))?;
        Ok(tasks.flatten().map(|task| used(&task.path())).sum())
    }
}

/// Time of the processor that a thread has used, in nanoseconds: `task` is its directory in
/// `/proc`.
pub(super) fn used(task: &Path) -> u64 {
    let text = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.point).stderr(Stdio::null()).status();
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
