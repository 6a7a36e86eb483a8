//! Locks of `flock(2)` and `fcntl(2)`, held in the engine so that all clients see them.
//!
//! What must stay true: a waiter is registered before the try that fails, so that no release is
//! missed. No lock outlives the descriptor that held it. No call succeeds under a lock that was
//! lost.

use std::cell::Cell;

#[cfg(doc)]
use sluice_meta::LOCK_POLL_INTERVAL;
use sluice_meta::{
    Interrupt, Registered,
    ops::{
        flock::Flock,
        plock::{GetPlock, SetPlock},
    },
    schema::{FlockKind, LockOwner, PlockRange},
};
use sluice_types::{FsError, FsResult, Ino};

use crate::{handle_locks::Lock, handles::FileHandle, meta_cache::OpenFile, vfs::Vfs};

/// A range that reaches to the end of any file.
const EVERYTHING: PlockRange = PlockRange { write: true, pid: 0, start: 0, end: i64::MAX as u64 };

/// A request for a POSIX lock.
#[derive(Clone, Copy, Debug)]
pub struct Plock {
    /// The file.
    pub ino: Ino,
    /// The open file.
    pub fh: u64,
    /// The lock owner, as the kernel numbers processes.
    pub owner: u64,
    /// Range and kind.
    pub range: PlockRange,
    /// Whether the range is released.
    pub unlock: bool,
}

impl Vfs {
    /// Acquires, changes or releases (`None`) a BSD lock of the open file `fh`. Two trips for each
    /// try.
    ///
    /// # Errors
    /// `EAGAIN` if another lock conflicts and `wait` is false; `EINTR` if the wait was interrupted;
    /// `EIO` if a lock of `fh` was lost because other clients took this one for dead.
    pub fn flock(
        &self,
        interrupt: &Interrupt,
        (ino, fh): (Ino, u64),
        owner: u64,
        kind: Option<FlockKind>,
        wait: bool,
    ) -> FsResult<()> {
        let handle = self.handles.file(fh).ok();
        if kind.is_none() {
            self.store_before_unlock(handle.as_deref());
        }
        let op = Flock { ino, owner: self.owner(owner), kind };
        let gave_up = Cell::new(false);
        let attempt = || {
            self.until_free(ino, interrupt, wait, || {
                let taken = self.meta.run(op.clone(), interrupt);
                // A caller that waits for another kind of lock releases the one that it has.
                // Otherwise two callers that share a lock would wait for each other.
                if wait && taken == Err(FsError::Again) && !gave_up.replace(true) {
                    self.meta.run(Flock { kind: None, ..op.clone() }, interrupt)?;
                }
                taken
            })?;
            Ok(kind.is_some())
        };
        self.holding(handle.as_deref(), Lock::Flock(owner), attempt, || self.release_flock(ino, owner))
    }

    /// Acquires or releases a POSIX lock. Two trips for each try.
    ///
    /// # Errors
    /// As [`Self::flock`].
    pub fn setlk(&self, interrupt: &Interrupt, lock: Plock, wait: bool) -> FsResult<()> {
        let handle = self.handles.file(lock.fh).ok();
        if lock.unlock {
            self.store_before_unlock(handle.as_deref());
        }
        if let Some(handle) = handle.as_ref().filter(|_| !lock.unlock) {
            // Entered before the wait, because a close during the wait must find it.
            let mut plocks = handle.file.plocks.lock();
            let handles = plocks.entry(lock.owner).or_default();
            if !handles.contains(&lock.fh) {
                handles.push(lock.fh);
            }
        }
        let op =
            SetPlock { ino: lock.ino, owner: self.owner(lock.owner), range: lock.range, unlock: lock.unlock };
        let attempt = || self.until_free(lock.ino, interrupt, wait, || self.meta.run(op.clone(), interrupt));
        self.holding(handle.as_deref(), Lock::Plocks(lock.owner), attempt, || {
            if let Some(handle) = &handle {
                self.release_plocks(&handle.file, lock.owner);
            }
        })
    }

    /// Calls `call` whenever a lock on `ino` may be free, until the returned value is dropped: for
    /// waiters without a thread. `call` may only wake a thread. Register before the try that
    /// decides to wait. The waiter must also try again every [`LOCK_POLL_INTERVAL`], because
    /// JuiceFS clients announce nothing.
    pub fn on_lock_release(&self, ino: Ino, call: impl Fn() + Send + Sync + 'static) -> Registered {
        self.meta.waiters().on_release(ino, call)
    }

    /// Reads the attributes of the open file `fh` again after one of its locks was granted, because
    /// the previous holder may have written. Returns whether the file changed, so that the kernel's
    /// pages of it are stale. One trip.
    pub fn revalidate_under_lock(&self, interrupt: &Interrupt, fh: u64) -> FsResult<bool> {
        let Ok(handle) = self.handles.file(fh) else { return Ok(false) };
        let as_it_was = handle.file.attr();
        let attr = self.fetch(handle.file.ino, interrupt)?;
        let changed = as_it_was.is_none_or(|before| {
            (before.mtime, before.ctime, before.length) != (attr.mtime, attr.ctime, attr.length)
        });
        Ok(changed || self.cache().drops_pages(handle.file.ino))
    }

