//! The requests about locks.
//!
//! What must stay true: a request that waits for a lock waits in
//! [`Waiting`](super::waiting::Waiting), never on a thread that reads requests. No caller holds a
//! lock whose request returned an error.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use sluice_types::{Caller, FsError, FsResult, Ino};
use sluice_vfs::{FlockKind, Interrupt, OpKind, Plock, PlockRange, Vfs};

use super::{VolumeFs, args, pages::forget_pages, translate, waiting::Waiter};
use crate::{
    args::{Lock, LockArgs, LockKind},
    call::Reply,
    errno::{Errno, Result},
    filesystem::Request,
};

/// Stack size of a thread that drops the kernel's pages before it grants a lock, in bytes.
const NOTIFY_STACK: usize = 256 << 10;

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
        self.locked(ino, lock, locked, reply);
    }

    fn try_lock(&self, req: &Request<'_>, ino: u64, lock: &LockArgs) -> Result<bool> {
        let kind = if lock.flock { OpKind::Flock } else { OpKind::SetLk };
        let run = |_: &Caller, interrupt: &Interrupt| set_lock(&self.vfs, interrupt, self.ino(ino), lock);
        self.run(req, kind, run, args(format_args!("{ino},{},{:016X},{:?}", lock.fh, lock.owner, lock.lock)))
    }

    /// Answers a request for a lock. If another client changed the file, the kernel's pages are
    /// dropped first. The kernel may have to wait for other requests for that, so another thread
    /// does it.
    fn locked(&self, ino: u64, lock: &LockArgs, locked: Result<bool>, reply: Reply) {
        let changed = match locked {
            Ok(changed) => changed,
            Err(errno) => return reply.error(errno),
        };
        let granted =
            Granted { vfs: Arc::clone(&self.vfs), ino: self.ino(ino), lock: *lock, reply: Some(reply) };
        let Some(notifier) = self.notifier.get().filter(|_| changed).cloned() else { return granted.tell() };
        let tell = move || {
            forget_pages(&notifier, ino);
            granted.tell();
        };
        let builder = thread::Builder::new().name("sluice-lock".into()).stack_size(NOTIFY_STACK);
        if let Err(why) = builder.spawn(tell) {
            tracing::error!("no thread to grant a lock of a file that changed elsewhere: {why}");
        }
    }

    pub(super) fn lock_or_wait(&self, req: &Request<'_>, number: u64, lock: &LockArgs, reply: Reply) {
        match self.try_lock(req, number, lock) {
            Err(Errno::EAGAIN) => {}
            done => return self.locked(number, lock, done, reply),
        }
        let (id, ino, interrupt) = (self.waiting.number(), self.ino(number), Interrupt::never());
        let waiting = Arc::downgrade(&self.waiting);
        let registered = self.vfs.on_lock_release(ino, move || {
            if let Some(waiting) = waiting.upgrade() {
                waiting.lock_released(id);
            }
        });
        let (this, lock, vfs, interrupted) = (self.clone(), *lock, Arc::clone(&self.vfs), interrupt.clone());
        let gave_up = AtomicBool::new(false);
        let attempt = move || {
            let mut taken = set_lock(&vfs, &interrupt, ino, &lock);
            // A caller that waits for another kind of lock releases the one that it has. Otherwise
            // two callers that share a lock would wait for each other.
            if lock.flock && taken == Err(FsError::Again) && !gave_up.swap(true, Ordering::Relaxed) {
                let gave = change_lock(&vfs, &interrupt, ino, &lock, LockKind::Unlock);
                taken = gave.and(taken);
            }
            taken.map_err(|error| translate::errno(&error))
        };
        let finish = move |locked| this.locked(number, &lock, locked, reply);
        let (attempt, finish) = (Box::new(attempt), Box::new(finish));
        self.waiting.add(id, Waiter { attempt, finish, registered: Some(registered) });
        let waiting = Arc::clone(&self.waiting);
        let registration = req.interrupt().on_interrupt(move || {
            interrupted.set();
            waiting.interrupt(id);
        });
        registration.until_answered();
    }
}

/// A lock that was granted, but whose owner has no answer yet. If the answer cannot be delivered,
/// the lock is released, because its owner believes that it failed. Locks that the owner held in
/// that range before are released, too.
struct Granted {
    vfs: Arc<Vfs>,
    ino: Ino,
    lock: LockArgs,
    reply: Option<Reply>,
}

impl Granted {
    fn tell(mut self) {
        if let Some(reply) = self.reply.take()
            && !reply.ok()
        {
            release(&self.vfs, self.ino, &self.lock);
        }
    }
}

