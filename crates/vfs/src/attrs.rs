//! Lookup, attributes and the size of the volume.
//!
//! What must stay true: the attributes that are returned include what this client wrote and has not
//! flushed.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use sluice_meta::{
    EffectKind, Interrupt,
    op::At,
    ops::{
        getattr::GetAttr,
        lookup::Lookup,
        readlink::Readlink,
        setattr::{Changes, SetAttr},
    },
};
use sluice_types::{Attr, Caller, FsError, FsResult, Ino, Name};

use crate::{entry::Entry, timed_query::TIMEOUT, vfs::Vfs};

/// Bytes of a volume without a limit.
const UNLIMITED_BYTES: u64 = 1 << 50;
/// Free inodes of a volume without a limit.
const UNLIMITED_INODES: u64 = 10 << 20;

/// The size of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VolumeSize {
    /// Bytes in all.
    pub total: u64,
    /// Bytes in use.
    pub used: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Inodes that can still be made.
    pub free_inodes: u64,
}

impl Vfs {
    /// Looks a name up. One trip, none for internal files and for names whose directory was read
    /// as one page.
    pub fn lookup(&self, caller: &Caller, interrupt: &Interrupt, dir: Ino, name: &[u8]) -> FsResult<Entry> {
        if let Some(entry) = self.lookup_internal(dir, name, interrupt)? {
            return Ok(entry);
        }
        let at = At::new(dir, Name::new(name)?);
        let _ = caller;
        if let Some(entry) = self.lookup_prefetched(interrupt, dir, &at.name) {
            return Ok(entry);
        }
        let moment = self.cache().moment();
        let (ino, attr) = self.meta.read_cached(&Lookup(at.clone()), interrupt)?;
        let shown = self.shown(ino, attr, moment, interrupt);
        self.cache().answered(ino);
        Ok(self.cache().looked_up(dir, &at.name, moment, self.entry(ino, shown)))
    }

    /// How long the kernel may cache that a name is absent, if a lookup that begins now says so.
    pub fn absent_ttl(&self, dir: Ino, name: &[u8]) -> Duration {
        match self.config.negative_ttl {
            Duration::ZERO => Duration::ZERO,
            // For each change that is announced from here on, this name is invalidated in the
            // kernel. The kernel waits for the answer first.
            ttl => self.cache().absent_ttl(dir, &Name::stored(name), ttl),
        }
    }

    /// How long the kernel may cache the attributes of the answer that follows.
    pub fn attr_ttl(&self, ino: Ino) -> Duration {
        self.cache().attr_ttl(ino, self.config.attr_ttl)
    }

    /// Attributes, and how long they may be cached. At most one trip.
    pub fn getattr(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<(Attr, Duration)> {
        if ino.is_internal() {
            return Ok((self.internal_attr(ino)?, self.config.attr_ttl));
        }
        let ttl = self.attr_ttl(ino);
        let recent = self.cache().dir_attr(ino, ttl).or_else(|| self.recent_of_open(ino, ttl));
        if let Some(recent) = recent {
            return Ok(recent);
        }
        if ino == self.root()
            && let Some(attr) = self.attr_of_root(ttl)
        {
            return Ok(attr);
        }
        let moment = self.cache().moment();
        match self.meta.read_cached(&GetAttr(ino), interrupt) {
            Ok(attr) => {
                let shown = self.shown(ino, attr, moment, interrupt);
                self.cache().answered(ino);
                Ok((shown, ttl))
            }
            Err(FsError::NotFound) => {
                self.cache().removed_attr(ino).map(|attr| (attr, ttl)).ok_or(FsError::NotFound)
            }
            Err(error) => Err(error),
        }
    }

    /// Attributes of the root. `df` requests them before it requests the size. If the engine does
    /// not answer soon, these are the last known attributes, and the kernel must not cache them.
    /// `None` if none are known, or if there is no root.
    fn attr_of_root(&self, ttl: Duration) -> Option<(Attr, Duration)> {
        let (meta, root) = (Arc::downgrade(&self.meta), self.root());
        let query = move || match meta.upgrade()?.read_cached(&GetAttr(root), &Interrupt::never()) {
            Ok(attr) => Some(Some(attr)),
            Err(FsError::NotFound) => Some(None),
            Err(_) => None,
        };
        if let Some(answer) = self.root_attr.get(TIMEOUT, query) {
            return Some((answer?, ttl));
        }
        let last = self.root_attr.last()??;
        let left = self.cache().root_attr().filter(|left| left.ctime > last.ctime);
        Some((left.unwrap_or(last), Duration::ZERO))
    }

    /// Attributes as the engine has them now. If the file is open, the cache keeps them.
    pub(crate) fn fetch(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Attr> {
        let moment = self.cache().moment();
        let attr = self.meta.read(&GetAttr(ino), interrupt)?;
        let learned = self.cache().learn(ino, attr, moment).unwrap_or(attr);
        self.cache().answered(ino);
        Ok(learned)
    }

    /// Changes owner, mode, times and flags. At most two trips, one if the records are cached. What
    /// was written before a time is stored first.
    pub fn setattr(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        changes: Changes,
    ) -> FsResult<Attr> {
        if ino.is_internal() {
            return self.internal_attr(ino);
        }
        if self.was_done(interrupt, EffectKind::SetAttr) {
            return Ok(self.getattr(interrupt, ino)?.0);
        }
        let sets_time = changes.mtime.is_some();
        let op = SetAttr { ino, changes, caller: caller.clone() };
        let moment = self.cache().moment();
        let attr = if sets_time {
            // Otherwise a later commit would set the time of the write.
            self.index.set_after_flush(op, interrupt, || self.flush_ino(ino, interrupt))?
        } else {
            self.index.set(op, interrupt)?
        };
        Ok(self.shown(ino, attr, moment, interrupt))
    }

    /// Target of a symbolic link. One trip.
    pub fn readlink(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<Bytes> {
        self.meta.read(&Readlink(ino), interrupt)
    }

    /// Used and total size of the volume. At most one trip. If the engine does not answer soon, it
    /// is computed from the numbers of the last heartbeat and this client's changes since.
    pub fn statfs(&self) -> VolumeSize {
        let meta = Arc::downgrade(&self.meta);
        let query = move || meta.upgrade()?.stored_usage(&Interrupt::never()).ok();
        self.size_at(self.used.get(TIMEOUT, query).unwrap_or_else(|| self.meta.env().used()))
    }

    /// The size of the volume, given the used bytes and inodes.
    pub(crate) fn size_at(&self, (used, inodes): (i64, i64)) -> VolumeSize {
        let format = self.meta.env().format();
        let (used, inodes) = (used.max(0) as u64, inodes.max(0) as u64);
        let mut total = format.capacity;
        if total == 0 {
            total = UNLIMITED_BYTES;
            while used > total / 10 * 8 && total < 1 << 63 {
                total *= 2;
            }
        }
        let mut free_inodes = format.inodes.saturating_sub(inodes);
        if format.inodes == 0 {
            free_inodes = UNLIMITED_INODES;
            while inodes > (inodes + free_inodes) / 10 * 8 && free_inodes < 1 << 62 {
                free_inodes *= 2;
            }
        }
        VolumeSize { total: total.max(used), used, inodes, free_inodes }
    }
}
