//! Flags about the mount itself.
//!
//! What must stay true: an unknown option is an error.

use anyhow::{Context, Result};
use clap::Args;
use sluice_fuse::{Config, Features, MountOptions};
use sluice_vfs::{Squash, VfsConfig};

use super::{Atime, UnusedFlags};
use crate::sizes;

/// How far the kernel reads ahead, in KiB. More makes fewer requests, but a page that is missing in
/// a mapping (`mmap`) is read with as many around it.
const READ_AHEAD_KIB: u32 = 512;

/// How the volume appears in the tree of directories.
#[derive(Args)]
#[command(next_help_heading = "Mount")]
pub(crate) struct FuseFlags {
    /// FUSE and mount(8) options, such as ro, allow_other, io_uring
    #[arg(short = 'o', value_name = "OPTIONS")]
    options: Vec<String>,
    /// Extended attributes (volumes with ACLs have them in any case)
    #[arg(long)]
    enable_xattr: bool,
    /// Capabilities of programs (setcap), and with them extended attributes; each write may cost
    /// one more look
    #[arg(long)]
    enable_cap: bool,
    /// Labels of SELinux (security.selinux), and with them extended attributes
    #[arg(long)]
    enable_selinux: bool,
    // Flags of files can always be read and changed.
    #[arg(long, hide = true)]
    enable_ioctl: bool,
    /// Make root this user and group
    #[arg(long, value_name = "UID:GID", value_parser = ids)]
    root_squash: Option<(u32, u32)>,
    /// Make everybody this user and group
    #[arg(long, value_name = "UID:GID", value_parser = ids, conflicts_with = "root_squash")]
    all_squash: Option<(u32, u32)>,
    /// Umask in octal, instead of that of each program
    #[arg(long, value_name = "MODE", value_parser = sizes::octal)]
    umask: Option<u16>,
    /// Do not list .stats, .trash and the like
    #[arg(long)]
    hide_internal: bool,
    /// Begin the names of internal files with .jfs
    #[arg(long)]
    prefix_internal: bool,
    /// Largest request [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    max_fuse_io: Option<u64>,
    /// How far the kernel reads ahead of a sequential reader of a file, for root [default: 512K;
    /// the kernel's 128K for other users]
    #[arg(long, value_name = "SIZE", value_parser = sizes::bytes)]
    kernel_readahead: Option<u64>,
    /// No huge pages for blocks in memory
    #[arg(long)]
    disable_transparent_hugepage: bool,
    #[arg(long, hide = true)]
    non_default_permission: bool,
}

fn ids(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("{text} is not UID:GID, such as 1000:1000");
    let (uid, gid) = text.split_once(':').ok_or_else(wrong)?;
    Ok((uid.parse().map_err(|_| wrong())?, gid.parse().map_err(|_| wrong())?))
}

impl FuseFlags {
    /// Notes what does nothing.
    pub(crate) fn unused(&self, unused: &mut UnusedFlags) {
        // With it the kernel believes no size and no time of a file but its own: what other clients
        // append would not be seen, and closing a file fails for writers who do not own it.
        let mut options = self.options.iter().flat_map(|options| options.split(','));
        unused.refuse(
            "-o writeback_cache",
            options.any(|option| option == "writeback_cache"),
            "the kernel would not see what other clients append, and closing a file would fail for writers who do \
             not own it; leave it out: writes are gathered here without it",
        );
        unused.refuse(
            "--non-default-permission",
            self.non_default_permission,
            "the kernel's check of permissions cannot be switched off",
        );
        unused.always(&["--enable-ioctl"]);
        let _ = (self.enable_ioctl, self.disable_transparent_hugepage);
    }

    /// Whether the options ask for a mount that changes nothing.
    pub(crate) fn is_read_only(&self) -> bool {
        let mut options = self.options.iter().flat_map(|options| options.split(','));
        options.rfind(|option| matches!(*option, "ro" | "rw")) == Some("ro")
    }

    /// The options, if they ask for a change of a mount that is there.
    pub(crate) fn remount(&self) -> Option<String> {
        let mut options = self.options.iter().flat_map(|options| options.split(','));
        options.any(|option| option == "remount").then(|| self.options.join(","))
    }

    /// What the options say of access times; the last one wins.
    pub(crate) fn atime(&self) -> Option<Atime> {
        let options = self.options.iter().flat_map(|options| options.split(','));
        options.rev().find_map(|option| match option {
            "noatime" => Some(Atime::Noatime),
            "relatime" => Some(Atime::Relatime),
            "strictatime" => Some(Atime::Strictatime),
            _ => None,
        })
    }

    /// The part that the file system has to know.
    pub(crate) fn apply(&self, vfs: &mut VfsConfig) {
        vfs.xattr = self.enable_xattr;
        vfs.capabilities = self.enable_cap;
        vfs.selinux = self.enable_selinux;
        vfs.umask = self.umask;
        vfs.hide_internal = self.hide_internal;
        vfs.prefix_internal = self.prefix_internal;
        let squash = |all: bool| move |(uid, gid)| Squash { all, uid, gid };
        vfs.squash = self.all_squash.map(squash(true)).or(self.root_squash.map(squash(false)));
    }

    /// Options and settings of the mount of volume `name`.
    pub(crate) fn mount_options(&self, name: &str, features: Features) -> Result<(MountOptions, Config)> {
        let mut options = MountOptions::new(format!("Sluice:{name}"), "sluice");
        // As JuiceFS: root mounts for all.
        options.allow_other = rustix::process::geteuid().is_root();
        let mut config = Config { features, ..Config::default() };
        for option in self.options.iter().flat_map(|options| options.split(',')) {
            match option {
                // Always so, or of no meaning here.
                "async_dio" | "debug" | "big_writes" | "async_read" => {}
                option => options.apply(option).context("option -o")?,
            }
        }
        config.read_ahead_kb = match self.kernel_readahead {
            Some(size) => Some(u32::try_from(size >> 10).unwrap_or(u32::MAX)),
            None => rustix::process::geteuid().is_root().then_some(READ_AHEAD_KIB),
        };
        if let Some(size) = self.max_fuse_io {
            config.max_write = size.clamp(4096, 16 << 20) as u32;
            config.max_readahead = config.max_readahead.max(config.max_write);
        }
        Ok((options, config))
    }
}
