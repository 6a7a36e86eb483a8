//! Locks of two clients: who waits, who is woken, who gives up.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::{
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use rig::{Client, Volume};
use sluice_meta::ops::session::{DropLocks, DropSession};
use sluice_types::{FsError, Ino};
use sluice_vfs::{FlockKind, Interrupt, Place, Plock, PlockRange, Vfs};

const ROOT: Ino = Ino::ROOT;

fn plock(ino: Ino, fh: u64, owner: u64, write: bool, unlock: bool) -> Plock {
    Plock { ino, fh, owner, range: PlockRange { write, pid: 7, start: 10, end: 19 }, unlock }
}

/// Waits for an exclusive lock on a thread of its own.
fn waiting(vfs: &Arc<Vfs>, ino: Ino, interrupt: &Interrupt) -> mpsc::Receiver<Result<(), FsError>> {
    let (done, result) = mpsc::channel();
    let (vfs, interrupt) = (Arc::clone(vfs), interrupt.clone());
    thread::spawn(move || done.send(vfs.flock(&interrupt, (ino, 0), 2, Some(FlockKind::Write), true)));
    result
}

fn flock(client: &Client, ino: Ino, kind: Option<FlockKind>) -> Result<(), FsError> {
    client.vfs.flock(&client.never, (ino, 0), 1, kind, false)
}

#[test]
fn a_waiter_gets_the_lock_when_it_is_released() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    flock(&one, ino, Some(FlockKind::Write)).unwrap();
    assert_eq!(flock(&two, ino, Some(FlockKind::Read)), Err(FsError::Again));
    let result = waiting(&two.vfs, ino, &Interrupt::never());
    assert_eq!(result.try_recv(), Err(mpsc::TryRecvError::Empty));
    let stats = two.vfs.meta().stats();
    let until = Instant::now() + Duration::from_secs(30);
    while stats.lock_waiters.get() == 0 {
        assert!(Instant::now() < until, "nobody waits");
        thread::yield_now();
    }
    flock(&one, ino, None).unwrap();
    assert_eq!(result.recv().unwrap(), Ok(()));
    assert_eq!((stats.lock_waiters.get(), stats.lock_waits.count()), (0, 1));
    assert_eq!(flock(&one, ino, Some(FlockKind::Read)), Err(FsError::Again));
}

#[test]
fn of_two_who_share_a_lock_and_want_it_alone_one_gets_it() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    let share = |client: &Client| {
        client.vfs.flock(&client.never, (ino, 0), 2, Some(FlockKind::Read), false).unwrap();
    };
    share(&one);
    share(&two);
    let wait = |client: &Client| waiting(&client.vfs, ino, &Interrupt::never());
    let results = [wait(&one), wait(&two)];
    let until = Instant::now() + Duration::from_secs(30);
    let first = loop {
        if let Some(at) = (0..2).find(|at| results[*at].try_recv() == Ok(Ok(()))) {
            break at;
        }
        assert!(Instant::now() < until, "each waits for the other");
        thread::yield_now();
    };
    let winner = [&one, &two][first];
    winner.vfs.flock(&winner.never, (ino, 0), 2, None, false).unwrap();
    assert_eq!(results[1 - first].recv_timeout(Duration::from_secs(30)), Ok(Ok(())), "then the other");
}

#[test]
fn a_waiter_can_be_interrupted() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    flock(&one, ino, Some(FlockKind::Write)).unwrap();
    let interrupt = Interrupt::never();
    let result = waiting(&two.vfs, ino, &interrupt);
    interrupt.set();
    assert_eq!(result.recv().unwrap(), Err(FsError::Interrupted));
    flock(&one, ino, None).unwrap();
    assert_eq!(flock(&one, ino, Some(FlockKind::Write)), Ok(()), "who gave up holds nothing");
}

#[test]
fn locks_end_with_the_descriptor() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    let opened = one.open(ino, libc::O_RDWR).unwrap();
    one.vfs.setlk(&one.never, plock(ino, opened.fh, 5, true, false), false).unwrap();
    let other = two.open(ino, libc::O_RDWR).unwrap();
    let try_other = || two.vfs.setlk(&two.never, plock(ino, other.fh, 6, false, false), false);
    assert_eq!(try_other(), Err(FsError::Again));
    let holder = two.vfs.getlk(&two.never, ino, 6, plock(ino, 0, 6, false, false).range).unwrap();
    assert_eq!(holder.map(|range| (range.write, range.start, range.end, range.pid)), Some((true, 10, 19, 0)));
    one.vfs.flush(opened.fh, 4).unwrap();
    assert_eq!(try_other(), Err(FsError::Again), "another process closed it");
    one.vfs.flush(opened.fh, 5).unwrap();
    assert_eq!(try_other(), Ok(()));
    two.vfs.release(other.fh, None).unwrap();
    assert_eq!(one.vfs.setlk(&one.never, plock(ino, opened.fh, 5, true, false), false), Ok(()));

    flock(&one, ino, Some(FlockKind::Write)).unwrap();
    one.vfs.release(opened.fh, Some(1)).unwrap();
    assert_eq!(flock(&two, ino, Some(FlockKind::Write)), Ok(()));
}

