//! Flags about metadata: the background work of the client, and what the kernel may cache.
//!
//! What must stay true: by default, nothing is cached for longer than by `JuiceFS`.

use std::{sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use sluice_vfs::{AtimeMode, VfsConfig};

use super::UnusedFlags;
use crate::sizes;

/// When reading changes access times.
#[derive(Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Atime {
    #[default]
    Noatime,
    Relatime,
    Strictatime,
}

impl From<Atime> for AtimeMode {
    fn from(mode: Atime) -> Self {
        match mode {
            Atime::Noatime => Self::Never,
            Atime::Relatime => Self::Relative,
            Atime::Strictatime => Self::Strict,
        }
    }
}

impl Atime {
    /// Its name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Noatime => "noatime",
            Self::Relatime => "relatime",
            Self::Strictatime => "strictatime",
        }
    }
}

/// Duties of a client.
#[derive(Args)]
#[command(next_help_heading = "Metadata")]
pub(crate) struct MetaFlags {
    /// Show this directory of the volume as the root; made if it is not there
    #[arg(long, value_name = "DIR")]
    pub(crate) subdir: Option<String>,
    /// Time between two heartbeats, 1s or longer
    #[arg(long, value_name = "TIME", default_value = "12s", value_parser = heartbeat)]
    pub(crate) heartbeat: Duration,
    /// Allow nothing to be changed
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Leave the hourly cleaning to other clients
    #[arg(long)]
    pub(crate) no_bgjob: bool,
    /// When reading changes access times [default: as -o noatime, relatime or strictatime says,
    /// else noatime]
    #[arg(long, value_enum)]
    pub(crate) atime_mode: Option<Atime>,
    #[arg(long, value_name = "N", hide = true)]
    skip_dir_nlink: Option<u32>,
    #[arg(long, value_name = "TIME", hide = true, value_parser = sizes::duration)]
    skip_dir_mtime: Option<Duration>,
    #[arg(long, hide = true)]
    sort_dir: bool,
    // Local counters are always used.
    #[arg(long, hide = true)]
    fast_statfs: bool,
    #[arg(long, value_name = "NAMES", hide = true)]
    network_interfaces: Option<String>,
    // Nothing is ever reported.
    #[arg(long, hide = true)]
    no_usage_report: bool,
}

impl MetaFlags {
    /// Notes what does nothing.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        unused.refuse(
            "--skip-dir-nlink",
            self.skip_dir_nlink.is_some_and(|retries| retries > 0),
            "the number of links of a directory is always right here; leave it out, or say 0",
        );
        unused.refuse(
            "--skip-dir-mtime",
            self.skip_dir_mtime.is_some_and(|time| !time.is_zero()),
            "every change of a directory is seen in its times here, at no further cost; leave it out, or say 0",
        );
        unused.refuse(
            "--sort-dir",
            self.sort_dir,
            "a listing keeps an order of its own, in which each name has a fixed place; programs such as ls sort by \
             themselves",
        );
        unused.refuse(
            "--network-interfaces",
            self.network_interfaces.as_ref().is_some_and(|names| !names.is_empty()),
            "what a session tells of its machine is for people, and not chosen by interface; leave it out",
        );
        unused.always(&["--fast-statfs", "--no-usage-report"]);
        let _ = (self.fast_statfs, self.no_usage_report);
    }
}

/// What the kernel may keep, and for how long.
#[derive(Args)]
#[command(next_help_heading = "Metadata cache")]
pub(crate) struct MetaCacheFlags {
    /// How long attributes are cached
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sizes::duration)]
    pub(crate) attr_cache: Duration,
    /// How long names of files are cached
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sizes::duration)]
    pub(crate) entry_cache: Duration,
    /// How long names of directories are cached
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = sizes::duration)]
    pub(crate) dir_entry_cache: Duration,
    /// How long the absence of a name is cached
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = sizes::duration)]
    pub(crate) negative_entry_cache: Duration,
    /// How long an open may be answered without the engine; gives up close-to-open consistency
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = sizes::duration)]
    pub(crate) open_cache: Duration,
    // A bound that suits all is built in.
    #[arg(long, value_name = "N", hide = true)]
    open_cache_limit: Option<u64>,
    /// The kernel caches listings of directories, as long as their attributes (--attr-cache)
    #[arg(long)]
    readdir_cache: bool,
}

impl MetaCacheFlags {
    /// Notes what does nothing.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        unused.always(&["--open-cache-limit"]);
        let _ = self.open_cache_limit;
    }

    /// Both groups as the file system takes them.
    pub(crate) fn vfs_config(&self, meta: &MetaFlags) -> VfsConfig {
        VfsConfig {
            attr_ttl: self.attr_cache,
            entry_ttl: self.entry_cache,
            dir_entry_ttl: self.dir_entry_cache,
            negative_ttl: self.negative_entry_cache,
            open_ttl: self.open_cache,
            readdir_cache: self.readdir_cache,
            heartbeat: meta.heartbeat,
            cleaning: !meta.no_bgjob,
            clock: Arc::new(sluice_types::SystemClock),
            ..VfsConfig::default()
        }
    }
}

/// A session lasts a few of them, counted in seconds.
fn heartbeat(text: &str) -> Result<Duration, String> {
    let time = sizes::duration(text)?;
    if time < Duration::from_secs(1) { Err("it must be 1s or longer".into()) } else { Ok(time) }
}
