//! Locks of two clients: a write lock has at most one holder.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_meta::{
    Interrupt, Meta,
    ops::{flock::Flock, plock::SetPlock},
    schema::{FlockKind, LockOwner, PlockRange},
};
use sluice_types::{FileType, FsError, FsResult, Ino, Rng};

use super::{Factory, create};

const FILE: Ino = Ino(10_000);
/// How often each of the four owners takes the lock.
const TURNS: u64 = 50;
/// By then everybody must have had all turns.
const TIMEOUT: Duration = Duration::from_mins(2);

/// Takes (`Some`, for writing or not) or releases the lock.
type Lock = fn(&Meta, LockOwner, Option<bool>) -> FsResult<()>;

fn flock(meta: &Meta, owner: LockOwner, write: Option<bool>) -> FsResult<()> {
    let kind = write.map(|write| if write { FlockKind::Write } else { FlockKind::Read });
    meta.run(Flock { ino: FILE, owner, kind }, &Interrupt::never())
}

fn plock(meta: &Meta, owner: LockOwner, write: Option<bool>) -> FsResult<()> {
    let range = PlockRange { write: write.unwrap_or(true), pid: 1, start: 10, end: 19 };
    let op = SetPlock { ino: FILE, owner, range, unlock: write.is_none() };
    let holds = meta.run(op, &Interrupt::never())?;
    assert_eq!(holds, write.is_some(), "the only lock of this owner");
    Ok(())
}

/// Who holds the lock: how many for reading, or -1 for one that writes.
fn enter(holders: &AtomicI64, write: bool) {
    if write {
        let before = holders.swap(-1, Ordering::SeqCst);
        assert_eq!(before, 0, "a lock for writing was given while others held it");
    } else {
        let before = holders.fetch_add(1, Ordering::SeqCst);
        assert!(before >= 0, "a lock for reading was given while somebody wrote");
    }
}

fn leave(holders: &AtomicI64, write: bool) {
    if write {
        assert_eq!(holders.swap(0, Ordering::SeqCst), -1, "somebody came in while the lock was held");
    } else {
        assert!(holders.fetch_sub(1, Ordering::SeqCst) > 0, "somebody wrote while the lock was held");
    }
}

fn contend(factory: &Factory<'_>, lock: Lock) {
    let store = factory();
    let clients = [store.format(0), store.client()];
    clients[0].run(create(1, "f", FILE.0, FileType::File), &Interrupt::never()).expect("create");
    let holders = Arc::new(AtomicI64::new(0));
    thread::scope(|scope| {
        for seed in 0..4 {
            let (meta, holders) = (&clients[seed as usize % 2], &holders);
            scope.spawn(move || {
                let owner = LockOwner { sid: meta.sid(), owner: seed };
                let mut rng = Rng::seeded(seed);
                let until = Instant::now() + TIMEOUT;
                for _ in 0..TURNS {
                    let write = rng.below(3) > 0;
                    while let Err(error) = lock(meta, owner, Some(write)) {
                        assert_eq!(error, FsError::Again);
                        assert!(Instant::now() < until, "the lock was never given");
                        thread::yield_now();
                    }
                    enter(holders, write);
                    thread::yield_now();
                    leave(holders, write);
                    lock(meta, owner, None).expect("release");
                }
            });
        }
    });
    assert_eq!(holders.load(Ordering::SeqCst), 0);
}

/// BSD locks.
pub fn two_clients_never_hold_a_flock_both(factory: &Factory<'_>) {
    contend(factory, flock);
}

/// POSIX record locks.
pub fn two_clients_never_hold_a_record_lock_both(factory: &Factory<'_>) {
    contend(factory, plock);
}
