//! Locks of two clients: who waits, who is woken, who gives up.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::{
    sync::{Arc, mpsc},
    thread,
};

use rig::{Client, Volume};
use sluice_types::{FsError, Ino};
use sluice_vfs::{FlockKind, Interrupt, Plock, PlockRange, Vfs};

const ROOT: Ino = Ino::ROOT;

fn plock(ino: Ino, fh: u64, owner: u64, write: bool, unlock: bool) -> Plock {
    Plock { ino, fh, owner, range: PlockRange { write, pid: 7, start: 10, end: 19 }, unlock }
}

/// Waits for an exclusive lock on a thread of its own.
fn waiting(vfs: &Arc<Vfs>, ino: Ino, interrupt: &Interrupt) -> mpsc::Receiver<Result<(), FsError>> {
    let (done, result) = mpsc::channel();
    let (vfs, interrupt) = (Arc::clone(vfs), interrupt.clone());
    thread::spawn(move || done.send(vfs.flock(&interrupt, ino, 2, Some(FlockKind::Write), true)));
    result
}

fn flock(client: &Client, ino: Ino, kind: Option<FlockKind>) -> Result<(), FsError> {
    client.vfs.flock(&client.never, ino, 1, kind, false)
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
    flock(&one, ino, None).unwrap();
    assert_eq!(result.recv().unwrap(), Ok(()));
    assert_eq!(flock(&one, ino, Some(FlockKind::Read)), Err(FsError::Again));
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
