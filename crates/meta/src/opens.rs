//! The files that this client has open, and the files that it is about to delete because it does
//! not have them open.
//!
//! What must stay true: if a batch found that a file is not open here, no thread opens the file
//! before the end of that batch. An open in between waits for the end, and then checks whether the
//! file still exists.

use std::{cell::RefCell, time::Duration};

use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{FsError, FsResult, Ino, wait};

use crate::batch::Interrupt;

/// How often a waiting thread checks whether it was interrupted.
const INTERRUPT_POLL: Duration = Duration::from_millis(50);

/// Classes of files whose last deletion is kept.
const CLASSES: usize = 1024;

/// Files that are open here, or being opened.
#[derive(Default)]
pub(crate) struct Opens {
    state: Mutex<State>,
    /// Signals the end of batches that delete files.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// Handles of each file.
    handles: FxHashMap<Ino, u32>,
    /// Files that running batches delete, each with the number of these batches.
    pending_deletes: FxHashMap<Ino, u32>,
    /// Files that batches deleted, or tried to.
    deletions: u64,
    /// The number of the last of them in each class of inodes.
    last_deletions: Vec<u64>,
}

impl State {
    fn deleted(&mut self, ino: Ino) {
        self.deletions += 1;
        self.last_deletions.resize(CLASSES, 0);
        self.last_deletions[ino.0 as usize % CLASSES] = self.deletions;
    }
}

impl Opens {
    /// Registers one more open handle. Called before the trip that opens, so that an unlink in the
    /// same client sees it.
    pub(crate) fn opened(&self, ino: Ino) {
        *self.state.lock().handles.entry(ino).or_default() += 1;
    }

    /// Unregisters a handle. Returns whether it was the last.
    pub(crate) fn closed(&self, ino: Ino) -> bool {
        let mut state = self.state.lock();
        match state.handles.get_mut(&ino) {
            Some(1) => state.handles.remove(&ino).is_some(),
            Some(count) => {
                *count -= 1;
                false
            }
            None => false,
        }
    }

    /// Whether this client has the file open.
    pub(crate) fn has(&self, ino: Ino) -> bool {
        self.state.lock().handles.contains_key(&ino)
    }

    /// Files that were deleted so far.
    pub(crate) fn deletions(&self) -> u64 {
        self.state.lock().deletions
    }

    /// Whether a file was deleted after so many others, or may have been.
    pub(crate) fn deleted_since(&self, ino: Ino, deletions: u64) -> bool {
        let state = self.state.lock();
        state.last_deletions.get(ino.0 as usize % CLASSES).is_some_and(|last| *last > deletions)
    }

    /// Waits, no longer than `timeout`, until no batch is about to destroy a file.
    ///
    /// # Errors
    /// `EINTR` if the wait was interrupted, `EIO` if it took too long.
    pub(crate) fn wait(&self, ino: Ino, timeout: Duration, interrupt: &Interrupt) -> FsResult<()> {
        let mut state = self.state.lock();
        let until = wait::now() + timeout;
        while state.pending_deletes.contains_key(&ino) {
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            if wait::now() >= until {
                return Err(FsError::io("whether the file was deleted could not be found out"));
            }
            wait::wait_for(&self.ended, &mut state, INTERRUPT_POLL);
        }
        Ok(())
    }
}

/// Files that one batch deletes because they were not open. Threads may open them again when this
/// is dropped.
pub(crate) struct PendingDeletes<'e> {
    opens: &'e Opens,
    inos: RefCell<FxHashSet<Ino>>,
    /// Files that were open when the batch first checked. It gets the same answer again.
    open: RefCell<FxHashSet<Ino>>,
}

impl<'e> PendingDeletes<'e> {
    pub(crate) fn new(opens: &'e Opens) -> Self {
        Self { opens, inos: RefCell::default(), open: RefCell::default() }
    }

    /// The files so far.
    pub(crate) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(self.opens))
    }

    /// Adds a file unless it is open. Returns whether it was added.
    pub(crate) fn add(&self, ino: Ino) -> bool {
        let mut state = self.opens.state.lock();
        if state.handles.contains_key(&ino) || self.open.borrow().contains(&ino) {
            self.open.borrow_mut().insert(ino);
            return false;
        }
        if self.inos.borrow_mut().insert(ino) {
            *state.pending_deletes.entry(ino).or_default() += 1;
        }
        true
    }
}

impl Drop for PendingDeletes<'_> {
    fn drop(&mut self) {
        let inos = self.inos.get_mut();
        if inos.is_empty() {
            return;
        }
        let mut state = self.opens.state.lock();
        for ino in inos.drain() {
            state.deleted(ino);
            match state.pending_deletes.get_mut(&ino) {
                Some(batches) if *batches > 1 => *batches -= 1,
                _ => drop(state.pending_deletes.remove(&ino)),
            }
        }
        drop(state);
        self.opens.ended.notify_all();
    }
}