/// Has `other` clean up after `client` as after a dead one, and `client` learn of it.
fn bury(client: &Client, other: &Client) {
    let (meta, sid) = (other.vfs.meta(), client.vfs.meta().sid());
    meta.run(DropLocks { sid, dead_before: None }, &other.never).unwrap();
    meta.run(DropSession { sid, dead_before: None, keep_writer: false }, &other.never).unwrap();
    client.vfs.meta().beat().unwrap().unwrap();
}

#[test]
fn a_lost_lock_is_told_until_the_file_is_closed() {
    let lost = Err::<(), _>(FsError::io(""));
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"content");
    let open = || one.open(ino, libc::O_RDWR).unwrap().fh;
    let (bsd, posix, released, free) = (open(), open(), open(), open());
    let flock =
        |client: &Client, fh, owner, kind| client.vfs.flock(&client.never, (ino, fh), owner, kind, false);
    let setlk = |fh, owner, unlock| one.vfs.setlk(&one.never, plock(ino, fh, owner, true, unlock), false);
    flock(&one, bsd, 1, Some(FlockKind::Write)).unwrap();
    setlk(posix, 5, false).unwrap();
    flock(&one, released, 2, None).unwrap();
    setlk(released, 6, true).unwrap();
    bury(&one, &two);
    assert_eq!(flock(&two, 0, 9, Some(FlockKind::Write)), Ok(()), "it is free for others");
    flock(&two, 0, 9, None).unwrap();

    for fh in [bsd, posix] {
        assert_eq!(one.read(fh, 0, 7).map(drop), lost);
        assert_eq!(one.write(fh, 0, b"x").map(drop), lost);
        let cut = one.vfs.truncate(&one.caller, &one.never, ino, (0, Some(fh)), false);
        assert_eq!(cut.map(drop), lost);
        assert_eq!(one.vfs.fsync(&one.never, fh), lost);
        assert_eq!(flock(&one, fh, 1, Some(FlockKind::Write)), lost);
        assert_eq!(flock(&one, fh, 1, None), lost);
        assert_eq!(setlk(fh, 5, true), lost);
    }
    for fh in [released, free] {
        assert_eq!(one.read(fh, 0, 7).unwrap(), b"content");
        assert_eq!(one.write(fh, 0, b"c"), Ok(1));
        assert_eq!(one.vfs.fsync(&one.never, fh), Ok(()));
    }
    one.vfs.release(bsd, Some(1)).unwrap();
    one.vfs.flush(posix, 5).unwrap();
    one.vfs.release(posix, None).unwrap();

    let again = open();
    flock(&one, again, 1, Some(FlockKind::Write)).unwrap();
    setlk(again, 5, false).unwrap();
    assert_eq!(one.write(again, 0, b"c"), Ok(1));
    assert_eq!(flock(&two, 0, 9, Some(FlockKind::Read)), Err(FsError::Again));
}

#[test]
fn the_dead_lose_locks_and_the_right_to_commit_at_once() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    let fh = one.open(ino, libc::O_RDWR).unwrap().fh;
    let sid = one.vfs.meta().sid();
    one.vfs.flock(&one.never, (ino, fh), 1, Some(FlockKind::Write), false).unwrap();
    assert_eq!(one.write(fh, 0, b"x"), Ok(1));
    let drop_locks = |dead_before| two.vfs.meta().run(DropLocks { sid, dead_before }, &two.never);
    assert_eq!(drop_locks(Some(0)), Ok(false), "it lives");
    assert_eq!(flock(&two, ino, Some(FlockKind::Write)), Err(FsError::Again));
    assert_eq!(drop_locks(Some(i64::MAX)), Ok(true));
    assert_eq!(flock(&two, ino, Some(FlockKind::Write)), Ok(()));
    assert_eq!(one.vfs.meta().env().fences(), 0, "it has not heard of it");
    assert_eq!(one.vfs.fsync(&one.never, fh), Err(FsError::io("")), "its next commit tells");
    assert_eq!(one.vfs.meta().env().fences(), 1);
    let end = DropSession { sid, dead_before: Some(1), keep_writer: false };
    assert_eq!(two.vfs.meta().run(end, &two.never), Ok(false), "it is back");
    one.vfs.meta().beat().unwrap().unwrap();
    assert_eq!(one.vfs.meta().env().fences(), 1, "it was told once");
}

