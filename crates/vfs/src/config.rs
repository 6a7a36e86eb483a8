//! The settings of a mount that the file system itself uses.
//!
//! What must stay true: `Default` is what `JuiceFS` users get without flags.

use std::{fmt, sync::Arc, time::Duration};

use sluice_meta::Ended;
use sluice_types::{Clock, Ino, SystemClock, Timetable};

use crate::{journal::Journal, metrics::MoreMetrics};

/// When reading changes a file's access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtimeMode {
    /// Never.
    #[default]
    Never,
    /// When it is older than the last change, or than a day.
    Relative,
    /// Always, but at most once a second.
    Strict,
}

/// Squashing: which identity callers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Squash {
    /// Whether it is for all users, or only for the superuser.
    pub all: bool,
    /// The uid that they get.
    pub uid: u32,
    /// The gid that they get.
    pub gid: u32,
}

/// What to do when the client must end at once.
pub type OnEnded = Arc<dyn Fn(Ended) + Send + Sync>;

/// Settings of a [`Vfs`](crate::Vfs).
#[derive(Clone)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub struct VfsConfig {
    /// Directory that is shown as the root (`--subdir`).
    pub root: Ino,
    /// How long the kernel may cache attributes.
    pub attr_ttl: Duration,
    /// How long the kernel may cache the name of a file.
    pub entry_ttl: Duration,
    /// How long the kernel may cache the name of a directory.
    pub dir_entry_ttl: Duration,
    /// How long the kernel may cache that a name is absent; zero for not at all.
    pub negative_ttl: Duration,
    /// For how long an open of a file may be answered with attributes that this client learned
    /// before, without the engine; zero keeps close-to-open consistency. Otherwise a program may
    /// see a file as it was that long ago, unless this client changed it or was told of a change.
    pub open_ttl: Duration,
    /// Whether extended attributes are served. A volume with ACLs serves them in any case.
    pub xattr: bool,
    /// Whether file capabilities are stored. Extended attributes are then served for them, and the
    /// kernel reads them before each write.
    pub capabilities: bool,
    /// Whether labels of `SELinux` are kept, for which extended attributes are served.
    pub selinux: bool,
    /// Whether the kernel may keep listings of directories, as long as it believes that their
    /// mtime is right.
    pub readdir_cache: bool,
    /// Replaces the umask of callers.
    pub umask: Option<u16>,
    /// Changes the identity of callers.
    pub squash: Option<Squash>,
    /// When reading changes access times.
    pub atime: AtimeMode,
    /// Internal files are not listed.
    pub hide_internal: bool,
    /// Internal files are called `.jfs.stats` and so on.
    pub prefix_internal: bool,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Whether this client runs the hourly cleanup.
    pub cleaning: bool,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// What `.config` shows besides the volume's settings; secrets must not be in it.
    pub shown: serde_json::Map<String, serde_json::Value>,
    /// Called when the volume was destroyed, or this client may no longer use it.
    pub on_ended: Option<OnEnded>,
    /// Storage class of what this client writes, as metrics name it; empty for the default.
    pub storage_class: String,
    /// Adds metrics to those that this client shows.
    pub metrics: Option<MoreMetrics>,
    /// Where is kept what a successor must know if this process dies.
    pub journal: Option<Arc<Journal>>,
    /// Where the background work is done, instead of on threads of its own: for many volumes in one
    /// process.
    pub timetable: Option<Timetable>,
}

impl VfsConfig {
    /// The longest that the kernel is allowed to cache anything.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.attr_ttl.max(self.entry_ttl).max(self.dir_entry_ttl).max(self.negative_ttl)
    }
}

impl Default for VfsConfig {
    fn default() -> Self {
        Self {
            root: Ino::ROOT,
            attr_ttl: Duration::from_secs(1),
            entry_ttl: Duration::from_secs(1),
            dir_entry_ttl: Duration::from_secs(1),
            negative_ttl: Duration::ZERO,
            open_ttl: Duration::ZERO,
            xattr: false,
            capabilities: false,
            selinux: false,
            readdir_cache: false,
            umask: None,
            squash: None,
            atime: AtimeMode::Never,
            hide_internal: false,
            prefix_internal: false,
            heartbeat: Duration::from_secs(12),
            cleaning: true,
            clock: Arc::new(SystemClock),
            shown: serde_json::Map::new(),
            on_ended: None,
            storage_class: String::new(),
            metrics: None,
            journal: None,
            timetable: None,
        }
    }
}

impl fmt::Debug for VfsConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VfsConfig")
            .field("root", &self.root)
            .field("attr_ttl", &self.attr_ttl)
            .finish_non_exhaustive()
    }
}
