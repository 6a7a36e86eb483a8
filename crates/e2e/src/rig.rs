//! Volumes to test on: an engine (with its own database server, if it needs one), a directory of
//! objects, and mounts. When the rig is dropped, all of it is removed, even a dead mount.
//!
//! The tests use the program only through its command line, so that any program with these flags
//! can replace it.

mod engine;
mod point;
mod server;

pub(crate) use self::point::{TIMEOUT, dead, take_away};
use self::server::{Server, Started};
pub use self::{engine::Engine, point::mounted};
use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use sluice_testkit::server::{Namespace, Proxy};
pub use sluice_testkit::wait::until;
use std::{
    ffi::OsString,
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use tempfile::TempDir;

/// The folder of a volume, for [`Volume::path`], that has the block cache of its first mount.
pub const FIRST_CACHE: &str = "cache0";

/// A formatted volume.
#[derive(Debug)]
pub struct Volume {
    // Dropped in this order: mounts are gone by then, then the proxy, the server, the files.
    mounts: Vec<Mount>,
    /// Where mounts died that nobody has unmounted, and may have been mounted over since.
    dead: Vec<PathBuf>,
    proxy: Option<Proxy>,
    /// Where other mounts live, and the URL by which they reach the server.
    apart: Option<(Namespace, String)>,
    server: Option<Server>,
    folder: TempDir,
    program: PathBuf,
    /// Its metadata URL.
    pub meta: String,
}

#[derive(Debug)]
struct Mount {
    program: PathBuf,
    point: PathBuf,
    process: Child,
}

impl Volume {
    /// Formats a volume in a folder of its own below `within`; `options` are further flags of
    /// `format`.
    pub fn new(program: &Path, engine: Engine, within: &Path, options: &[&str]) -> anyhow::Result<Self> {
        Self::started(program, engine, within, Ipv4Addr::LOCALHOST)?.0.format(options)
    }

    /// The same on a server that is only reached through a proxy.
    ///
    /// # Errors
    /// When the engine is not one server.
    pub fn behind_proxy(
        program: &Path,
        engine: Engine,
        within: &Path,
        options: &[&str],
    ) -> anyhow::Result<Self> {
        let (mut volume, server) = Self::started(program, engine, within, Ipv4Addr::LOCALHOST)?;
        let server = server.with_context(|| format!("no proxy fits in front of {engine:?}"))?;
        let proxy = Proxy::start(server)?;
        volume.meta = volume.meta.replace(&server.to_string(), &proxy.addr().to_string());
        volume.proxy = Some(proxy);
        volume.format(options)
    }

    /// The same on a server that some mounts reach from here, and others ([`Self::mount_apart`])
    /// from a network of their own.
    ///
    /// # Errors
    /// When the engine is not one server, or this process may not make networks.
    pub fn divided(program: &Path, engine: Engine, within: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let namespace = Namespace::new()?;
        if matches!(engine, Engine::Tikv | Engine::Etcd) {
            // There are several servers, and those of TiKV tell clients each other's addresses.
            let (mut volume, _) = Self::started(program, engine, within, namespace.here())?;
            volume.apart = Some((namespace, volume.meta.clone()));
            return volume.format(options);
        }
        let (mut volume, server) = Self::started(program, engine, within, Ipv4Addr::LOCALHOST)?;
        let server = server.with_context(|| format!("no proxy fits in front of {engine:?}"))?;
        let proxy = Proxy::start_at(namespace.here(), server)?;
        let there = volume.meta.replace(&server.to_string(), &proxy.addr().to_string());
        volume.proxy = Some(proxy);
        volume.apart = Some((namespace, there));
        volume.format(options)
    }

    /// An engine without a volume, and the address of its server if it is one that clients speak
    /// to.
    fn started(
        program: &Path,
        engine: Engine,
        within: &Path,
        host: Ipv4Addr,
    ) -> anyhow::Result<(Self, Option<SocketAddr>)> {
        let folder = Self::folder(program, within)?;
        let Started { server, meta, addr } = server::start(engine, folder.path(), host)?;
        let (mounts, program) = (Vec::new(), program.to_owned());
        Ok((Self { mounts, dead: Vec::new(), proxy: None, apart: None, server, folder, program, meta }, addr))
    }

    /// Formats a volume in the database at `meta`, which the caller keeps alive.
    ///
    /// # Errors
    /// What `format` says.
    pub fn at(program: &Path, meta: &str, within: &Path, options: &[&str]) -> anyhow::Result<Self> {
        let folder = Self::folder(program, within)?;
        let (program, meta) = (program.to_owned(), meta.to_owned());
        Self {
            mounts: Vec::new(),
            dead: Vec::new(),
            proxy: None,
            apart: None,
            server: None,
            folder,
            program,
            meta,
        }
        .format(options)
    }

    /// An empty database.
    ///
    /// # Errors
    /// When the engine does not start.
    pub fn unformatted(program: &Path, engine: Engine, within: &Path) -> anyhow::Result<Self> {
        Ok(Self::started(program, engine, within, Ipv4Addr::LOCALHOST)?.0)
    }

    fn folder(program: &Path, within: &Path) -> anyhow::Result<TempDir> {
        ensure!(program.is_file(), "no program {}: build it first", program.display());
        std::fs::create_dir_all(within)?;
        let mut folder = tempfile::Builder::new();
        let folder = folder.prefix("volume-");
        Ok(folder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o755)).tempdir_in(within)?)
    }

    fn format(self, options: &[&str]) -> anyhow::Result<Self> {
        let bucket = format!("{}/", self.path("objects").display());
        let mut arguments = vec!["format"];
        if !options.contains(&"--trash-days") {
            arguments.extend(["--trash-days", "0"]);
        }
        if !options.contains(&"--storage") {
            arguments.extend(["--storage", "file", "--bucket", bucket.as_str()]);
        }
        arguments.extend(options);
        arguments.extend([self.meta.as_str(), "e2e-volume"]);
        self.command(&arguments)?;
        Ok(self)
    }

    /// Moves its metadata to another engine, whose files are in `folder` of the volume's, by a dump
    /// and a load. Nothing may be mounted.
    ///
    /// # Errors
    /// When the engine does not start, or one of the commands fails.
    pub fn move_to(&mut self, engine: Engine, folder: &str) -> anyhow::Result<()> {
        let folder = self.path(folder);
        std::fs::create_dir_all(&folder)?;
        let dump = folder.join("dump.json.zst").to_string_lossy().into_owned();
        self.command(&["dump", "--keep-secret-key", &self.meta, &dump])?;
        let Started { server, meta, .. } = server::start(engine, &folder, Ipv4Addr::LOCALHOST)?;
        self.command(&["load", &meta, &dump])?;
        (self.server, self.meta) = (server, meta);
        Ok(())
    }

    /// Adds an option to its URL, for all that is started from now on.
    pub fn add_option(&mut self, option: &str) {
        let more = if self.meta.contains('?') { '&' } else { '?' };
        self.meta = format!("{}{more}{option}", self.meta);
    }

    /// What stands in front of the server.
    ///
    /// # Errors
    /// When nothing does.
    pub fn proxy(&self) -> anyhow::Result<&Proxy> {
        self.proxy.as_ref().context("there is no proxy in front of the server")
    }

    /// The network of those that are apart.
    ///
    /// # Errors
    /// When nobody is.
    pub fn namespace(&self) -> anyhow::Result<&Namespace> {
        self.apart.as_ref().map(|(namespace, _)| namespace).context("all mounts are in one network")
    }

    /// One of the server's own counters.
    ///
    /// # Errors
    /// When it has none of that name, or is no MariaDB.
    pub fn counter(&self, name: &str) -> anyhow::Result<u64> {
        match &self.server {
            Some(Server::Mariadb(server)) => Ok(server.status(name)?),
            _ => bail!("only MariaDB is asked for its counters"),
        }
    }

    /// A place in the volume's folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs the program; its output.
    ///
    /// # Errors
    /// When it does not exit with 0, with all that it printed.
    pub fn command(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command(&self.program, arguments)
    }

    /// Mounts it once more, in the foreground of a process of the rig; `options` are further flags
    /// of `mount`.
    pub fn mount(&mut self, options: &[&str]) -> anyhow::Result<PathBuf> {
        let program = self.program.clone();
        self.mount_by(&program, options)
    }

    /// The same by another program.
    pub fn mount_by(&mut self, program: &Path, options: &[&str]) -> anyhow::Result<PathBuf> {
        self.mount_as(program, &[&["--enable-xattr"], options].concat())
    }

    /// Mounts it once more with nothing but its own cache and these options.
    pub fn mount_plain(&mut self, options: &[&str]) -> anyhow::Result<PathBuf> {
        let program = self.program.clone();
        self.mount_as(&program, options)
    }

    /// Mounts it once more, in the other network of a divided volume.
    ///
    /// # Errors
    /// When there is none, or the mount does not come.
    pub fn mount_apart(&mut self, options: &[&str]) -> anyhow::Result<PathBuf> {
        let (namespace, there) = self.apart.as_ref().context("all mounts are in one network")?;
        let (mut command, there, program) = (namespace.enter(), there.clone(), self.program.clone());
        command.push(program.clone().into());
        self.mount_of(&command, &there, &program, &[&["--enable-xattr"], options].concat())
    }

    /// The same with an environment: words such as `NAME=value`.
    ///
    /// # Errors
    /// When the mount does not come.
    pub fn mount_in(&mut self, environment: &[&str], options: &[&str]) -> anyhow::Result<PathBuf> {
        let (meta, program) = (self.meta.clone(), self.program.clone());
        let mut command: Vec<OsString> = vec!["env".into()];
        command.extend(environment.iter().map(OsString::from));
        command.push(program.clone().into());
        self.mount_of(&command, &meta, &program, options)
    }

    fn mount_as(&mut self, program: &Path, options: &[&str]) -> anyhow::Result<PathBuf> {
        let meta = self.meta.clone();
        self.mount_of(&[program.into()], &meta, program, options)
    }

    /// Mounts the volume at `meta` by `command`, the words that run `program`.
    fn mount_of(
        &mut self,
        command: &[OsString],
        meta: &str,
        program: &Path,
        options: &[&str],
    ) -> anyhow::Result<PathBuf> {
        use std::os::unix::process::CommandExt;
        let (first, words) = command.split_first().context("no program")?;
        let number = self.mounts.len();
        let point = self.path(&format!("mnt{number}"));
        if !dead(&point) {
            std::fs::create_dir_all(&point)?;
        }
        let log = File::options().append(true).create(true).open(self.path("mount.log"))?;
        let cache = self.path(&format!("cache{number}"));
        let mut process = Command::new(first)
            .args(words)
            .args(["mount", "--cache-dir"])
            .arg(&cache)
            .args(options)
            .arg(meta)
            .arg(&point)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // So that a crash can take all of it.
            .process_group(0)
            .spawn()?;
        let mut died = None;
        until("mount", TIMEOUT, || {
            died = process.try_wait().ok().flatten();
            died.is_some() || mounted(&point) && !dead(&point)
        })?;
        if let Some(status) = died {
            bail!("mount ended with {status}:\n{}", self.log());
        }
        self.mounts.push(Mount { point: point.clone(), process, program: program.to_owned() });
        Ok(point)
    }

    /// What the mounts said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.path("mount.log")).unwrap_or_default()
    }

    /// The end of it.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Unmounts all, as a user does.
    ///
    /// # Errors
    /// When a mount does not go, or its process does not end well.
    pub fn unmount(&mut self) -> anyhow::Result<()> {
        while let Some(mut mount) = self.mounts.pop() {
            let point = mount.point.to_string_lossy().into_owned();
            let gone = command(&mount.program, &["umount", &point]);
            if gone.is_err() {
                mount.take_away();
                gone?;
            }
            let mut status = None;
            until("the mount's process to end", TIMEOUT, || {
                status = mount.process.try_wait().ok().flatten();
                status.is_some()
            })?;
            let ended_well = status.is_some_and(|status| status.success());
            ensure!(ended_well, "the mount's process ended with {status:?}:\n{}", self.log());
        }
        Ok(())
    }

    /// Kills every mount at once, without a word. The dead mounts stay: the next takes their place.
    pub fn die(&mut self) {
        for mut mount in self.mounts.drain(..) {
            mount.die();
            self.dead.push(mount.point);
        }
    }

    /// Kills every mount at once, without a word, and takes the dead mount points away.
    pub fn kill(&mut self) {
        for mut mount in self.mounts.drain(..) {
            mount.take_away();
        }
        for point in self.dead.drain(..) {
            take_away(&point);
        }
    }

    /// Tells the process of the newest mount to end, as a service manager does.
    ///
    /// # Errors
    /// When there is none.
    pub fn terminate(&self) -> anyhow::Result<()> {
        let mount = self.mounts.last().context("nothing is mounted")?;
        Ok(rustix::process::kill_process(Pid::from_child(&mount.process), Signal::TERM)?)
    }

    /// The process that the rig started for the newest mount.
    ///
    /// # Errors
    /// When there is none.
    pub fn guardian(&self) -> anyhow::Result<u32> {
        Ok(self.mounts.last().context("nothing is mounted")?.process.id())
    }

    /// Whether the process of the newest mount has ended.
    pub fn has_ended(&mut self) -> bool {
        let mount = self.mounts.last_mut();
        mount.is_none_or(|mount| mount.process.try_wait().is_ok_and(|status| status.is_some()))
    }

    /// Waits until the newest mount is gone, its process and its mount point, by no deed of the
    /// rig; killed at once before, if `kill` says so, which may leave a dead mount.
    ///
    /// # Errors
    /// When either stays, or a process that was not killed did not end well.
    pub fn vanish(&mut self, kill: bool) -> anyhow::Result<()> {
        let mut mount = self.mounts.pop().context("nothing is mounted")?;
        let gone = mount.vanish(kill);
        if gone.is_err() {
            mount.take_away();
        }
        self.dead.push(mount.point);
        gone
    }

    /// Checks the volume.
    ///
    /// # Errors
    /// What `fsck` found.
    pub fn fsck(&self) -> anyhow::Result<()> {
        self.fsck_by(&self.program)
    }

    /// The same by another program.
    ///
    /// # Errors
    /// What its `fsck` found.
    pub fn fsck_by(&self, program: &Path) -> anyhow::Result<()> {
        let said = command(program, &["fsck", &self.meta]).context("fsck is not clean")?;
        ensure!(!said.contains("leaked: "), "something leaked:\n{said}");
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        self.kill();
        drop(self.proxy.take());
        drop(self.apart.take());
        drop(self.server.take());
    }
}

impl Mount {
    fn vanish(&mut self, kill: bool) -> anyhow::Result<()> {
        if kill {
            self.kill();
        }
        let mut status = None;
        until("the mount's process to end", TIMEOUT, || {
            status = self.process.try_wait().ok().flatten();
            status.is_some()
        })?;
        ensure!(kill || status.is_some_and(|status| status.success()), "the mount ended with {status:?}");
        Ok(until("the mount point to be free or dead", TIMEOUT, || {
            !mounted(&self.point) || kill && dead(&self.point)
        })?)
    }

    /// All of it at once: the guardian, and who serves.
    fn kill(&self) {
        let _ = kill_process_group(Pid::from_child(&self.process), Signal::KILL);
    }

    fn die(&mut self) {
        self.kill();
        let _ = self.process.wait();
    }

    fn take_away(&mut self) {
        self.die();
        take_away(&self.point);
    }
}

/// Runs a program; its output.
///
/// # Errors
/// When it does not exit with 0, with all that it printed.
pub fn command(program: &Path, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output()?;
    let text =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    ensure!(
        output.status.success(),
        "{} {}: {}\n{text}",
        program.display(),
        arguments.join(" "),
        output.status
    );
    Ok(text)
}
