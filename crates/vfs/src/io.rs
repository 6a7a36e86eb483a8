//! Reading, writing, and everything else that touches the content of an open file.
//!
//! What must stay true: an operation that changes content only in the metadata (truncate, punch,
//! copy) excludes writers, and runs after all written data is committed.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use sluice_data::visible;
use sluice_meta::{
    Asked, Effect, EffectKind, Interrupt,
    op::UnderLocks,
    ops::{
        chunks::ReadChunks,
        copy_range::CopyRange,
        setattr::{Changes, SetAttr},
        touch::Touch,
        truncate::{Allocation, Fallocate},
    },
};
use sluice_types::{Attr, CHUNK_SIZE, Caller, FsError, FsResult, Ino, MAX_FILE_SIZE, align4k};

use crate::{
    config::AtimeMode,
    handles::{FileHandle, Handle},
    journal::Found,
    meta_cache::OpenFile,
    vfs::Vfs,
};

/// Chunks copied in one operation at most; more is a short copy, as the call allows.
const MAX_COPIED: u64 = 1024;
/// Chunks whose records a seek reads at once: 4 GiB of the file first, 4 TiB at most.
const SEEK_CHUNKS: Range<u32> = 64..65_536;

/// A position in an open file.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The open file.
    pub fh: u64,
    /// First byte.
    pub offset: u64,
}

impl Vfs {
    /// Reads up to `size` bytes; fewer only at the end of the file. No trip for chunks that were
    /// read before.
    pub fn read(&self, interrupt: &Interrupt, fh: u64, offset: u64, size: u32) -> FsResult<Vec<Bytes>> {
        let handle = match self.handles.get(fh)? {
            Handle::File(handle) => handle,
            Handle::Internal(handle) => return Ok(self.read_internal(&handle, offset, size)),
            Handle::Dir(_) => return Err(FsError::IsDir),
        };
        self.locks_hold(&handle)?;
        self.used(&handle);
        let length = self.length(&handle.file, interrupt)?;
        let pieces = handle.reader.read(offset, size, length, interrupt)?;
        self.touch(&handle.file, interrupt);
        let bytes = pieces.iter().map(|piece| piece.len() as u64).sum();
        self.observed.read.add(bytes);
        Ok(pieces)
    }

    /// Writes. The data is stored once [`flush`](Self::flush) or [`fsync`](Self::fsync) return.
    pub fn write(
        self: &Arc<Self>,
        caller: &Caller,
        interrupt: &Interrupt,
        Place { fh, offset }: Place,
        data: &[u8],
        kill_suid: bool,
    ) -> FsResult<u32> {
        let handle = match self.handles.get(fh)? {
            Handle::File(handle) => handle,
            Handle::Internal(handle) => return self.write_internal(caller, &handle, (offset, data)),
            Handle::Dir(_) => return Err(FsError::BadFd),
        };
        let writer = handle.writer.as_ref().ok_or(FsError::BadFd)?;
        self.locks_hold(&handle)?;
        self.used(&handle);
        let file = &handle.file;
        self.discard_under_lost_locks(file, interrupt)?;
        let end = offset.checked_add(data.len() as u64).filter(|end| *end <= MAX_FILE_SIZE);
        self.admit(file, end.ok_or(FsError::FileTooBig)?)?;
        if kill_suid {
            self.kill_suid(interrupt, file)?;
        }
        // A truncation holds this lock for as long as the store does not answer.
        let _content = file.hold_content(interrupt)?;
        // Check again under the content lock, because data written under lost locks is discarded
        // while this lock is held.
        self.locks_hold(&handle)?;
        let now = self.now();
        file.wrote(now);
        writer.write(offset, data, now, interrupt)?;
        self.observed.written.add(data.len() as u64);
        Ok(data.len() as u32)
    }

    /// Clears setuid and setgid of a file, if its writer may not keep them.
    fn kill_suid(&self, interrupt: &Interrupt, file: &OpenFile) -> FsResult<()> {
        if file.attr().is_none_or(|attr| attr.mode & 0o6000 != 0) {
            let changes = Changes { kill_suid: true, ..Changes::default() };
            let op = SetAttr { ino: file.ino, changes, caller: Caller::client() };
            self.index.set(op, interrupt)?;
        }
        Ok(())
    }

