//! The files that exist only in a mount: `.accesslog`, `.stats`, `.config`, `.control`; and the way to `.trash`.
//!
//! What must stay true: none of them ever reaches an engine, and no name of theirs can be made or removed.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sluice_meta::{Interrupt, ops::getattr::GetAttr};
use sluice_types::{Access, Attr, Caller, FileType, FsError, FsResult, Ino, Time};

use crate::{
    accesslog::LogReader,
    config::VfsConfig,
    control::{ControlHandle, ControlUse},
    handles::Handle,
    open::Opened,
    vfs::{Entry, Vfs},
};

const LOG: Ino = Ino(Ino::INTERNAL.0 + 1);
const CONTROL: Ino = Ino(Ino::INTERNAL.0 + 2);
const STATS: Ino = Ino(Ino::INTERNAL.0 + 3);
const CONFIG: Ino = Ino(Ino::INTERNAL.0 + 4);

/// Name, inode and permissions of each. The first is in every directory, the others in the root.
const FILES: [(&str, Ino, u16); 4] = [
    (".control", CONTROL, 0o666),
    (".accesslog", LOG, 0o400),
    (".stats", STATS, 0o444),
    (".config", CONFIG, 0o400),
];
const TRASH: &str = ".trash";
/// What their names begin with where that is asked for.
const PREFIX: &str = ".jfs";

/// Whether a mount may show something of its own by that name, in the root at least: nothing should be made there.
pub fn is_reserved(name: &str) -> bool {
    let name = name.strip_prefix(PREFIX).unwrap_or(name);
    name == TRASH || FILES.iter().any(|(own, ..)| *own == name)
}

/// What the internal files are called here.
pub(crate) struct Internals {
    names: Vec<(String, Ino, u16)>,
    trash: String,
    hidden: bool,
    since: Time,
    /// Who serves the mount may read what the others may not.
    owner: (u32, u32),
    /// What those who have `.control` open use.
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

    fn find(&self, root: Ino, dir: Ino, name: &[u8]) -> Option<Ino> {
        if name.first() != Some(&b'.') {
            return None;
        }
        let (_, ino, _) = self.names.iter().find(|(known, ..)| known.as_bytes() == name)?;
        (*ino == CONTROL || dir == root).then_some(*ino)
    }

    fn is_trash(&self, root: Ino, dir: Ino, name: &[u8]) -> bool {
        dir == Ino::ROOT && root == Ino::ROOT && name == self.trash.as_bytes()
    }

    /// Whether nobody can make or remove such a name.
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

impl Vfs {
    /// Looks an internal name up; `None` if it is not one.
    pub(crate) fn lookup_internal(
        &self,
        dir: Ino,
        name: &[u8],
        interrupt: &Interrupt,
    ) -> FsResult<Option<Entry>> {
        if let Some(ino) = self.internals.find(self.root(), dir, name) {
            return Ok(Some(self.entry(ino, self.internal_attr(ino)?)));
        }
        if self.internals.is_trash(self.root(), dir, name) {
            let attr = self.meta.ask(&GetAttr(Ino::TRASH), interrupt)?;
            return Ok(Some(self.entry(Ino::TRASH, attr)));
        }
        Ok(None)
    }

    pub(crate) fn internal_attr(&self, ino: Ino) -> FsResult<Attr> {
        let (_, _, mode) =
            self.internals.names.iter().find(|(_, known, _)| *known == ino).ok_or(FsError::NotFound)?;
        let (uid, gid) = self.internals.owner;
        Ok(Attr::new(FileType::File, *mode, uid, gid, self.root(), self.internals.since))
    }

    pub(crate) fn open_internal(&self, caller: &Caller, ino: Ino) -> FsResult<Opened> {
        caller.check_mode(&self.internal_attr(ino)?, Access::READ)?;
        let fh = self.new_handle();
        self.insert_internal(fh, ino)?;
        if let Some(journal) = &self.config.journal {
            journal.opened(fh, ino, libc::O_RDWR, 0);
        }
        Ok(Opened { fh, no_flush: true, direct: true, ..Opened::default() })
    }

    /// Opens an internal file under a number.
    pub(crate) fn insert_internal(&self, fh: u64, ino: Ino) -> FsResult<()> {
        let handle = match ino {
            LOG => InternalHandle::Log(self.log.open()),
            STATS => InternalHandle::Stats(OnceLock::new()),
            CONFIG => InternalHandle::Config(OnceLock::new()),
            CONTROL => InternalHandle::Control(ControlHandle::new(&self.internals.control)),
            _ => return Err(FsError::NotFound),
        };
        self.handles.insert(fh, Handle::Internal(Arc::new(handle)));
        Ok(())
    }

    pub(crate) fn close_internal(&self, handle: &InternalHandle) {
        match handle {
            InternalHandle::Log(reader) => self.log.close(reader),
            InternalHandle::Control(control) => control.close(),
            InternalHandle::Stats(_) | InternalHandle::Config(_) => {}
        }
    }

    pub(crate) fn read_internal(&self, handle: &InternalHandle, offset: u64, size: u32) -> Vec<Bytes> {
        let whole = match handle {
            InternalHandle::Log(reader) => return vec![reader.read(size as usize)],
            InternalHandle::Control(control) => return vec![control.read(offset, size)],
            InternalHandle::Stats(text) => text.get_or_init(|| self.stats_text().into()),
            InternalHandle::Config(text) => text.get_or_init(|| self.config_text().into()),
        };
        let from = (offset as usize).min(whole.len());
        let to = (from + size as usize).min(whole.len());
        vec![whole.slice(from..to)]
    }

    pub(crate) fn write_internal(
        self: &Arc<Self>,
        caller: &Caller,
        handle: &Arc<InternalHandle>,
        (offset, data): (u64, &[u8]),
    ) -> FsResult<u32> {
        match &**handle {
            InternalHandle::Control(_) => {
                self.control(caller, handle, offset, data);
                Ok(data.len() as u32)
            }
            _ => Err(FsError::Access),
        }
    }

    /// What `.config` shows.
    fn config_text(&self) -> String {
        let mut shown = self.config.shown.clone();
        let format = self.meta.env().format().masked();
        let format = serde_json::from_str(&format.to_json()).unwrap_or_default();
        shown.insert("Format".into(), format);
        let meta = shown.entry("Meta").or_insert_with(|| serde_json::Value::Object(serde_json::Map::new()));
        if let Some(meta) = meta.as_object_mut() {
            meta.insert("Sid".into(), self.meta.sid().into());
            meta.insert("ReadOnly".into(), self.meta.is_read_only().into());
        }
        serde_json::to_string_pretty(&shown).unwrap_or_default()
    }
}