#[test]
fn what_was_written_under_a_lost_lock_does_not_go_to_the_file() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"old");
    let fh = one.open(ino, libc::O_RDWR).unwrap().fh;
    let other = one.open(ino, libc::O_RDWR).unwrap().fh;
    let lock =
        |client: &Client, fh| client.vfs.flock(&client.never, (ino, fh), 1, Some(FlockKind::Write), false);
    lock(&one, fh).unwrap();
    assert_eq!(one.write(fh, 0, b"ONE"), Ok(3));
    let sid = one.vfs.meta().sid();
    two.vfs.meta().run(DropLocks { sid, dead_before: Some(i64::MAX) }, &two.never).unwrap();
    let next = two.open(ino, libc::O_RDWR).unwrap().fh;
    lock(&two, next).unwrap();
    assert_eq!(two.write(next, 0, b"two"), Ok(3));
    two.vfs.fsync(&two.never, next).unwrap();
    assert_eq!(one.vfs.meta().env().fences(), 0, "it has not heard of it");
    assert_eq!(one.vfs.fsync(&one.never, fh), Err(FsError::io("")));
    let cut = one.vfs.truncate(&one.caller, &one.never, ino, (1, Some(fh)), false);
    assert_eq!(cut.map(drop), Err(FsError::io("")));
    assert_eq!(two.get(ino), b"two");
    // Who never held a lock is told, and goes on.
    assert_eq!(one.vfs.fsync(&one.never, other), Err(FsError::io("")));
    assert_eq!(one.write(other, 3, b" three"), Ok(6));
    one.vfs.fsync(&one.never, other).unwrap();
    drop(one.close(fh));
    assert_eq!(two.get(ino), b"two three");
}

#[test]
fn a_cut_that_finds_out_that_the_lock_was_lost_does_not_happen() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"content");
    let fh = one.open(ino, libc::O_RDWR).unwrap().fh;
    one.vfs.flock(&one.never, (ino, fh), 1, Some(FlockKind::Write), false).unwrap();
    let sid = one.vfs.meta().sid();
    two.vfs.meta().run(DropLocks { sid, dead_before: Some(i64::MAX) }, &two.never).unwrap();
    let cut = one.vfs.truncate(&one.caller, &one.never, ino, (1, Some(fh)), false);
    assert_eq!(cut.map(drop), Err(FsError::io("")));
    assert_eq!(one.vfs.meta().env().fences(), 1);
    assert_eq!(two.get(ino), b"content");
}

#[test]
fn a_lock_that_is_taken_while_its_client_is_taken_for_dead_is_held() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"");
    let fh = one.open(ino, libc::O_RDWR).unwrap().fh;
    let sid = one.vfs.meta().sid();
    two.vfs.meta().run(DropSession { sid, dead_before: None, keep_writer: false }, &two.never).unwrap();
    // The lock's own commit is what tells.
    assert_eq!(one.vfs.meta().env().fences(), 0);
    one.vfs.flock(&one.never, (ino, fh), 1, Some(FlockKind::Write), false).unwrap();
    assert_eq!(one.vfs.meta().env().fences(), 1);
    assert_eq!(one.write(fh, 0, b"x"), Ok(1));
    assert_eq!(flock(&two, ino, Some(FlockKind::Read)), Err(FsError::Again));
}

#[test]
fn whoever_gets_a_lock_sees_what_others_appended() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"first");
    let open = |client: &Client| client.open(ino, libc::O_RDWR | libc::O_APPEND).unwrap().fh;
    let (here, there) = (open(&one), open(&two));
    let lock =
        |client: &Client, fh, kind| client.vfs.flock(&client.never, (ino, fh), 1, kind, false).unwrap();
    lock(&two, there, Some(FlockKind::Write));
    assert_eq!(two.write(there, 5, b" second"), Ok(7));
    lock(&two, there, None);

    lock(&one, here, Some(FlockKind::Write));
    assert_eq!(one.vfs.revalidate_under_lock(&one.never, here), Ok(true), "stored before the lock went");
    assert_eq!(
        one.vfs.append_at(&one.never, Place { fh: here, offset: 5 }, true),
        Ok(12),
        "where the kernel believes the end to be"
    );
    assert_eq!(one.read(here, 0, 100).unwrap(), b"first second");
    assert_eq!(one.vfs.revalidate_under_lock(&one.never, here), Ok(false), "nobody wrote meanwhile");
    assert_eq!(one.write(here, 12, b" third"), Ok(6));
    one.vfs.fsync(&one.never, here).unwrap();
    assert_eq!(one.vfs.revalidate_under_lock(&one.never, here), Ok(false), "but this mount itself");
}
