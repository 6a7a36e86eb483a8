//! `sluice mount`: a volume as a directory.

use std::{
    path::{Path, PathBuf},
    process::{self, ExitCode},
    sync::Arc,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::{Map, Value, json};
use sluice_data::DataConfig;
use sluice_meta::{Meta, Options};
use sluice_object::Compression;
use sluice_types::Ino;

use crate::{
    background, engines,
    flags::{Atime, CacheFlags, FuseFlags, Idle, MetaCacheFlags, MetaFlags, StoreFlags, TransferFlags},
    serve::{self, Serving},
    tree, volume,
};

/// Mount a volume
#[derive(Args)]
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
    /// Log of a mount in the background [default: /var/log/sluice.log, or ~/.sluice/sluice.log for users]
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
    #[arg(long, hide = true)]
    no_syslog: bool,
    /// Mount although a volume is mounted there already
    #[arg(long)]
    force: bool,
    #[arg(long, hide = true)]
    update_fstab: bool,
    // As helpers of mount(8) have it: nothing is printed on success.
    #[arg(long, hide = true)]
    silent: bool,
    #[command(flatten)]
    meta: MetaFlags,
    #[command(flatten)]
    cached: MetaCacheFlags,
    #[command(flatten)]
    store: StoreFlags,
    #[command(flatten)]
    transfers: TransferFlags,
    #[command(flatten)]
    cache: CacheFlags,
    #[command(flatten)]
    fuse: FuseFlags,
}

impl Mount {
    pub(crate) fn run(self) -> Result<ExitCode> {
        let child = background::is_child();
        if !child {
            self.idle().warn();
        }
        let mountpoint = std::path::absolute(&self.mountpoint)?;
        refuse_pseudo(&mountpoint)?;
        // A dead mount stays in sight until the new one is there.
        let dead = sluice_fuse::is_dead(&mountpoint);
        if !dead {
            std::fs::create_dir_all(&mountpoint)
                .with_context(|| format!("cannot make the mount point {}", mountpoint.display()))?;
        }
        // Canonical, since that is how the kernel lists it.
        let mountpoint = std::fs::canonicalize(&mountpoint)?;
        if !dead && !self.force && is_volume(&mountpoint) {
            bail!("a volume is mounted on {} already; unmount it, or say --force", mountpoint.display());
        }
        if self.background && !child {
            return self.start(&mountpoint);
        }
        background::detach();
        self.serve(&mountpoint)
    }

    fn idle(&self) -> Idle {
        let mut idle = Idle::default();
        idle.note("--update-fstab", self.update_fstab);
        self.meta.idle(&mut idle);
        self.cached.idle(&mut idle);
        self.store.idle(&mut idle);
        self.transfers.idle(&mut idle);
        self.cache.idle(&mut idle);
        self.fuse.idle(&mut idle);
        idle
    }

    fn start(&self, mountpoint: &Path) -> Result<ExitCode> {
        let log = self.log.clone().unwrap_or_else(background::default_log);
        let code = background::start(&log)?;
        if code == ExitCode::SUCCESS && !self.silent {
            outln!("mounted on {}; the log is {}", mountpoint.display(), log.display());
        }
        Ok(code)
    }

    fn serve(&self, mountpoint: &Path) -> Result<ExitCode> {
        let engine = engines::open(&self.meta_url)?;
        let options = Options {
            read_only: self.is_read_only(),
            info: volume::session_info(&mountpoint.display().to_string()),
            heartbeat: self.meta.heartbeat,
            client_cache: engines::client_cache(&self.meta_url)?,
            ..Options::default()
        };
        let meta = Meta::open(engine, options)?;
        match self.prepare(&meta, mountpoint) {
            Ok(serving) => serve::serve(&serving, mountpoint),
            Err(error) => {
                let _ = meta.close();
                Err(error)
            }
        }
    }

    /// Whether nothing may be changed, by flag or by mount option.
    fn is_read_only(&self) -> bool {
        self.meta.read_only || self.fuse.is_read_only()
    }

    /// The kernel leaves access times to who serves the mount, the options about them included.
    fn atime(&self) -> Atime {
        self.meta.atime_mode.or_else(|| self.fuse.atime()).unwrap_or_default()
    }

    /// Flags and settings become what each layer takes.
    fn prepare(&self, meta: &Arc<Meta>, mountpoint: &Path) -> Result<Serving<'_>> {
        let format = meta.env().format();
        let mut store = volume::store_config(&format)?;
        self.store.apply(&mut store)?;
        // A staged block survives a power cut; what takes its place must, too.
        store.sync = self.cache.writeback;
        let mut data = DataConfig {
            volume: format.uuid.clone(),
            block_size: format
                .block_size
                .checked_mul(1024)
                .context("the volume's block size is out of range")?,
            hash_prefix: format.hash_prefix,
            compression: format.compression.parse::<Compression>().map_err(anyhow::Error::msg)?,
            auto_compact: !meta.is_read_only(),
            ..DataConfig::default()
        };
        self.transfers.apply(&mut data);
        self.cache.apply(&mut data)?;
        let mut vfs = self.cached.vfs_config(&self.meta);
        self.fuse.apply(&mut vfs);
        vfs.atime = self.atime().into();
        vfs.root = match &self.meta.subdir {
            Some(path) => tree::directory(meta, path).with_context(|| format!("--subdir {path}"))?,
            None => Ino::ROOT,
        };
        vfs.shown = self.shown(&data, mountpoint);
        let read_only = meta.is_read_only();
        Ok(Serving {
            meta: Arc::clone(meta),
            store,
            check_storage: self.transfers.check_storage,
            data,
            vfs,
            fuse: &self.fuse,
            read_only,
        })
    }

    /// What `.config` shows of this mount.
    fn shown(&self, data: &DataConfig, mountpoint: &Path) -> Map<String, Value> {
        let dirs: Vec<String> =
            data.cache.dirs.iter().map(|dir| dir.join(&data.volume).display().to_string()).collect();
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

/// Whether a volume of ours or of `JuiceFS` is mounted exactly here.
fn is_volume(mountpoint: &Path) -> bool {
    let Ok(mounts) = std::fs::read_to_string("/proc/self/mountinfo") else { return false };
    let Some(path) = mountpoint.to_str() else { return false };
    let here = |line: &&str| line.split(' ').nth(4) == Some(path);
    mounts.lines().filter(here).any(|line| line.contains(" fuse.sluice ") || line.contains(" fuse.juicefs "))
}

/// Refuses a place in a file system that the kernel makes up, such as /proc: to serve a mount the server itself has to
/// look there.
fn refuse_pseudo(mountpoint: &Path) -> Result<()> {
    // PROC_SUPER_MAGIC and the like, of linux/magic.h. `..` and links are the kernel's to follow: the nearest place
    // that exists tells.
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
    use clap::Parser;

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
