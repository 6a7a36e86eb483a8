//! A volume whose process died, taken up by another: handles come back under their numbers, with
//! their locks, with how far listings had come, and with what they have still to report of data
//! that was lost.
//!
//! What must stay true: it needs nobody's help, and may be begun again after another death in the
//! middle of it.

use std::sync::atomic::Ordering;

use sluice_meta::Interrupt;
use sluice_types::{FsResult, Ino};

use crate::{
    handle_locks::Lock,
    journal::Past,
    replay::{BY_CLOSE, BY_SYNC},
    vfs::Vfs,
};

/// What the kernel is to forget after a restore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Files and directories that are open: what the kernel knows of them may be old.
    pub open: Vec<Ino>,
    /// Files of which data was lost: the kernel has pages that nobody else will ever see.
    pub lost: Vec<Ino>,
    /// Requests that wait for an answer, of a kernel that does not ask again.
    pub underway: Vec<u64>,
}

impl Vfs {
    /// Takes up what a process that died had open. To be called before anything is served, with
    /// what the journal held that this one goes on with, once the metadata has taken up the
    /// session.
    ///
    /// # Errors
    /// The engine could not say which open files have no name.
    pub fn restore(&self, past: Past) -> FsResult<Restored> {
        self.handles.go_on(past.last);
        let mut restored = Restored::default();
        for file in &past.files {
            if file.ino.is_internal() {
                self.insert_internal(file.fh, file.ino)?;
                continue;
            }
            let open = self.cache().opened(file.ino);
            self.meta.register_open(file.ino);
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
            // Which handles have to report it is known by now.
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

    /// Files without a name are kept until their last close, and those that are not open any more
    /// go.
    fn restore_nameless(&self) -> FsResult<()> {
        for ino in self.meta.sustained(&Interrupt::never())? {
            self.cache().unlinked(ino);
        }
        Ok(())
    }

    /// Ends this process's part for a successor on the same machine: everything dirty is stored,
    /// the session and its locks stay, and the journal tells the rest. Nothing may be asked of the
    /// volume meanwhile or afterwards, and the process is to end before the other begins.
    ///
    /// # Errors
    /// The first thing that could not be stored: it is lost if this process ends.
    pub fn hand_over(&self) -> FsResult<()> {
        let flushed = self.data.flush_all();
        self.jobs.leave();
        flushed.and(self.meta.hand_over())
    }
}
