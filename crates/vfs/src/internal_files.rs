//! Operations on internal files.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use sluice_meta::{Interrupt, ops::getattr::GetAttr};
use sluice_types::{Access, Attr, Caller, FileType, FsError, FsResult, Ino};

use crate::internal::{CONFIG, CONTROL, InternalHandle, LOG, STATS};
use crate::{control::ControlHandle, entry::Entry, handles::Handle, open::Opened, vfs::Vfs};

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
            let attr = self.meta.read(&GetAttr(Ino::TRASH), interrupt)?;
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

    /// The text of `.config`.
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
