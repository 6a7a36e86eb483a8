//! Requests that the kernel sends again to a successor of a dead process. If the dead process
//! completed a request, the request is not run again. It gets the answer that the dead process
//! would have sent.
//!
//! What must stay true: a request counts as done only if its commit happened.

use std::sync::atomic::Ordering;

use sluice_meta::{Asked, EffectKind, Interrupt};
use sluice_types::{FileType, FsError, FsResult, Ino};

use crate::{entry::Entry, handle_locks::Lock, handles::FileHandle, journal::Found, open::Opened, vfs::Vfs};

/// Calls that report lost data.
pub(crate) const BY_CLOSE: u8 = 1;
pub(crate) const BY_SYNC: u8 = 2;

impl Vfs {
    /// The effect of this kind of a request that is sent again.
    pub(crate) fn effect_of(&self, asked: Option<Asked>, kind: EffectKind) -> Option<Found> {
        let asked = asked.filter(|asked| asked.again)?;
        self.past.get()?.effect(asked.unique, kind, self.meta.taken_up())
    }

    /// Whether a request is sent again, and had this effect.
    pub(crate) fn was_done(&self, interrupt: &Interrupt, kind: EffectKind) -> bool {
        matches!(self.effect_of(interrupt.asked(), kind), Some(Found::Done(_)))
    }

    /// The entry that was created by a request that is sent again.
    pub(crate) fn made_before(&self, interrupt: &Interrupt, kind: EffectKind) -> FsResult<Option<Entry>> {
        let entry = |ino| Ok(self.entry(ino, self.getattr(interrupt, ino)?.0));
        match self.effect_of(interrupt.asked(), kind) {
            Some(Found::Done(ino)) => entry(Ino(ino)).map(Some),
            // Inode numbers are used once: if the node exists, this request created it.
            Some(Found::Unknown(ino)) if kind == EffectKind::Create => match entry(Ino(ino)) {
                Err(FsError::NotFound) => Ok(None),
                found => found.map(Some),
            },
            Some(Found::Unknown(_)) | None => Ok(None),
        }
    }

    /// The handle that was opened by a request that is sent again.
    pub(crate) fn handle_of(&self, interrupt: &Interrupt) -> Option<u64> {
        let asked = interrupt.asked().filter(|asked| asked.again)?;
        let fh = self.past.get()?.opened_by(asked.unique)?;
        self.handles.get(fh).is_ok().then_some(fh)
    }

    /// The file that was opened by a request that is sent again.
    pub(crate) fn opened_before(&self, interrupt: &Interrupt) -> Option<Opened> {
        let fh = self.handle_of(interrupt)?;
        Some(Opened { fh, ..Opened::default() })
    }

    /// The file that was created and opened by a request that is sent again. If it was only
    /// created, this opens it.
    pub(crate) fn created_before(
        &self,
        interrupt: &Interrupt,
        flags: i32,
    ) -> FsResult<Option<(Entry, Opened)>> {
        if let Some(fh) = self.handle_of(interrupt) {
            let ino = self.handles.file(fh)?.file.ino;
            let entry = self.entry(ino, self.getattr(interrupt, ino)?.0);
            return Ok(Some((entry, Opened { fh, ..Opened::default() })));
        }
        let Some(entry) = self.made_before(interrupt, EffectKind::Create)? else { return Ok(None) };
        if entry.attr.kind != FileType::File {
            return Ok(None);
        }
        Ok(Some((entry, self.open_made(interrupt, entry.ino, &entry.attr, flags))))
    }

    /// A number for a new handle.
    pub(crate) fn new_handle(&self) -> u64 {
        let fh = self.handles.number();
        if let Some(journal) = &self.config.journal {
            journal.numbered(fh);
        }
        fh
    }

    /// A handle was closed.
    pub(crate) fn closed(&self, fh: u64, file: Option<&FileHandle>) {
        let Some(journal) = &self.config.journal else { return };
        if let Some(file) = file {
            for lock in file.locks.all() {
                journal.unlocked(fh, lock);
            }
            if file.unreported.load(Ordering::Relaxed) != 0 {
                journal.unreported(fh, 0);
            }
        }
        journal.closed(fh);
    }

    /// A lock was acquired through a handle.
    pub(crate) fn note_lock(&self, handle: &FileHandle, lock: Lock, fences: i64) {
        if handle.locks.acquired(lock, fences)
            && let Some(journal) = &self.config.journal
        {
            journal.locked(handle.fh, lock, fences);
        }
    }

    /// A lock was released.
    pub(crate) fn note_unlock(&self, handle: &FileHandle, lock: Lock) {
        handle.locks.released(lock);
        if let Some(journal) = &self.config.journal {
            journal.unlocked(handle.fh, lock);
        }
    }

    /// Reports lost data of a handle once by an fsync. A close before that reports it, too, because
    /// it may come from a child process that ignores the result.
    pub(crate) fn report_lost(&self, handle: &FileHandle, closes: bool) -> FsResult<()> {
        if handle.unreported.load(Ordering::Relaxed) == 0 {
            return Ok(());
        }
        let (call, others) = if closes { (BY_CLOSE, BY_SYNC) } else { (BY_SYNC, 0) };
        let before = handle.unreported.fetch_and(others, Ordering::Relaxed);
        if let Some(journal) = &self.config.journal {
            journal.unreported(handle.fh, before & others);
        }
        if before & call == 0 {
            return Ok(());
        }
        Err(FsError::io(
            "data that was written was lost: the process that had taken it died before it was stored",
        ))
    }
}
