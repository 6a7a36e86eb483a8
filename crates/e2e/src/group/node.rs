//! One mount of the group, on a machine of its own.

use crate::rig::{TIMEOUT, command, dead, mounted, take_away, until};
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::{
    ffi::OsString,
    fs::{self, File},
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

/// A mount, or what is left of it.
#[derive(Debug)]
pub(super) struct Node {
    /// What runs the program on its machine.
    enter: Vec<OsString>,
    program: PathBuf,
    meta: String,
    point: PathBuf,
    cache: PathBuf,
    log: PathBuf,
    options: Vec<String>,
    /// Its machine in the network.
    pub(super) machine: usize,
    /// Where it listens.
    pub(super) address: Option<SocketAddr>,
    guardian: Option<Child>,
}

/// Where a node is.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) enter: Vec<OsString>,
    pub(super) machine: usize,
    pub(super) folder: PathBuf,
    pub(super) name: String,
}

impl Node {
    /// A node that is not mounted yet.
    pub(super) fn new(place: Place, program: &Path, meta: &str, options: Vec<String>) -> Self {
        let Place { enter, machine, folder, name } = place;
        Self {
            enter,
            program: program.to_owned(),
            meta: meta.to_owned(),
            point: folder.join(format!("mnt-{name}")),
            cache: folder.join(format!("cache-{name}")),
            log: folder.join("mount.log"),
            options,
            machine,
            address: None,
            guardian: None,
        }
    }

    pub(super) fn point(&self) -> &Path {
        &self.point
    }

    /// The directory of its cache.
    pub(super) fn cache(&self) -> &Path {
        &self.cache
    }

    /// Replaces or adds an option, such as `--group-weight`.
    pub(super) fn set(&mut self, option: &str, value: &str) {
        match self.options.iter().position(|word| word == option) {
            Some(at) => value.clone_into(&mut self.options[at + 1]),
            None => self.options.extend([option.to_owned(), value.to_owned()]),
        }
    }

    /// Whether it is mounted.
    pub(super) fn is_mounted(&self) -> bool {
        self.guardian.is_some()
    }

    fn words(&self) -> Vec<OsString> {
        let mut words = self.enter.clone();
        words.extend([self.program.clone().into(), "mount".into(), "--cache-dir".into()]);
        words.push(self.cache.clone().into());
        words.extend(self.options.iter().map(OsString::from));
        words.extend([OsString::from(&self.meta), self.point.clone().into()]);
        words
    }

    /// Mounts it, with the cache that its directory has.
    ///
    /// # Errors
    /// What the program says.
    pub(super) fn mount(&mut self) -> anyhow::Result<()> {
        if !dead(&self.point) {
            fs::create_dir_all(&self.point)?;
        }
        let words = self.words();
        let (first, rest) = words.split_first().context("no program")?;
        let log = File::options().append(true).create(true).open(&self.log)?;
        let mut guardian = Command::new(first)
            .args(rest)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // So that a crash can take all of it.
            .process_group(0)
            .spawn()?;
        let mut died = None;
        until("the mount", TIMEOUT, || {
            died = guardian.try_wait().ok().flatten();
            died.is_some() || mounted(&self.point) && !dead(&self.point)
        })?;
        if let Some(status) = died {
            bail!("the mount ended with {status}");
        }
        self.guardian = Some(guardian);
        Ok(())
    }

    /// Has a new process take the mount over, with the options as they are now.
    ///
    /// # Errors
    /// What the program says.
    pub(super) fn upgrade(&self) -> anyhow::Result<()> {
        let words = self.words();
        let (first, rest) = words.split_first().context("no program")?;
        let output = Command::new(first).args(rest).stdin(Stdio::null()).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the mount was not upgraded: {said}");
        Ok(())
    }

    /// Unmounts it, as a user does.
    ///
    /// # Errors
    /// When it does not go.
    pub(super) fn unmount(&mut self) -> anyhow::Result<()> {
        let Some(mut guardian) = self.guardian.take() else { return Ok(()) };
        let point = self.point.to_string_lossy().into_owned();
        let gone = command(&self.program, &["umount", &point]);
        if gone.is_err() {
            self.guardian = Some(guardian);
            return gone.map(drop);
        }
        let mut status = None;
        until("the mount's process to end", TIMEOUT, || {
            status = guardian.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(status.is_some_and(|status| status.success()), "the mount ended with {status:?}");
        Ok(())
    }

    /// Kills it without a word: the process that serves, and its guardian.
    pub(super) fn die(&mut self) {
        let Some(mut guardian) = self.guardian.take() else { return };
        let _ = kill_process_group(Pid::from_child(&guardian), Signal::KILL);
        let _ = guardian.wait();
        take_away(&self.point);
    }

    /// The process that serves.
    ///
    /// # Errors
    /// When there is none.
    pub(super) fn server(&self) -> anyhow::Result<Pid> {
        let guardian = self.guardian.as_ref().context("it is not mounted")?.id();
        let mut found = None;
        until("the guardian to have a server", TIMEOUT, || {
            let children = fs::read_to_string(format!("/proc/{guardian}/task/{guardian}/children"));
            found = children.ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
            found.is_some()
        })?;
        found.and_then(Pid::from_raw).context("no server")
    }

    /// Sends a signal to the process that serves.
    pub(super) fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill_process(self.server()?, signal)?)
    }

    /// One of its numbers.
    ///
    /// # Errors
    /// When it has none of this name.
    pub(super) fn stat(&self, name: &str) -> anyhow::Result<f64> {
        let stats = fs::read_to_string(self.point.join(".stats")).context("its statistics")?;
        let line = stats.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|number| number.trim().parse().ok()).with_context(|| format!("no {name}"))
    }

    /// What its process held in memory at most, in MiB.
    pub(super) fn most_memory(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.server()?.as_raw_nonzero()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = line.and_then(|line| line.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
        Ok(kib.context("no VmHWM")? >> 10)
    }

    /// Requests of others that it answered with a block.
    pub(super) fn served(&self) -> anyhow::Result<f64> {
        Ok(self.stat("sluice_group_served_cached_total")? + self.stat("sluice_group_served_read_total")?)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.die();
    }
}
