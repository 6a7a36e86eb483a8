//! `sluice mount`: a volume as a directory.

use std::{
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::Arc,
};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde_json::{Map, Value, json};
use sluice_data::{DataConfig, DataStore};
use sluice_fuse::Features;
use sluice_meta::{Meta, Options, engine::Engine, schema::VolumeFormat};
use sluice_object::StoreConfig;
use sluice_types::Ino;
use sluice_vfs::Journal;

use crate::{
    arguments, background,
    backup::Backups,
    engines,
    fixed::Fixed,
    flags::{
        Atime, BackupFlags, CacheFlags, FuseFlags, GroupFlags, MetaCacheFlags, MetaFlags, MetricsFlags,
        StoreFlags, TransferFlags, UnusedFlags,
    },
    fstab::{self, Line},
    group::CacheGroup,
    guardian::{self, GuardianSocket, Message},
    program::Program,
    serve::{self, ResumedMount, Serving},
    tree, volume,
};

/// Mount a volume
#[derive(Args)]
#[command(after_help = "Examples:
  sluice mount -d redis://localhost/1 /mnt/vol
  sluice mount -d redis://localhost/1 /mnt/vol --subdir /team --read-only
  META_PASSWORD=secret sluice mount -d redis://:@localhost/1 /mnt/vol --writeback")]
pub(crate) struct Mount {
    /// Metadata engine
    #[arg(value_name = "META-URL")]
    meta_url: String,
    /// Directory to mount on, made if it does not exist
    mountpoint: PathBuf,
    /// Go to the background once it is mounted
    #[arg(short = 'd', long)]
    background: bool,
    /// Stay in the foreground, as without -d
    #[arg(short = 'f', long, hide = true, conflicts_with = "background")]
    foreground: bool,
    /// Log of a mount in the background [default: /var/log/sluice.log, or ~/.sluice/sluice.log for
    /// users]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[arg(long, hide = true)]
    no_syslog: bool,
    /// Mount although a volume is mounted there already, on top of it
    #[arg(long)]
    force: bool,
    /// Have it mounted when the machine starts, with these flags: write it to /etc/fstab (for root)
    #[arg(long)]
    update_fstab: bool,
    // As helpers of mount(8) have it: nothing is printed on success.
    #[arg(long, hide = true)]
    silent: bool,
    #[command(flatten)]
    meta: MetaFlags,
    #[command(flatten)]
    backup: BackupFlags,
    #[command(flatten)]
    cached: MetaCacheFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    transfers: TransferFlags,
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    group: GroupFlags,
    #[command(flatten)]
    fuse: FuseFlags,
    #[command(flatten)]
    metrics: MetricsFlags,
}

impl Mount {
    pub(crate) fn run(self, program: Program) -> Result<ExitCode> {
        if let Some(socket) = guardian::socket() {
            return self.serve(socket);
        }
        let child = background::is_child();
        if !child {
            self.unused().check()?;
        }
        let mountpoint = std::path::absolute(&self.mountpoint)?;
        refuse_pseudo(&mountpoint)?;
        // A dead mount stays in sight until the new one is there.
        let dead = sluice_fuse::is_dead(&mountpoint);
        if !dead {
            match std::fs::metadata(&mountpoint) {
                Ok(found) => ensure!(
                    found.is_dir(),
                    "the mount point {} is not a directory; mount on one",
                    mountpoint.display()
                ),
                Err(_) if child => {}
                Err(_) => {
                    tracing::info!("the mount point {} did not exist and is made", mountpoint.display());
                }
            }
            std::fs::create_dir_all(&mountpoint)
                .with_context(|| format!("cannot make the mount point {}", mountpoint.display()))?;
        }
        // Canonical, since that is how the kernel lists it.
        let mountpoint = std::fs::canonicalize(&mountpoint)?;
        if let Some(options) = self.fuse.remount() {
            return self.remount(&mountpoint, &options);
        }
        if !dead && !self.force && is_volume(&mountpoint) {
            return self.upgrade(&mountpoint);
        }
        if self.background && !child {
            return self.start(&mountpoint, program);
        }
        if !child {
            self.update_fstab(&mountpoint, program)?;
        }
        background::detach();
        guardian::run(&mountpoint)
    }

