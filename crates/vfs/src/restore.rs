//! Restores a mount whose process died: handles get their old numbers, locks, positions of
//! listings, and the lost data that they still have to report.
//!
//! What must stay true: a restore needs no other process, and can be repeated after another death
//! in the middle of it.

use std::sync::atomic::Ordering;

use sluice_meta::Interrupt;
use sluice_types::{FsResult, Ino};

use crate::{
    handle_locks::Lock,
    journal::PreviousState,
    replay::{BY_CLOSE, BY_SYNC},
    vfs::{SETTLE_TIMEOUT_OF_UPGRADE, Vfs},
};

/// What must be invalidated in the kernel after a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files and directories that are open: the kernel's cache of them may be stale.
    pub open: Vec<Ino>,
    /// Files that lost data: the kernel has pages that were never stored.
    pub lost: Vec<Ino>,
    /// Requests that wait for an answer, if the kernel does not send them again.
    pub underway: Vec<u64>,
}

impl Vfs {
    /// Restores what a dead process had open. Call this before anything is served, and after the
    /// metadata has taken over the session. `past` is the content of the journal that this process
    /// continues.
    ///
    /// # Errors
    /// The engine could not return which open files have no name.
    pub fn restore(&self, past: PreviousState) -> FsResult<Restored> {
        self.handles.go_on(past.last);
        let mut restored = Restored::default();
        for file in &past.files {
            if file.ino.is_internal() {
                self.insert_internal(file.fh, file.ino)?;
                continue;
            }
            let open = self.cache().opened(file.ino);
            self.meta.register_open(file.ino);
            self.cache().pages_restored(file.ino);
            let handle = self.insert_file(file.fh, open, file.flags);
            let mut unreported = past.unreported.get(&file.fh).copied().unwrap_or(0);
            if past.dirty.contains(&file.ino) && handle.writer.is_some() {
                unreported = BY_CLOSE | BY_SYNC;
                if let Some(journal) = &self.config.journal {
                    journal.unreported(file.fh, unreported);
                }
            }
            handle.unreported.store(unreported, Ordering::Relaxed);
            if unreported != 0 {
                restored.lost.push(file.ino);
            }
            restored.open.push(file.ino);
        }
        for dir in &past.dirs {
            self.insert_dir(dir.fh, dir.ino, dir.pages.clone());
            restored.open.push(dir.ino);
        }
        restored.open.sort_unstable();
        restored.open.dedup();
        for (fh, lock, fences) in &past.locks {
            let Ok(handle) = self.handles.file(*fh) else { continue };
            handle.file.locked_through(&handle.locks);
            handle.locks.acquired(*lock, *fences);
            if let Lock::Plocks(owner) = lock {
                handle.file.plocks.lock().entry(*owner).or_default().push(*fh);
            }
        }
        restored.lost.extend(&past.dirty);
        restored.lost.sort_unstable();
        restored.lost.dedup();
        restored.underway.clone_from(&past.underway);
        self.restore_nameless()?;
        if let Some(journal) = &self.config.journal {
            // The handles that have to report it are in the journal by now.
            for ino in &restored.lost {
                journal.dirty(*ino, false);
            }
            if let Some(taken) = self.meta.taken_up() {
                journal.settle(&past, taken);
            }
        }
        tracing::info!(
            handles = past.handles(),
            lost = restored.lost.len(),
            "took the place of a process that died"
        );
        let _ = self.past.set(past.restored());
        Ok(restored)
    }

    /// Keeps files without a name that are open, and deletes those that are not open any more.
    fn restore_nameless(&self) -> FsResult<()> {
        for ino in self.meta.sustained(&Interrupt::never())? {
            self.cache().unlinked(ino);
        }
        Ok(())
    }

    /// Ends this process in favour of a successor on the same machine. It stores all dirty data.
    /// The session and its locks stay, and the journal holds the rest. No other call may run
    /// meanwhile or later, and this process must end before the successor begins.
    ///
    /// # Errors
    /// The first thing that could not be stored: it is lost if this process ends.
    pub fn hand_over(&self) -> FsResult<()> {
        let flushed = self.data.flush_all();
        self.settle(SETTLE_TIMEOUT_OF_UPGRADE);
        self.jobs.leave();
        flushed.and(self.meta.hand_over())
    }
}
