//! Open files and directories by their handle numbers.
//!
//! What must stay true: a number is never used twice, so a late request cannot reach another file.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use sluice_data::{FileReader, OpenWriter};
use sluice_types::{FsError, FsResult};

use crate::{dir::DirHandle, handle_locks::HandleLocks, internal::InternalHandle, meta_cache::OpenFile};

/// An open file, directory or internal file.
#[derive(Clone)]
pub(crate) enum Handle {
    File(Arc<FileHandle>),
    Dir(Arc<DirHandle>),
    Internal(Arc<InternalHandle>),
}

/// An open file.
pub(crate) struct FileHandle {
    pub(crate) fh: u64,
    pub(crate) file: Arc<OpenFile>,
    pub(crate) reader: FileReader,
    /// Only if it is open for writing.
    pub(crate) writer: Option<OpenWriter>,
    /// Locks taken through it.
    pub(crate) locks: Arc<HandleLocks>,
    /// Whether `execve(2)` opened it: it is closed when the program ends.
    pub(crate) runs: bool,
    /// Whether a request came through it.
    pub(crate) used: AtomicBool,
    /// Which calls still have to report that data was lost with the previous process.
    pub(crate) unreported: AtomicU8,
}

/// All handles of a mount.
#[derive(Default)]
pub(crate) struct Handles {
    last: AtomicU64,
    table: RwLock<FxHashMap<u64, Handle>>,
}

impl Handles {
    /// A handle number that was never used.
    pub(crate) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Numbers up to this one were used by a previous process.
    pub(crate) fn go_on(&self, last: u64) {
        self.last.fetch_max(last, Ordering::Relaxed);
    }

    pub(crate) fn insert(&self, fh: u64, handle: Handle) {
        self.table.write().insert(fh, handle);
    }

    pub(crate) fn get(&self, fh: u64) -> FsResult<Handle> {
        self.table.read().get(&fh).cloned().ok_or(FsError::BadFd)
    }

    pub(crate) fn file(&self, fh: u64) -> FsResult<Arc<FileHandle>> {
        match self.table.read().get(&fh) {
            Some(Handle::File(file)) => Ok(Arc::clone(file)),
            _ => Err(FsError::BadFd),
        }
    }

    pub(crate) fn dir(&self, fh: u64) -> FsResult<Arc<DirHandle>> {
        match self.table.read().get(&fh) {
            Some(Handle::Dir(dir)) => Ok(Arc::clone(dir)),
            _ => Err(FsError::BadFd),
        }
    }

    pub(crate) fn remove(&self, fh: u64) -> Option<Handle> {
        self.table.write().remove(&fh)
    }

    pub(crate) fn len(&self) -> usize {
        self.table.read().len()
    }
}