    /// The offset of an append: the end of the file as this client knows it. The kernel may not
    /// know yet what another client appended or truncated before the file was opened. `at_end` says
    /// that the kernel takes `offset` for the end. Otherwise `offset` may lie after other parts of
    /// the same call, and the data must not go before it. At most one trip.
    ///
    /// # Errors
    /// The engine was needed to find the end, and failed.
    pub fn append_at(
        &self,
        interrupt: &Interrupt,
        Place { fh, offset }: Place,
        at_end: bool,
    ) -> FsResult<u64> {
        let Ok(Handle::File(handle)) = self.handles.get(fh) else { return Ok(offset) };
        let end = self.length(&handle.file, interrupt)?;
        Ok(if at_end { end } else { end.max(offset) })
    }

    /// [`Self::append_at`], for a request that the kernel may have sent before. It then returns the
    /// offset that was chosen the first time.
    ///
    /// # Errors
    /// As there.
    pub fn append_by(
        &self,
        interrupt: &Interrupt,
        asked: Asked,
        place: Place,
        at_end: bool,
    ) -> FsResult<u64> {
        if let Some(Found::Done(at) | Found::Unknown(at)) = self.effect_of(Some(asked), EffectKind::Append) {
            return Ok(at);
        }
        let value = self.append_at(interrupt, place, at_end)?;
        if let Some(journal) = &self.config.journal {
            journal.decided(asked.unique, Effect { kind: EffectKind::Append, value });
        }
        Ok(value)
    }

    /// Fails if the volume is full, before data is taken that could not be stored.
    fn admit(&self, file: &OpenFile, end: u64) -> FsResult<()> {
        let capacity = self.meta.env().format().capacity;
        if capacity == 0 {
            return Ok(());
        }
        let more = file.attr().map_or(0, |attr| align4k(end) - attr.space());
        if more > 0 && self.meta.env().used().0 + more > capacity as i64 {
            return Err(FsError::NoSpace);
        }
        Ok(())
    }

    /// Fails if the volume has no room for this much. Volumes without a limit have the size that
    /// `df` shows.
    fn has_room(&self, file: &OpenFile, end: u64) -> FsResult<()> {
        let used = self.meta.env().used();
        let size = self.size_at(used);
        let more = (end / 4096)
            .saturating_mul(4096)
            .saturating_sub(file.attr().map_or(0, |attr| attr.space() as u64));
        if more > size.total - size.used { Err(FsError::NoSpace) } else { Ok(()) }
    }

    /// Truncates or extends a file to `length`; through `fh` if it is open. Two trips.
    pub fn truncate(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        (length, fh): (u64, Option<u64>),
        kill_suid: bool,
    ) -> FsResult<Attr> {
        if ino.is_internal() {
            return self.internal_attr(ino);
        }
        if self.was_done(interrupt, EffectKind::Truncate) {
            return Ok(self.getattr(interrupt, ino)?.0);
        }
        let handle = fh.and_then(|fh| self.handles.file(fh).ok()).filter(|handle| handle.file.ino == ino);
        if let Some(handle) = &handle {
            self.locks_hold(handle)?;
        }
        let opened = handle.as_ref().is_some_and(|handle| handle.writer.is_some());
        let file = self.cache().file(ino);
        let content = file.as_ref().map(|file| file.hold_content_alone(interrupt)).transpose()?;
        self.flush_before_truncate(ino, interrupt)?;
        let moment = self.cache().moment();
        let attr =
            self.run_truncate(caller, interrupt, (ino, handle.as_deref()), length, (opened, kill_suid))?;
        drop(content);
        Ok(self.shown(ino, attr, moment, interrupt))
    }

    /// Reserves, punches or zeroes a range. Two trips.
    pub fn fallocate(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        Place { fh, offset }: Place,
        length: u64,
        what: Allocation,
    ) -> FsResult<()> {
        let handle = self.writable_handle(fh)?;
        if self.was_done(interrupt, EffectKind::Allocate) {
            return Ok(());
        }
        let file = &handle.file;
        let ino = file.ino;
        if matches!(what, Allocation::Extend | Allocation::KeepSize) {
            self.has_room(file, offset.saturating_add(length))?;
        }
        // The kernel does not clear setuid for this call and for a copy. It leaves that to the
        // server.
        if !caller.is_privileged() {
            self.kill_suid(interrupt, file)?;
        }
        let _content = file.hold_content_alone(interrupt)?;
        self.flush_ino(ino, interrupt)?;
        let op = UnderLocks { op: Fallocate { ino, what, offset, length }, fences: handle.locks.since() };
        self.index.change(ino, op, interrupt, |attr| *attr, || self.cache().content_changed(ino))?;
        Ok(())
    }

