//! The requests about locks.
//!
//! What must stay true: a lock that has to be waited for is waited for on a thread of its own, never on one that reads
//! requests.

use std::{sync::Arc, thread};

use sluice_types::{Caller, FsResult, Ino};
use sluice_vfs::{FlockKind, Interrupt, OpKind, Plock, PlockRange, Vfs};

use super::{VolumeFs, args, files::forget_pages, translate};
use crate::{
    args::{Lock, LockArgs, LockKind},
    call::Reply,
    errno::{Errno, Result},
    filesystem::Request,
};

/// Bytes of stack of a thread that waits for a lock.
const WAITER_STACK: usize = 256 << 10;

impl VolumeFs {
    pub(super) fn find_lock(&self, req: &Request<'_>, ino: u64, lock: &LockArgs) -> Result<Lock> {
        let free = Lock { kind: LockKind::Unlock, ..lock.lock };
        if lock.flock {
            return Ok(free);
        }
        let run = |_: &Caller, interrupt: &Interrupt| {
            self.vfs.getlk(interrupt, self.ino(ino), lock.owner, to_range(&lock.lock))
        };
        let found =
            self.run(req, OpKind::GetLk, run, args(format_args!("{ino},{},{:016X}", lock.fh, lock.owner)))?;
        Ok(found.map_or(free, |range| Lock {
            start: range.start,
            end: range.end,
            kind: if range.write { LockKind::Write } else { LockKind::Read },
            pid: range.pid,
        }))
    }

    pub(super) fn lock(&self, req: &Request<'_>, ino: u64, lock: &LockArgs, reply: Reply) {
        let locked = self.try_lock(req, ino, lock);
        self.locked(ino, locked, reply);
    }

    fn try_lock(&self, req: &Request<'_>, ino: u64, lock: &LockArgs) -> Result<bool> {
        let kind = if lock.flock { OpKind::Flock } else { OpKind::SetLk };
        let run =
            |_: &Caller, interrupt: &Interrupt| set_lock(&self.vfs, interrupt, self.ino(ino), lock, false);
        self.run(req, kind, run, args(format_args!("{ino},{},{:016X},{:?}", lock.fh, lock.owner, lock.lock)))
    }

    /// Answers who asked for a lock. If the file changed elsewhere the kernel forgets its pages before, for which it may
    /// have to wait for other requests: another thread tells it.
    fn locked(&self, ino: u64, locked: Result<bool>, reply: Reply) {
        let (Ok(true), Some(notifier)) = (&locked, self.notifier.get().cloned()) else {
            return reply.result(locked.map(drop));
        };
        wait_elsewhere(move || {
            forget_pages(&notifier, ino);
            reply.ok();
        });
    }

    pub(super) fn lock_or_wait(&self, req: &Request<'_>, number: u64, lock: &LockArgs, reply: Reply) {
        match self.try_lock(req, number, lock) {
            Err(Errno::EAGAIN) => {}
            done => return self.locked(number, done, reply),
        }
        let (vfs, asked, ino, lock) = (Arc::clone(&self.vfs), req.interrupt(), self.ino(number), *lock);
        let notifier = self.notifier.get().cloned();
        wait_elsewhere(move || {
            let interrupt = Interrupt::never();
            let registration = asked.on_interrupt({
                let interrupt = interrupt.clone();
                move || interrupt.set()
            });
            let locked = set_lock(&vfs, &interrupt, ino, &lock, true);
            drop(registration);
            if let (Ok(true), Some(notifier)) = (&locked, &notifier) {
                forget_pages(notifier, number);
            }
            reply.result(locked.map(drop).map_err(|error| translate::errno(&error)));
        });
    }
}

/// Takes or releases a lock; whether the file is another one under it than was known.
fn set_lock(vfs: &Vfs, interrupt: &Interrupt, ino: Ino, lock: &LockArgs, wait: bool) -> FsResult<bool> {
    change_lock(vfs, interrupt, ino, lock, (lock.lock.kind, wait))?;
    if lock.lock.kind == LockKind::Unlock {
        return Ok(false);
    }
    let looked = vfs.look_under_lock(interrupt, lock.fh);
    if looked.is_err() {
        // Whoever is told that he failed must not keep others out. What he held before of that range goes with it.
        let released = change_lock(vfs, &Interrupt::never(), ino, lock, (LockKind::Unlock, false));
        if let Err(error) = released {
            tracing::warn!(%ino, %error, "a lock that could not be used stays until the file is closed");
        }
    }
    looked
}

fn change_lock(
    vfs: &Vfs,
    interrupt: &Interrupt,
    ino: Ino,
    lock: &LockArgs,
    (kind, wait): (LockKind, bool),
) -> FsResult<()> {
    if lock.flock {
        let kind = match kind {
            LockKind::Read => Some(FlockKind::Read),
            LockKind::Write => Some(FlockKind::Write),
            LockKind::Unlock => None,
        };
        return vfs.flock(interrupt, (ino, lock.fh), lock.owner, kind, wait);
    }
    let plock = Plock {
        ino,
        fh: lock.fh,
        owner: lock.owner,
        range: to_range(&lock.lock),
        unlock: kind == LockKind::Unlock,
    };
    vfs.setlk(interrupt, plock, wait)
}

/// Runs what may have to wait on a thread of its own. Without one the reply in it is dropped, which answers EIO.
fn wait_elsewhere(wait: impl FnOnce() + Send + 'static) {
    let waiter = thread::Builder::new().name("sluice-lock".into()).stack_size(WAITER_STACK);
    if let Err(error) = waiter.spawn(wait) {
        tracing::error!("nobody can wait for a lock: {error}");
    }
}

fn to_range(lock: &Lock) -> PlockRange {
    PlockRange { write: lock.kind == LockKind::Write, pid: lock.pid, start: lock.start, end: lock.end }
}
