//! Open, create, flush and the last close of files.
//!
//! What must stay true: a file counts as open from before the round trip that opens it until after
//! its last close. Every open of a file reads from the engine, so that it sees what other clients
//! closed, unless the mount gave that up (`VfsConfig::open_ttl`).

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, Ordering},
};

use sluice_data::OpenWriter;
use sluice_meta::{
    Interrupt,
    op::{At, UnderLocks},
    ops::{
        acl::{AclKind, GetAcl},
        lookup::Lookup,
        truncate::Truncate,
    },
};
use sluice_types::{Access, Attr, AttrFlags, Caller, FileType, FsError, FsResult, Ino, Name};

use crate::{
    entry::Entry,
    handles::{FileHandle, Handle},
    meta_cache::OpenFile,
    names::NewNode,
    paths::{Dir, Found},
    vfs::Vfs,
};

/// The flag with which `execve(2)` opens.
const FMODE_EXEC: i32 = 0x20;

/// An open file or directory.
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// Its handle number.
    pub fh: u64,
    /// Whether the kernel's pages of it are still valid.
    pub keep_cache: bool,
    /// Whether its close needs no flush.
    pub no_flush: bool,
    /// Whether the kernel must not cache it at all.
    pub direct: bool,
    /// Whether it lies in the trash. A caller that opened it by another name has a stale name.
    pub trashed: bool,
    /// The attributes with which a file was opened.
    pub attr: Option<Attr>,
}

/// A file that is being opened. If this is dropped, the file is not open.
struct Opening<'v> {
    vfs: &'v Vfs,
    file: Arc<OpenFile>,
    done: bool,
}

impl Drop for Opening<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.vfs.leave(self.file.ino);
        }
    }
}

impl Vfs {
    /// Opens a file with the flags of `open(2)`. One trip, two more with `O_TRUNC`.
    pub fn open(&self, caller: &Caller, interrupt: &Interrupt, ino: Ino, flags: i32) -> FsResult<Opened> {
        if ino.is_internal() {
            return self.open_internal(caller, ino);
        }
        if let Some(opened) = self.opened_before(interrupt) {
            return Ok(opened);
        }
        let opening = self.opening(ino);
        self.meta.await_removal(ino, interrupt)?;
        let attr = self.attr_to_open(caller, interrupt, &opening.file, flags, None)?;
        Ok(self.opened(opening, &attr, flags, interrupt))
    }

    /// Opens what [`Self::walk_to_open`] found. No trip, but for one if this client changed the
    /// file meanwhile, and two with `O_TRUNC`.
    pub fn open_found(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        found: &Found,
        flags: i32,
    ) -> FsResult<Opened> {
        let ino = found.ino;
        self.meta.register_open(ino);
        let opening = Opening { vfs: self, file: self.cache().opened_later(ino, found.asked), done: false };
        self.meta.await_removal(ino, interrupt)?;
        // What ended before the file was entered is seen here, all else by the entered file.
        let changed =
            self.meta.deleted_since(ino, found.deletions) || self.cache().changed_since(ino, found.asked);
        let known = if changed { None } else { self.cache().learn(ino, found.attr, found.asked) };
        let attr = self.attr_to_open(caller, interrupt, &opening.file, flags, known)?;
        self.cache().answered(ino);
        Ok(self.opened(opening, &attr, flags, interrupt))
    }

    /// Makes a file and opens it; without `O_EXCL`, opens one that is there. Two trips for a new
    /// file.
    ///
    /// # Errors
    /// [`FsError::Again`] if `dir` is a guess ([`Self::guess`]) and wrong.
    pub fn create(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        dir: impl Into<Dir>,
        name: &[u8],
        node: NewNode,
        flags: i32,
    ) -> FsResult<(Entry, Opened)> {
        let place: Dir = dir.into();
        let dir = place.ino;
        if let Some(made) = self.created_before(interrupt, flags)? {
            return Ok(made);
        }
        let ino = self.new_ino(interrupt)?;
        let opening = self.opening(ino);
        let moment = self.cache().moment();
        match self.make_as(caller, interrupt, place, name, (ino, node), None) {
            Ok(entry) => {
                self.cache().learn(ino, entry.attr, moment);
                Ok((entry, self.opened(opening, &entry.attr, flags, interrupt)))
            }
            // An internal name exists and cannot be opened by this way.
            Err(FsError::Exists)
                if flags & libc::O_EXCL == 0 && !self.internals.is_reserved(self.root(), dir, name) =>
            {
                drop(opening);
                self.open_existing(caller, interrupt, &At::new(dir, Name::new(name)?), flags)
            }
            Err(error) => Err(error),
        }
    }