    /// Has the machine mount it when it starts, if that was asked for.
    fn update_fstab(&self, mountpoint: &Path, program: Program) -> Result<()> {
        if !self.update_fstab {
            return Ok(());
        }
        ensure!(
            rustix::process::geteuid().is_root(),
            "--update-fstab is for root, who owns {}",
            fstab::FSTAB
        );
        let url = engines::absolute(&self.meta_url)?;
        let shows_password = arguments::without_password(&url) != url;
        let line = Line::new(program(), arguments::real(), url.clone(), mountpoint.to_owned())?;
        fstab::install_helper(Path::new(fstab::HELPER))?;
        if line.write(Path::new(fstab::FSTAB))? && !self.silent {
            outln!("{} mounts it when the machine starts", fstab::FSTAB);
        }
        if shows_password {
            errln!(
                "{}, which everybody may read, has the password of the database; META_PASSWORD_FILE names a file for it",
                fstab::FSTAB
            );
        } else if engines::takes_password_from_environment(&url)? {
            errln!(
                "the password of the database comes from the environment: who mounts by {} needs it there, too",
                fstab::FSTAB
            );
        }
        Ok(())
    }

    /// Changes the kernel's part of a mount, such as whether it is read-only.
    fn remount(&self, mountpoint: &Path, options: &str) -> Result<ExitCode> {
        if !is_volume(mountpoint) {
            bail!("no volume is mounted on {}", mountpoint.display());
        }
        if !self.is_read_only() && serves_read_only(mountpoint) {
            bail!("{} was mounted read-only; unmount it and mount it anew", mountpoint.display());
        }
        sluice_fuse::remount(mountpoint, options)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Has this program go on serving what is mounted on `mountpoint`.
    fn upgrade(&self, mountpoint: &Path) -> Result<ExitCode> {
        let asked = sluice_fuse::connection_of(mountpoint).map(guardian::ask).transpose()?;
        match asked.flatten() {
            Some(Ok(())) if self.silent => {}
            Some(Ok(())) => {
                outln!("{} was mounted already; this program serves it now", mountpoint.display());
            }
            Some(Err(why)) => bail!("{}: {why}", mountpoint.display()),
            None => {
                bail!("a volume is mounted on {} already; unmount it, or say --force", mountpoint.display())
            }
        }
        Ok(ExitCode::SUCCESS)
    }

    fn unused(&self) -> UnusedFlags {
        let mut unused = UnusedFlags::default();
        // The log of a mount goes to a file.
        unused.always(&["--no-syslog"]);
        self.meta.unused(&mut unused);
        self.backup.unused(&mut unused);
        self.cached.unused(&mut unused);
        self.store.unused(&mut unused);
        self.cache.unused(&mut unused);
        self.group.unused(&mut unused);
        if self.is_read_only() {
            self.group.unused_read_only(&mut unused);
        }
        let stages = self.transfers.limits_stages() && !self.cache.writeback;
        unused.ineffective("--max-stage-write", stages, "--writeback");
        self.fuse.unused(&mut unused);
        unused
    }

    fn start(&self, mountpoint: &Path, program: Program) -> Result<ExitCode> {
        let log = self.log.clone().unwrap_or_else(background::default_log);
        let code = background::start(&log)?;
        if code == ExitCode::SUCCESS {
            self.update_fstab(mountpoint, program)?;
        }
        if code == ExitCode::SUCCESS && !self.silent {
            outln!("mounted on {}; the log is {}", mountpoint.display(), log.display());
        }
        Ok(code)
    }

    /// Serves for a guardian, beginning as it says.
    fn serve(&self, socket: &'static GuardianSocket) -> Result<ExitCode> {
        let (message, fds) = socket.wait()?;
        let engine = engines::open(&self.meta_url)?;
        let (message, fds) = match message {
            Message::Prepare(fixed) => {
                self.try_out(&fixed, engine.as_ref(), fds)?;
                socket.send(&Message::Prepared, &[]).context("the guardian has ended")?;
                socket.wait()?
            }
            other => (other, fds),
        };
        let mut fds = fds.into_iter();
        let (mountpoint, resumed, journal) = match message {
            Message::Mount => {
                let mountpoint = std::fs::canonicalize(std::path::absolute(&self.mountpoint)?)?;
                (mountpoint, None, Journal::create().context("no memory for the state of the mount")?)
            }
            Message::Resume(connection) => {
                let file = fds.next().context("the guardian did not hand over the state of the mount")?;
                let (journal, past) = Journal::open(file.into())?;
                (
                    connection.mountpoint(),
                    Some(ResumedMount { connection, devices: fds.collect(), past }),
                    journal,
                )
            }
            other => bail!("the guardian is of another version, and says what is not understood: {other:?}"),
        };
        let journal = Arc::new(journal);
        // The process that served the mount before may still have the address.
        let bound = if resumed.is_none() { self.metrics.bind() } else { None };
        let mut info = volume::session_info(&mountpoint.display().to_string());
        let shown_at = bound.as_ref().and_then(|bound| bound.local_addr().ok());
        info.metrics_addr = shown_at.map(|address| address.to_string()).unwrap_or_default();
        info.console_url = self.metrics.console_url.clone().unwrap_or_default();
        let options = Options {
            read_only: self.is_read_only(),
            info,
            heartbeat: self.meta.heartbeat,
            client_cache: engines::client_cache(&self.meta_url)?,
            effect_log: Some(Arc::clone(&journal) as _),
            resume: resumed.as_ref().and_then(|resumed| resumed.past.resumed()),
            ..Options::default()
        };
        let meta = Meta::open(engine, options)?;
        match self.prepare(&meta, &mountpoint, socket, journal) {
            Ok(mut serving) => {
                if let Some(exporter) = &mut serving.metrics {
                    exporter.bound = bound.map(Arc::new);
                }
                serve::serve(&serving, &mountpoint, resumed)
            }
            Err(error) => {
                // A session that was taken up is for the next one.
                if resumed.is_none() {
                    let _ = meta.close();
                }
                Err(error)
            }
        }
    }

    /// Does all that can fail before another mount process hands its mount over.
    fn try_out(&self, fixed: &Fixed, engine: &dyn Engine, fds: Vec<OwnedFd>) -> Result<()> {
        let journal = fds.into_iter().next().context("the guardian did not show the state of the mount")?;
        Journal::check(&journal.into())?;
        let format = volume::format_of(engine)?;
        let data = self.data_config(&format)?;
        let caches = cache_dirs(&data);
        fixed.allows(&self.fixed(&format, &data)?, &caches).map_err(anyhow::Error::msg)?;
        // Programs are at work in the mount already.
        let thoroughly = self.transfers.check_storage || !self.is_read_only();
        serve::try_store(&self.store_config(&format)?, &format.uuid, thoroughly)
    }

    /// What cannot change while it is mounted.
    fn fixed(&self, format: &VolumeFormat, data: &DataConfig) -> Result<Fixed> {
        let (mut options, config) = self.fuse.mount_options(&format.name, Features::DEFAULT)?;
        options.set_read_only(self.is_read_only());
        let text = |name: &str, value: String| (name.to_owned(), value);
        let options = [
            text("--subdir", self.meta.subdir.as_deref().unwrap_or_default().trim_matches('/').to_owned()),
            text("--max-fuse-io", config.max_write.to_string()),
            text("-o", options.text()),
        ];
        let staging = if self.cache.writeback { cache_dirs(data) } else { Vec::new() };
        Ok(Fixed { uuid: format.uuid.clone(), options: options.into(), staging })
    }

    /// Whether nothing may be changed, by flag or by mount option.
    fn is_read_only(&self) -> bool {
        self.meta.read_only || self.fuse.is_read_only()
    }

    /// The kernel leaves access times to who serves the mount, the options about them included.
    fn atime(&self) -> Atime {
        self.meta.atime_mode.or_else(|| self.fuse.atime()).unwrap_or_default()
    }

    /// The volume's settings and flags become what the data path takes.
    fn data_config(&self, format: &VolumeFormat) -> Result<DataConfig> {
        let mut data = sluice_open::data_config(format)?;
        self.transfers.apply(&mut data);
        self.cache.apply(&mut data, self.transfers.max_stage_write)?;
        data.download_rate = self.store.download_mbps(format).saturating_mul(1_000_000 / 8);
        Ok(data)
    }

    fn store_config(&self, format: &VolumeFormat) -> Result<StoreConfig> {
        let mut store = self.store.config(format)?;
        // A staged block survives a power cut; what takes its place must, too.
        store.sync = self.cache.writeback;
        Ok(store)
    }

    /// Flags and settings become what each layer takes.
    fn prepare(
        &self,
        meta: &Arc<Meta>,
        mountpoint: &Path,
        socket: &'static GuardianSocket,
        journal: Arc<Journal>,
    ) -> Result<Serving<'_>> {
        let format = meta.env().format();
        let mut store = self.store_config(&format)?;
        let mut data = self.data_config(&format)?;
        store.sync |= DataStore::has_staged(&data);
        data.auto_compact = !meta.is_read_only();
        let group = CacheGroup::new(&self.group, meta, &mountpoint.display().to_string())?;
        data.peers = group.as_ref().map(|group| group.peers() as _);
        let mut vfs = self.cached.vfs_config(&self.meta);
        self.fuse.apply(&mut vfs);
        vfs.atime = self.atime().into();
        vfs.root = match &self.meta.subdir {
            Some(path) => tree::directory(meta, path).with_context(|| format!("--subdir {path}"))?,
            None => Ino::ROOT,
        };
        vfs.shown = self.shown(&data, mountpoint);
        vfs.journal = Some(Arc::clone(&journal));
        vfs.storage_class.clone_from(&store.storage_class);
        let metrics = self.metrics.exporter(&format.name, mountpoint);
        let pushes = self.metrics.pushes(&format.name, mountpoint);
        let backups = if meta.is_read_only() || self.meta.no_bgjob {
            None
        } else {
            Backups::new(&self.backup, &self.meta_url, &store)?
        };
        let fixed = self.fixed(&format, &data)?;
        Ok(Serving {
            meta: Arc::clone(meta),
            store,
            check_storage: self.transfers.check_storage,
            data,
            vfs,
            fuse: &self.fuse,
            metrics,
            pushes,
            backups,
            group,
            read_only: meta.is_read_only(),
            fixed,
            socket,
            journal,
        })
    }

