//! Locks of `flock(2)` and `fcntl(2)`, held in the engine so that all clients see them.
//!
//! What must stay true: whoever waits was registered before the try that failed, so that no release
//! is missed; no lock outlives the descriptor that held it; and nobody goes on as if he held a lock
//! that was lost.

use std::cell::Cell;

#[cfg(doc)]
use sluice_meta::LOOK;
use sluice_meta::{
    Interrupt, Registered,
    ops::{
        flock::Flock,
        plock::{GetPlock, SetPlock},
    },
    schema::{FlockKind, LockOwner, PlockRange},
};
use sluice_types::{FsError, FsResult, Ino, wait};

use crate::{handle_locks::Lock, handles::FileHandle, meta_cache::OpenFile, vfs::Vfs};

/// A range that reaches to the end of any file.
const EVERYTHING: PlockRange = PlockRange { write: true, pid: 0, start: 0, end: i64::MAX as u64 };

/// A POSIX lock as it is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Plock {
    /// The file.
    pub ino: Ino,
    /// The open file.
    pub fh: u64,
    /// Who asks, as the kernel numbers processes.
    pub owner: u64,
    /// Range and kind.
    pub range: PlockRange,
    /// Whether the range is released.
    pub unlock: bool,
}

impl Vfs {
    /// Takes, changes or releases (`None`) a BSD lock of the open file `fh`. Two trips a try.
    ///
    /// # Errors
    /// `EAGAIN` if another lock stands in the way and it is not to `wait`; `EINTR` if the wait was
    /// interrupted; `EIO` if a lock of `fh` was lost since other clients took this one for dead.
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
                // Who waits for another kind of lock lets go of the one he has: of two who share it
                // each would wait for the other.
                if wait && taken == Err(FsError::Again) && !gave_up.replace(true) {
                    self.meta.run(Flock { kind: None, ..op.clone() }, interrupt)?;
                }
                taken
            })?;
            Ok(kind.is_some())
        };
        self.holding(handle.as_deref(), Lock::Flock(owner), attempt, || self.release_flock(ino, owner))
    }

    /// Takes or releases a POSIX lock. Two trips a try.
    ///
    /// # Errors
    /// As [`Self::flock`].
    pub fn setlk(&self, interrupt: &Interrupt, lock: Plock, wait: bool) -> FsResult<()> {
        let handle = self.handles.file(lock.fh).ok();
        if lock.unlock {
            self.store_before_unlock(handle.as_deref());
        }
        if let Some(handle) = handle.as_ref().filter(|_| !lock.unlock) {
            // Noted before: a close that comes while we wait must find it.
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

    /// Has `call` called whenever a lock on `ino` may be free, until what this answers is dropped:
    /// for who waits without a thread. It must wake somebody and do no more. To be called before
    /// the try that decides to wait; who waits looks every [`LOOK`] besides, since clients of
    /// JuiceFS announce nothing.
    pub fn on_lock_release(&self, ino: Ino, call: impl Fn() + Send + Sync + 'static) -> Registered {
        self.meta.waiters().on_release(ino, call)
    }

    /// Asks how the open file `fh` is now that a lock of it was granted: others may have written
    /// while they had it. Whether it is another than was known here, so that the kernel's pages of
    /// it are not right. One trip.
    pub fn revalidate_under_lock(&self, interrupt: &Interrupt, fh: u64) -> FsResult<bool> {
        let Ok(handle) = self.handles.file(fh) else { return Ok(false) };
        let as_it_was = handle.file.attr();
        let attr = self.fetch(handle.file.ino, interrupt)?;
        Ok(as_it_was.is_none_or(|before| {
            (before.mtime, before.ctime, before.length) != (attr.mtime, attr.ctime, attr.length)
        }))
    }

    /// The next one to hold the lock must see what was written under it. An error is reported by
    /// the next fsync or close: the lock goes all the same.
    fn store_before_unlock(&self, handle: Option<&FileHandle>) {
        if let Some(handle) = handle
            && let Err(error) = self.data.flush(handle.file.ino)
        {
            tracing::warn!(%error, "what was written under a lock could not be stored before the lock went");
        }
    }

    /// Takes note of what `handle` holds after `attempt`, which answers whether that is anything.
    /// What it took when others took this client for dead in the middle of it is taken again, to be
    /// sure; or, if the handle lost another lock then, let go by `release`.
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

    /// Fails if a lock that was taken through `handle` was lost.
    pub(crate) fn locks_hold(&self, handle: &FileHandle) -> FsResult<()> {
        handle.locks.check(|| self.fences())
    }

    /// Discards what was written to a file under locks that were lost, before others write more:
    /// what is written together goes to the file together, or not.
    ///
    /// # Errors
    /// Some of it could not even be sent on its way.
    pub(crate) fn discard_under_lost_locks(&self, file: &OpenFile) -> FsResult<()> {
        let fences = self.fences();
        if file.locked_since().is_none_or(|since| since >= fences) {
            return Ok(());
        }
        let _content = wait::write(&file.content_lock);
        self.flush_before_truncate(file.ino)?;
        file.discarded(fences);
        Ok(())
    }

    fn fences(&self) -> i64 {
        self.meta.env().fences()
    }

    /// The first lock that stands in the way of `range`. One trip.
    pub fn getlk(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        owner: u64,
        range: PlockRange,
    ) -> FsResult<Option<PlockRange>> {
        let found = self.meta.read(&GetPlock { ino, owner: self.owner(owner), range }, interrupt)?;
        // The process id of another client's process would name a stranger here.
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

    /// Releases the POSIX locks that were taken through `fh`, whose close was not announced.
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