impl Drop for Granted {
    fn drop(&mut self) {
        if let Some(reply) = self.reply.take() {
            release(&self.vfs, self.ino, &self.lock);
            reply.error(Errno::EIO);
        }
    }
}

/// Acquires or releases a lock. Returns whether the file has changed since it was last known.
fn set_lock(vfs: &Vfs, interrupt: &Interrupt, ino: Ino, lock: &LockArgs) -> FsResult<bool> {
    change_lock(vfs, interrupt, ino, lock, lock.lock.kind)?;
    if lock.lock.kind == LockKind::Unlock {
        return Ok(false);
    }
    vfs.revalidate_under_lock(interrupt, lock.fh).inspect_err(|_| release(vfs, ino, lock))
}

/// Releases a lock whose owner does not know of it.
fn release(vfs: &Vfs, ino: Ino, lock: &LockArgs) {
    if lock.lock.kind != LockKind::Unlock
        && let Err(error) = change_lock(vfs, &Interrupt::never(), ino, lock, LockKind::Unlock)
    {
        tracing::warn!(%ino, %error, "a lock that could not be used stays until the file is closed");
    }
}

fn change_lock(vfs: &Vfs, interrupt: &Interrupt, ino: Ino, lock: &LockArgs, kind: LockKind) -> FsResult<()> {
    if lock.flock {
        let kind = match kind {
            LockKind::Read => Some(FlockKind::Read),
            LockKind::Write => Some(FlockKind::Write),
            LockKind::Unlock => None,
        };
        return vfs.flock(interrupt, (ino, lock.fh), lock.owner, kind, false);
    }
    let plock = Plock {
        ino,
        fh: lock.fh,
        owner: lock.owner,
        range: to_range(&lock.lock),
        unlock: kind == LockKind::Unlock,
    };
    vfs.setlk(interrupt, plock, false)
}

fn to_range(lock: &Lock) -> PlockRange {
    PlockRange { write: lock.kind == LockKind::Write, pid: lock.pid, start: lock.start, end: lock.end }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use sluice_data::{DataConfig, DataStore};
    use sluice_meta::{Meta, Options, mem::MemEngine, schema::VolumeFormat};
    use sluice_object::MemStore;
    use sluice_types::{Clock, FileType, SystemClock};
    use sluice_vfs::{MetaIndex, NewNode, VfsConfig};

    use super::*;
    use crate::{
        abi::opcode,
        call::tests::{Sink, call},
    };

    fn volume() -> Arc<Vfs> {
        let engine = Arc::new(MemEngine::new());
        let format = VolumeFormat { name: "test".into(), ..VolumeFormat::default() };
        Meta::format(engine.as_ref(), &format, SystemClock.now()).expect("format");
        let index = MetaIndex::new(Meta::open(engine, Options::default()).expect("open"));
        let (store, config) = (Arc::new(MemStore::new()), DataConfig::default());
        let data = DataStore::open(&config, store, Arc::clone(&index) as _, None).expect("data");
        Vfs::new(index, data, VfsConfig::default())
    }

    #[test]
    fn a_lock_of_which_its_owner_never_hears_is_released() {
        let (vfs, never, sink) = (volume(), Interrupt::never(), Arc::<Sink>::default());
        let node = NewNode { kind: FileType::File, mode: 0o644, umask: 0, rdev: 0 };
        let made = vfs.create(&Caller::client(), &never, Ino::ROOT, b"f", node, libc::O_RDWR);
        let (entry, opened) = made.expect("create");
        let lock = Lock { start: 0, end: i64::MAX as u64, kind: LockKind::Write, pid: 1 };
        for (flock, late) in [(true, true), (true, false), (false, true), (false, false)] {
            let mine = LockArgs { fh: opened.fh, owner: 1, lock, flock };
            let other = LockArgs { owner: 2, ..mine };
            assert_eq!(set_lock(&vfs, &never, entry.ino, &mine), Ok(false));
            assert_eq!(set_lock(&vfs, &never, entry.ino, &other), Err(FsError::Again));
            let call = call(&sink, 2, opcode::SETLK);
            assert!(call.run());
            let reply = Some(Reply(call));
            let granted = Granted { vfs: Arc::clone(&vfs), ino: entry.ino, lock: mine, reply };
            if late {
                sink.calls.expire(Duration::ZERO);
                granted.tell();
            } else {
                // As a thread does that cannot be started.
                drop(granted);
            }
            assert_eq!(set_lock(&vfs, &never, entry.ino, &other), Ok(false), "flock: {flock}, late: {late}");
            release(&vfs, entry.ino, &other);
        }
        vfs.release(opened.fh, None).expect("release");
        vfs.close(None).expect("close");
    }
}
