//! Locks of `flock(2)` and `fcntl(2)`, held in the engine so that all clients see them.
//!
//! What must stay true: whoever waits was registered before the try that failed, so that no release is missed; and no
//! lock outlives the descriptor that held it.

use sluice_meta::{
    Interrupt,
    ops::{
        flock::Flock,
        plock::{GetPlock, SetPlock},
    },
    schema::{FlockKind, LockOwner, PlockRange},
};
use sluice_types::{FsError, FsResult, Ino};

use crate::{known::File, vfs::Vfs};

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
    /// Takes, changes or releases (`None`) a BSD lock. Two trips a try.
    ///
    /// # Errors
    /// `EAGAIN` if another lock stands in the way and it is not to `wait`; `EINTR` if the wait was interrupted.
    pub fn flock(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        owner: u64,
        kind: Option<FlockKind>,
        wait: bool,
    ) -> FsResult<()> {
        let op = Flock { ino, owner: self.owner(owner), kind };
        self.until_free(ino, interrupt, wait, || self.meta.run(op.clone(), interrupt))
    }

    /// Takes or releases a POSIX lock. Two trips a try.
    ///
    /// # Errors
    /// As [`Self::flock`].
    pub fn setlk(&self, interrupt: &Interrupt, lock: Plock, wait: bool) -> FsResult<()> {
        let file = self.handles.file(lock.fh).ok().map(|handle| std::sync::Arc::clone(&handle.file));
        if let Some(file) = file.filter(|_| !lock.unlock) {
            // Noted before: a close that comes while we wait must find it.
            file.plocks.lock().insert(lock.owner, lock.fh);
        }
        let op =
            SetPlock { ino: lock.ino, owner: self.owner(lock.owner), range: lock.range, unlock: lock.unlock };
        self.until_free(lock.ino, interrupt, wait, || self.meta.run(op.clone(), interrupt))
    }

    /// The first lock that stands in the way of `range`. One trip.
    pub fn getlk(
        &self,
        interrupt: &Interrupt,
        ino: Ino,
        owner: u64,
        range: PlockRange,
    ) -> FsResult<Option<PlockRange>> {
        let found = self.meta.ask(&GetPlock { ino, owner: self.owner(owner), range }, interrupt)?;
        // The process id of another client's process would name a stranger here.
        Ok(found.map(
            |(holder, range)| {
                if holder.sid == self.meta.sid() { range } else { PlockRange { pid: 0, ..range } }
            },
        ))
    }

    fn until_free(
        &self,
        ino: Ino,
        interrupt: &Interrupt,
        wait: bool,
        attempt: impl Fn() -> FsResult<()>,
    ) -> FsResult<()> {
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
    pub(crate) fn release_plocks(&self, file: &File, owner: u64) {
        if file.plocks.lock().remove(&owner).is_some() {
            let op = SetPlock { ino: file.ino, owner: self.owner(owner), range: EVERYTHING, unlock: true };
            if let Err(error) = self.meta.run(op, &Interrupt::never()) {
                tracing::warn!(ino = %file.ino, %error, "record locks of a closed file could not be released");
            }
        }
    }

    /// Releases the POSIX locks that were taken through `fh`, whose close nobody told.
    pub(crate) fn release_plocks_of(&self, file: &File, fh: u64) {
        let owners: Vec<u64> =
            file.plocks.lock().iter().filter(|(_, by)| **by == fh).map(|(owner, _)| *owner).collect();
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