    /// What `.config` shows of this mount.
    fn shown(&self, data: &DataConfig, mountpoint: &Path) -> Map<String, Value> {
        let dirs = cache_dirs(data);
        let cache_dir = if dirs.is_empty() { "memory".to_owned() } else { dirs.join(":") };
        let shown = json!({
            "Meta": {
                "MountPoint": mountpoint.display().to_string(),
                "Subdir": self.meta.subdir.as_deref().unwrap_or(""),
                "AtimeMode": self.atime().name(),
                "Heartbeat": self.meta.heartbeat.as_nanos() as u64,
                "NoBGJob": self.meta.no_bgjob,
                "OpenCache": self.cached.open_cache.as_nanos() as u64,
            },
            "Chunk": {
                "CacheDir": cache_dir,
                "CacheMode": data.cache.mode,
                "CacheSize": data.cache.size,
                "CacheItems": data.cache.items,
                "FreeSpace": data.cache.free_space_ratio,
                "Compress": data.compression.to_string(),
                "MaxUpload": data.max_uploads,
                "MaxDownload": data.max_downloads,
                "Writeback": self.cache.writeback,
                "HashPrefix": data.hash_prefix,
                "BlockSize": data.block_size,
                "BufferSize": data.buffer_size,
                "Readahead": data.max_readahead,
                "Prefetch": data.prefetch,
            },
            "Version": volume::VERSION,
            "AttrTimeout": self.cached.attr_cache.as_nanos() as u64,
            "DirEntryTimeout": self.cached.dir_entry_cache.as_nanos() as u64,
            "NegEntryTimeout": self.cached.negative_entry_cache.as_nanos() as u64,
            "EntryTimeout": self.cached.entry_cache.as_nanos() as u64,
            "Pid": process::id(),
            "Mountpoint": mountpoint.display().to_string(),
        });
        if let Value::Object(shown) = shown { shown } else { Map::new() }
    }
}