    /// Stores what was written under the lock, because the next holder must see it. The next fsync
    /// or close reports an error. The lock is released even then.
    fn store_before_unlock(&self, handle: Option<&FileHandle>) {
        if let Some(handle) = handle
            && let Err(error) = self.data.flush(handle.file.ino)
        {
            tracing::warn!(%error, "what was written under a lock could not be stored before the lock went");
        }
    }

    /// Records what `handle` holds after `attempt`, which returns whether it holds anything. If
    /// other clients took this one for dead during the attempt, the lock is acquired again. If the
    /// handle lost another lock then, `release` releases the new one.
    fn holding(
        &self,
        handle: Option<&FileHandle>,
        lock: Lock,
        attempt: impl Fn() -> FsResult<bool>,
        release: impl FnOnce(),
    ) -> FsResult<()> {
        let Some(handle) = handle else { return attempt().map(drop) };
        self.locks_hold(handle)?;
        loop {
            let fences = self.fences();
            let done = attempt();
            if let Err(lost) = self.locks_hold(handle) {
                if done.is_ok() {
                    release();
                }
                return Err(lost);
            }
            match done? {
                holds if self.fences() != fences && holds => {}
                true => {
                    handle.file.locked_through(&handle.locks);
                    self.note_lock(handle, lock, fences);
                    return Ok(());
                }
                false => {
                    self.note_unlock(handle, lock);
                    return Ok(());
                }
            }
        }
    }

    /// Fails if a lock that was acquired through `handle` was lost.
    pub(crate) fn locks_hold(&self, handle: &FileHandle) -> FsResult<()> {
        handle.locks.check(|| self.fences())
    }

    /// Discards data that was written to a file under lost locks, before others write more. Data
    /// that is committed together must be valid as a whole.
    ///
    /// # Errors
    /// Some data could not be sent to the store.
    pub(crate) fn discard_under_lost_locks(&self, file: &OpenFile, interrupt: &Interrupt) -> FsResult<()> {
        let fences = self.fences();
        if file.locked_since().is_none_or(|since| since >= fences) {
            return Ok(());
        }
        let _content = file.hold_content_alone(interrupt)?;
        self.flush_before_truncate(file.ino, interrupt)?;
        file.discarded(fences);
        Ok(())
    }

    fn fences(&self) -> i64 {
        self.meta.env().fences()
    }

    /// The first lock that conflicts with `range`. One trip.
    pub fn getlk(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        owner: u64,
        range: PlockRange,
    ) -> FsResult<Option<PlockRange>> {
        let found = self.meta.read(&GetPlock { ino, owner: self.owner(owner), range }, interrupt)?;
        // On this machine, the process id of another client's process would mean another process.
        Ok(found.map(
            |(holder, range)| {
                if holder.sid == self.meta.sid() { range } else { PlockRange { pid: 0, ..range } }
            },
        ))
    }

    fn until_free<T>(
        &self,
        ino: Ino,
        interrupt: &Interrupt,
        wait: bool,
        attempt: impl Fn() -> FsResult<T>,
    ) -> FsResult<T> {
        if !wait {
            return attempt();
        }
        let mut waiter = self.meta.waiters().register(ino);
        loop {
            match attempt() {
                Err(FsError::Again) if waiter.wait(interrupt) => return Err(FsError::Interrupted),
                Err(FsError::Again) => {}
                done => return done,
            }
        }
    }

    /// Releases the POSIX locks of `owner`: it closed a descriptor of the file.
    pub(crate) fn release_plocks(&self, file: &OpenFile, owner: u64) {
        let handles = file.plocks.lock().remove(&owner);
        if let Some(handles) = handles {
            for handle in handles.into_iter().filter_map(|fh| self.handles.file(fh).ok()) {
                self.note_unlock(&handle, Lock::Plocks(owner));
            }
            let op = SetPlock { ino: file.ino, owner: self.owner(owner), range: EVERYTHING, unlock: true };
            if let Err(error) = self.meta.run(op, &Interrupt::never()) {
                tracing::warn!(ino = %file.ino, %error, "record locks of a closed file could not be released");
            }
        }
    }

    /// Releases the POSIX locks that were acquired through `fh`, for which no flush came.
    pub(crate) fn release_plocks_of(&self, file: &OpenFile, fh: u64) {
        let plocks = file.plocks.lock();
        let owners: Vec<u64> =
            plocks.iter().filter(|(_, by)| by.contains(&fh)).map(|(owner, _)| *owner).collect();
        drop(plocks);
        for owner in owners {
            self.release_plocks(file, owner);
        }
    }

    pub(crate) fn release_flock(&self, ino: Ino, owner: u64) {
        let op = Flock { ino, owner: self.owner(owner), kind: None };
        if let Err(error) = self.meta.run(op, &Interrupt::never()) {
            tracing::warn!(%ino, %error, "a lock of a closed file could not be released");
        }
    }

    fn owner(&self, owner: u64) -> LockOwner {
        LockOwner { sid: self.meta.sid(), owner }
    }
}
