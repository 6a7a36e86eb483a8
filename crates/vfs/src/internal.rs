//! The internal files, which exist only in a mount: `.accesslog`, `.stats`, `.config`, `.control`.
//! The name `.trash` leads to the trash.
//!
//! What must stay true: no request for an internal file reaches an engine. Their names cannot be
//! created or removed.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sluice_types::{FileType, Ino, Time};

use crate::{
    accesslog::LogReader,
    config::VfsConfig,
    control::{ControlHandle, ControlUse},
};

pub(crate) const LOG: Ino = Ino(Ino::INTERNAL.0 + 1);
pub(crate) const CONTROL: Ino = Ino(Ino::INTERNAL.0 + 2);
pub(crate) const STATS: Ino = Ino(Ino::INTERNAL.0 + 3);
pub(crate) const CONFIG: Ino = Ino(Ino::INTERNAL.0 + 4);

/// Name, inode and permissions of each. The first is in every directory, the others in the root.
const FILES: [(&str, Ino, u16); 4] = [
    (".control", CONTROL, 0o666),
    (".accesslog", LOG, 0o400),
    (".stats", STATS, 0o444),
    (".config", CONFIG, 0o400),
];
const TRASH: &str = ".trash";
/// Prefix of their names, if the mount uses it.
const PREFIX: &str = ".jfs";

/// Whether a mount may show an internal file by that name, at least in the root. No file should be
/// created with such a name.
pub fn is_reserved(name: &str) -> bool {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    name == TRASH || FILES.iter().any(|(own, ..)| *own == name)
}

/// The names of the internal files of a mount.
pub(crate) struct Internals {
    pub(crate) names: Vec<(String, Ino, u16)>,
    trash: String,
    hidden: bool,
    pub(crate) since: Time,
    /// The user of the server process, who may read files that other users may not.
    pub(crate) owner: (u32, u32),
    /// The resources of all open `.control` files.
    pub(crate) control: Arc<ControlUse>,
}

/// An open internal file.
pub(crate) enum InternalHandle {
    Log(Arc<LogReader>),
    Stats(OnceLock<Bytes>),
    Config(OnceLock<Bytes>),
    Control(ControlHandle),
}

impl Internals {
    pub(crate) fn new(config: &VfsConfig) -> Self {
        let prefix = if config.prefix_internal { PREFIX } else { "" };
        let names = FILES.iter().map(|(name, ino, mode)| (format!("{prefix}{name}"), *ino, *mode)).collect();
        let trash = format!("{prefix}{TRASH}");
        let owner = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Self {
            names,
            trash,
            hidden: config.hide_internal,
            since: config.clock.now(),
            owner,
            control: Arc::default(),
        }
    }

    pub(crate) fn find(&self, root: Ino, dir: Ino, name: &[u8]) -> Option<Ino> {
        if name.first() != Some(&b'.') {
            return None;
        }
        let (_, ino, _) = self.names.iter().find(|(known, ..)| known.as_bytes() == name)?;
        (*ino == CONTROL || dir == root).then_some(*ino)
    }

    pub(crate) fn is_trash(&self, root: Ino, dir: Ino, name: &[u8]) -> bool {
        dir == Ino::ROOT && root == Ino::ROOT && name == self.trash.as_bytes()
    }

    /// Whether such a name can neither be created nor removed.
    pub(crate) fn is_reserved(&self, root: Ino, dir: Ino, name: &[u8]) -> bool {
        self.find(root, dir, name).is_some() || self.is_trash(root, dir, name)
    }

    /// Names to be listed in `dir`.
    pub(crate) fn listed(&self, root: Ino, dir: Ino, has_trash: bool) -> Vec<(&str, Ino, FileType)> {
        if self.hidden || dir != root {
            return Vec::new();
        }
        let files = self.names.iter().skip(1).map(|(name, ino, _)| (name.as_str(), *ino, FileType::File));
        let trash =
            (has_trash && root == Ino::ROOT).then_some((self.trash.as_str(), Ino::TRASH, FileType::Dir));
        files.chain(trash).collect()
    }
}