/// Where blocks of the volume are kept locally.
fn cache_dirs(data: &DataConfig) -> Vec<String> {
    data.cache.dirs.iter().map(|dir| dir.join(&data.volume).display().to_string()).collect()
}

/// Whether a volume of ours or of `JuiceFS` is mounted exactly here.
fn is_volume(mountpoint: &Path) -> bool {
    sluice_fuse::types_on(mountpoint).iter().any(|kind| sluice_fuse::is_volume_type(kind))
}

/// Whether the process that serves a mount changes nothing, whatever the kernel lets through.
fn serves_read_only(mountpoint: &Path) -> bool {
    let config = [".config", ".jfs.config"].iter().find_map(|name| std::fs::read(mountpoint.join(name)).ok());
    let shown: Option<Value> = config.and_then(|text| serde_json::from_slice(&text).ok());
    shown.is_some_and(|shown| shown["Meta"]["ReadOnly"] == Value::Bool(true))
}

/// Refuses a place in a file system that the kernel makes up, such as /proc: to serve a mount the
/// mount process itself has to look there.
fn refuse_pseudo(mountpoint: &Path) -> Result<()> {
    // PROC_SUPER_MAGIC and the like, of linux/magic.h. `..` and links are the kernel's to follow:
    // the nearest place that exists tells.
    const PSEUDO: [(i64, &str); 10] = [
        (0x9fa0, "proc"),
        (0x6265_6572, "sysfs"),
        (0x0027_e0eb, "cgroup"),
        (0x6367_7270, "cgroup2"),
        (0x6462_6720, "debugfs"),
        (0x7472_6163, "tracefs"),
        (0x7363_6673, "securityfs"),
        (0xcafe_4a11, "bpf"),
        (0x1cd1, "devpts"),
        (0x1980_0202, "mqueue"),
    ];
    let there = mountpoint.ancestors().find_map(|place| rustix::fs::statfs(place).ok());
    let magic = there.map_or(0, |there| there.f_type);
    match PSEUDO.iter().find(|(pseudo, _)| *pseudo == magic) {
        Some((_, name)) => bail!(
            "{} is part of {name}, a file system that the kernel makes up; mount on another directory",
            mountpoint.display()
        ),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::*;
    use crate::{args::Cli, commands::Command};

    fn mount(flags: &[&str]) -> Box<Mount> {
        let line = ["sluice", "mount", "redis://h/1", "/mnt"].iter().chain(flags);
        match Cli::try_parse_from(line).map(|cli| cli.command) {
            Ok(Command::Mount(mount)) => mount,
            _ => panic!("{flags:?} is no mount"),
        }
    }

    #[test]
    fn every_flag_without_help_is_judged() {
        let unused = mount(&[]).unused();
        let command = Cli::command();
        let known = command.find_subcommand("mount").expect("there");
        for argument in known.get_arguments().filter(|argument| argument.is_hide_set()) {
            let flag = format!("--{}", argument.get_long().expect("a flag"));
            // These do what they say and are only for other programs.
            let works = matches!(flag.as_str(), "--foreground" | "--silent");
            assert!(works || unused.has_checked(&flag), "{flag} is accepted and nothing becomes of it");
        }
    }

    #[test]
    fn mount_options_about_access_times_count_where_no_flag_does() {
        for (flags, expected) in [
            (&[][..], Atime::Noatime),
            (&["-o", "ro,relatime"], Atime::Relatime),
            (&["-o", "noatime,strictatime"], Atime::Strictatime),
            (&["-o", "strictatime", "--atime-mode", "noatime"], Atime::Noatime),
            (&["--atime-mode", "relatime"], Atime::Relatime),
        ] {
            assert!(mount(flags).atime() == expected, "{flags:?}");
        }
    }
}