    /// Copies within the volume, without a transfer of data. Two trips. Returns the number of
    /// bytes.
    pub fn copy_range(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        from: Place,
        to: Place,
        length: u64,
    ) -> FsResult<u64> {
        if let Some(Found::Done(length)) = self.effect_of(interrupt.asked(), EffectKind::Copy) {
            return Ok(length);
        }
        let source = self.handles.file(from.fh)?;
        self.locks_hold(&source)?;
        let target = self.writable_handle(to.fh)?;
        let fences = target.locks.since();
        let (source, target) = (&source.file, &target.file);
        if !caller.is_privileged() {
            self.kill_suid(interrupt, target)?;
        }
        let most = MAX_COPIED * CHUNK_SIZE - from.offset % CHUNK_SIZE;
        // Lock order: that of the lower inode first.
        let mut reads = None;
        if source.ino < target.ino {
            reads = Some(source.hold_content(interrupt)?);
        }
        let writes = target.hold_content_alone(interrupt)?;
        if source.ino > target.ino {
            reads = Some(source.hold_content(interrupt)?);
        }
        self.flush_ino(source.ino, interrupt)?;
        self.flush_ino(target.ino, interrupt)?;
        let op = CopyRange {
            from: source.ino,
            from_offset: from.offset,
            to: target.ino,
            to_offset: to.offset,
            length: length.min(most),
        };
        let op = UnderLocks { op, fences };
        let ended = || self.cache().content_changed(target.ino);
        let copied = self.index.change(target.ino, op, interrupt, |copied| copied.attr, ended)?;
        drop((reads, writes));
        Ok(copied.length)
    }

    /// First byte at or after `offset` that is data (or hole, if `data` is false). The end of the
    /// file counts as a hole. Reads the records of more chunks each time, until it is found.
    ///
    /// # Errors
    /// `ENXIO` beyond the end, or if there is no more data.
    pub fn seek(&self, interrupt: &Interrupt, Place { fh, offset }: Place, data: bool) -> FsResult<u64> {
        let handle = self.handles.file(fh)?;
        let ino = handle.file.ino;
        self.flush_ino(ino, interrupt)?;
        let length = self.length(&handle.file, interrupt)?;
        if offset >= length {
            return Err(FsError::NoDevice);
        }
        let mut at = offset;
        let (mut from, end) = ((offset / CHUNK_SIZE) as u32, length.div_ceil(CHUNK_SIZE) as u32);
        let mut window = SEEK_CHUNKS.start;
        while from < end {
            let to = end.min(from.saturating_add(window));
            for (index, records) in self.meta.read(&ReadChunks { ino, from, to }, interrupt)? {
                let start = u64::from(index) * CHUNK_SIZE;
                for piece in visible(&records) {
                    let (from, to) = (start + u64::from(piece.pos), start + u64::from(piece.end()));
                    if to <= at {
                        continue;
                    }
                    match (data, from <= at) {
                        (true, true) | (false, false) => return Ok(at.min(length)),
                        (true, false) if from < length => return Ok(from),
                        (true, false) => return Err(FsError::NoDevice),
                        (false, true) => at = to,
                    }
                }
            }
            if !data && at < u64::from(to) * CHUNK_SIZE {
                break;
            }
            (from, window) = (to, (window * 2).min(SEEK_CHUNKS.end));
        }
        if data { Err(FsError::NoDevice) } else { Ok(at.min(length)) }
    }

    fn writable_handle(&self, fh: u64) -> FsResult<Arc<FileHandle>> {
        let handle = self.handles.file(fh)?;
        if handle.writer.is_none() {
            return Err(FsError::BadFd);
        }
        self.locks_hold(&handle)?;
        Ok(handle)
    }

    /// Sets the access time after a read, if the mount maintains it.
    fn touch(&self, file: &OpenFile, interrupt: &Interrupt) {
        if self.config.atime == AtimeMode::Never {
            return;
        }
        if file.attr().is_some_and(|attr| self.access_is_due(&attr)) {
            let op = Touch { ino: file.ino, atime: self.now() };
            let touch = || self.meta.run(op, interrupt);
            if let Err(error) = self.cache().change(file.ino, touch, |attr| *attr) {
                tracing::debug!(ino = %file.ino, %error, "the access time could not be kept");
            }
        }
    }

    /// Whether reading a file now changes its access time.
    pub(crate) fn access_is_due(&self, attr: &Attr) -> bool {
        let since = || self.now().sec.saturating_sub(attr.atime.sec);
        match self.config.atime {
            AtimeMode::Never => false,
            _ if self.meta.is_read_only() => false,
            AtimeMode::Strict => since() > 0,
            AtimeMode::Relative => attr.atime <= attr.mtime || attr.atime <= attr.ctime || since() >= 86_400,
        }
    }
}