    /// Another client created the file just now.
    fn open_existing(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        at: &At,
        flags: i32,
    ) -> FsResult<(Entry, Opened)> {
        let asked = self.cache().moment();
        let (ino, attr) = self.meta.read(&Lookup(at.clone()), interrupt)?;
        match attr.kind {
            FileType::File => {}
            FileType::Dir => return Err(FsError::IsDir),
            FileType::Symlink => return Err(FsError::Loop),
            _ => return Err(FsError::Exists),
        }
        // The kernel did not know of the file, and has checked no permissions.
        let caller = Caller { admitted: false, ..caller.clone() };
        let opened = self.open(&caller, interrupt, ino, flags)?;
        let attr = match self.getattr(interrupt, ino) {
            Ok((attr, _)) => attr,
            Err(error) => {
                // The kernel gets no handle.
                self.cancel_open(opened.fh)?;
                return Err(error);
            }
        };
        Ok((self.cache().looked_up(at.dir, &at.name, asked, self.entry(ino, attr)), opened))
    }

    fn opening(&self, ino: Ino) -> Opening<'_> {
        let file = self.cache().opened(ino);
        self.meta.register_open(ino);
        Opening { vfs: self, file, done: false }
    }

    /// Attributes of a file, after checks that it may be opened with these flags. Truncates it
    /// first if the flags say so. `known` are the newest ones, if they are known.
    fn attr_to_open(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        file: &OpenFile,
        flags: i32,
        known: Option<Attr>,
    ) -> FsResult<Attr> {
        let mode = flags & libc::O_ACCMODE;
        let truncates = flags & libc::O_TRUNC != 0;
        if mode != libc::O_RDONLY || truncates {
            self.writable()?;
        }
        if truncates && mode == libc::O_WRONLY {
            // The truncation checks all permissions.
            return self.truncate_on_open(caller, interrupt, file);
        }
        let attr = match (known, file.recent(self.config.open_ttl)) {
            (Some(attr), _) | (None, Some((attr, _))) => attr,
            (None, None) => self.fetch(file.ino, interrupt)?,
        };
        match attr.kind {
            FileType::File => {}
            FileType::Dir => return Err(FsError::IsDir),
            _ => return Err(FsError::Invalid),
        }
        if mode != libc::O_RDONLY {
            let append_only = attr.flags.has(AttrFlags::APPEND);
            if attr.flags.has(AttrFlags::IMMUTABLE)
                || attr.parent.is_trash_hour()
                || append_only && (flags & libc::O_APPEND == 0 || truncates)
            {
                return Err(FsError::Perm);
            }
        }
        self.check_open(caller, interrupt, file.ino, &attr, flags)?;
        // The kernel itself refuses writers of a running program. But it checks this combination
        // only after the truncation.
        if truncates && mode == libc::O_RDONLY && file.running.load(Ordering::Relaxed) > 0 {
            return Err(FsError::TextBusy);
        }
        if truncates { self.truncate_on_open(caller, interrupt, file) } else { Ok(attr) }
    }

    fn check_open(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        attr: &Attr,
        flags: i32,
    ) -> FsResult<()> {
        if caller.passes_modes() {
            return Ok(());
        }
        let wanted = match flags & libc::O_ACCMODE {
            libc::O_RDONLY if flags & FMODE_EXEC != 0 => Access::EXEC,
            libc::O_RDONLY => Access::READ,
            libc::O_WRONLY => Access::WRITE,
            _ => Access(Access::READ.0 | Access::WRITE.0),
        };
        if attr.access_acl != 0 && attr.mode & 0o070 != 0 {
            let rule = self.meta.read(&GetAcl { ino, kind: AclKind::Access }, interrupt)?;
            return rule.check(attr, caller, wanted);
        }
        caller.check_mode(attr, wanted)
    }

    /// Stores what was written to a file before it is truncated, also what is after its new end:
    /// the truncation may yet be refused. The next fsync or close of whoever wrote reports an
    /// error.
    ///
    /// # Errors
    /// Some of it could not even be sent on its way: stored later, it would come back after the
    /// truncation.
    pub(crate) fn flush_before_truncate(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        let Err(error) = self.data.flush_for(ino, interrupt) else { return Ok(()) };
        if error == FsError::Interrupted {
            return Err(error);
        }
        tracing::warn!(%ino, %error, "what was written to a file could not be stored before it is truncated");
        if self.data.dirty_end(ino) > 0 { Err(error) } else { Ok(()) }
    }

    /// Truncates a file that is being opened. Written data is stored first, and no other thread
    /// writes meanwhile.
    fn truncate_on_open(&self, caller: &Caller, interrupt: &Interrupt, file: &OpenFile) -> FsResult<Attr> {
        let _content = file.hold_content_alone(interrupt)?;
        self.flush_before_truncate(file.ino, interrupt)?;
        let attr =
            self.run_truncate(caller, interrupt, (file.ino, None), 0, (false, !caller.is_privileged()))?;
        self.drop_capability(interrupt, file.ino)?;
        Ok(attr)
    }

    /// Truncates a file. Fails if the request came through a handle that lost a lock.
    pub(crate) fn run_truncate(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        (ino, handle): (Ino, Option<&FileHandle>),
        length: u64,
        (opened, kill_suid): (bool, bool),
    ) -> FsResult<Attr> {
        let op = Truncate { ino, length, opened, kill_suid, caller: caller.clone() };
        let op = UnderLocks { op, fences: handle.and_then(|handle| handle.locks.since()) };
        self.index.change(ino, op, interrupt, |attr| *attr, || self.cache().content_changed(ino))
    }

    fn opened(&self, mut opening: Opening<'_>, attr: &Attr, flags: i32, interrupt: &Interrupt) -> Opened {
        opening.done = true;
        let ino = opening.file.ino;
        let file = Arc::clone(&opening.file);
        let fh = self.new_handle();
        // Reads from the kernel's pages do not set the access time. After a truncation there is
        // nothing to keep.
        let may_keep = flags & libc::O_TRUNC == 0 && !self.access_is_due(attr);
        let keep_cache = self.cache().pages_opened(ino, attr, fh, may_keep);
        self.insert_file(fh, file, flags);
        if let Some(journal) = &self.config.journal {
            journal.opened(fh, ino, flags, interrupt.asked().map_or(0, |asked| asked.unique));
        }
        // Without a flush, the server would not release the record locks at a close.
        let (trashed, attr) = (attr.parent.is_trash_hour(), Some(*attr));
        Opened { fh, keep_cache, no_flush: false, direct: false, trashed, attr }
    }

    /// Opens a file that this client made.
    pub(crate) fn open_made(&self, interrupt: &Interrupt, ino: Ino, attr: &Attr, flags: i32) -> Opened {
        let opening = self.opening(ino);
        self.opened(opening, attr, flags, interrupt)
    }

    /// Makes a handle, with this number, for a file that was entered.
    pub(crate) fn insert_file(&self, fh: u64, file: Arc<OpenFile>, flags: i32) -> Arc<FileHandle> {
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let writer = writes.then(|| self.data.open_writer(file.ino));
        let runs = flags & FMODE_EXEC != 0;
        file.running.fetch_add(u32::from(runs), Ordering::Relaxed);
        let (reader, locks, unreported) = (self.data.reader(file.ino), Arc::default(), AtomicU8::new(0));
        let used = AtomicBool::new(false);
        let handle = Arc::new(FileHandle { fh, file, reader, writer, locks, runs, used, unreported });
        self.handles.insert(fh, Handle::File(Arc::clone(&handle)));
        handle
    }

    /// A descriptor was closed: stores written data, and releases the POSIX locks of `owner`.
    ///
    /// # Errors
    /// What failed with any data written since the last fsync. The next fsync reports it again,
    /// because this may be the descriptor of a child process that ignores the result.
    pub fn flush(&self, fh: u64, owner: u64) -> FsResult<()> {
        let Handle::File(handle) = self.handles.get(fh)? else { return Ok(()) };
        self.used(&handle);
        let flushed = handle.writer.as_ref().map_or(Ok(()), OpenWriter::flush);
        self.stored(&handle, &flushed);
        self.release_plocks(&handle.file, owner);
        flushed.and_then(|()| self.report_lost(&handle, true))
    }

    /// Makes written data survive a crash. If a lock on the file was lost, this reports it, and
    /// data that was not stored before is discarded.
    pub fn fsync(&self, interrupt: &Interrupt, fh: u64) -> FsResult<()> {
        match self.handles.get(fh)? {
            Handle::File(handle) => {
                // A caller that was interrupted gets no report of a failure.
                let reported = || !interrupt.is_set();
                if let Some(writer) = &handle.writer {
                    let stored = writer.fsync(reported);
                    self.stored(&handle, &stored);
                    stored?;
                } else if let Some(writer) = self.data.find_writer(handle.file.ino) {
                    writer.fsync(reported)?;
                } else {
                    // Data that was written and closed before may still wait for its upload.
                    self.data.harden()?;
                }
                self.meta.sync()?;
                if reported() {
                    self.report_lost(&handle, false)?;
                }
                self.locks_hold(&handle)
            }
            Handle::Dir(_) => self.meta.sync(),
            Handle::Internal(_) => Ok(()),
        }
    }

    /// Stores what any handle of this client wrote to a file.
    pub(crate) fn flush_ino(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        self.data.flush_for(ino, interrupt)
    }

    /// The last descriptor of an open file was closed: releases the BSD locks of `flock_owner`.
    pub fn release(&self, fh: u64, flock_owner: Option<u64>) -> FsResult<()> {
        let handle = match self.handles.remove(fh).ok_or(FsError::BadFd)? {
            Handle::File(handle) => handle,
            Handle::Dir(_) => return Ok(()),
            Handle::Internal(handle) => {
                self.close_internal(&handle);
                self.closed(fh, None);
                return Ok(());
            }
        };
        let ino = handle.file.ino;
        self.used(&handle);
        let flushed = handle.writer.as_ref().map_or(Ok(()), OpenWriter::flush);
        self.stored(&handle, &flushed);
        if let Some(owner) = flock_owner {
            self.release_flock(ino, owner);
        }
        self.release_plocks_of(&handle.file, fh);
        handle.file.running.fetch_sub(u32::from(handle.runs), Ordering::Relaxed);
        self.closed(fh, Some(&handle));
        drop(handle);
        self.leave(ino);
        flushed
    }

    /// As [`Self::release`], for an open that failed for the kernel. The next open is not compared
    /// with this one.
    pub fn cancel_open(&self, fh: u64) -> FsResult<()> {
        if let Ok(Handle::File(handle)) = self.handles.get(fh) {
            // The kernel drops no pages for it.
            handle.used.store(true, Ordering::Relaxed);
            self.cache().doubt_pages(handle.file.ino);
        }
        self.release(fh, None)
    }

    /// A request came through a handle. So the kernel has the answer to the open.
    pub(crate) fn used(&self, handle: &FileHandle) {
        if !handle.used.load(Ordering::Relaxed) {
            handle.used.store(true, Ordering::Relaxed);
            self.cache().pages_confirmed(handle.file.ino, handle.fh);
        }
    }

    /// Written data was stored, or not: then the kernel has pages that are not in the file.
    fn stored(&self, handle: &FileHandle, stored: &FsResult<()>) {
        if stored.is_err() {
            self.cache().drop_pages(handle.file.ino);
        }
    }

    /// One handle less of a file.
    pub(crate) fn leave(&self, ino: Ino) {
        // First, so that a thread that finds no more handles here may delete the file.
        self.meta.unregister_open(ino);
        let left = self.cache().closed(ino);
        if left.last && left.unlinked {
            self.drop_sustained(ino);
        }
    }
}
