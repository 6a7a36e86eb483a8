//! The pages that the kernel has of a file: they are kept over an open as long as nobody else
//! changed the file, and dropped while the file is open if somebody else did.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use rig::{Client, Volume, eventually, lasting};
use sluice_meta::{Options, engine::EngineError, schema::Change};
use sluice_testkit::wrap::Hooked;
use sluice_types::{Ino, Time};
use sluice_vfs::{Allocation, Changes, FlockKind, Place, SetTime, VfsConfig};

const ROOT: Ino = Ino::ROOT;

/// Opens and closes a file. Returns whether the kernel keeps its pages.
fn keeps(client: &Client, ino: Ino) -> bool {
    let opened = client.open(ino, libc::O_RDONLY).unwrap();
    client.close(opened.fh).unwrap();
    opened.keep_cache
}

fn overwrite(client: &Client, ino: Ino, data: &[u8]) {
    let opened = client.open(ino, libc::O_WRONLY).unwrap();
    client.write(opened.fh, 0, data).unwrap();
    client.close(opened.fh).unwrap();
}

/// The files whose pages the kernel was told to drop.
fn dropped(client: &Client) -> Arc<Mutex<Vec<Ino>>> {
    let dropped: Arc<Mutex<Vec<Ino>>> = Arc::default();
    client.vfs.on_stale_pages({
        let (dropped, vfs) = (Arc::clone(&dropped), Arc::downgrade(&client.vfs));
        move |ino| {
            dropped.lock().push(ino);
            // The kernel has dropped them before anybody asks.
            vfs.upgrade().unwrap().pages_dropped(ino);
        }
    });
    dropped
}

#[test]
fn what_this_client_changed_is_kept() {
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "f", b"one");
    assert!(keeps(&client, ino), "it was written");
    overwrite(&client, ino, b"other");
    assert!(keeps(&client, ino), "it was written again");
    let change = |changes: Changes| client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
    change(Changes { mode: Some(0o600), ..Changes::default() });
    change(Changes { mtime: Some(SetTime::At(Time { sec: 1, nsec: 0 })), ..Changes::default() });
    assert!(keeps(&client, ino), "its attributes were set");
    client.truncate(ino, 4).unwrap();
    assert!(keeps(&client, ino), "it was cut");
    let opened = client.open(ino, libc::O_RDWR).unwrap();
    let place = |offset| Place { fh: opened.fh, offset };
    let (vfs, caller, never) = (&client.vfs, &client.caller, &client.never);
    vfs.fallocate(caller, never, place(0), 2, Allocation::PunchHole).unwrap();
    vfs.copy_range(caller, never, place(0), place(10), 4).unwrap();
    client.close(opened.fh).unwrap();
    assert!(keeps(&client, ino), "the kernel itself drops what these change");
    let emptied = client.open(ino, libc::O_WRONLY | libc::O_TRUNC).unwrap();
    assert!(!emptied.keep_cache);
}

#[test]
fn what_another_client_changed_is_dropped_also_if_this_one_changed_it_after_that() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    let ino = client.put(ROOT, "f", b"one");
    let theirs: [(&str, &dyn Fn()); 3] = [
        ("written", &|| overwrite(&other, ino, b"two")),
        ("cut", &|| other.truncate(ino, other.length(ino).unwrap() - 1).unwrap()),
        ("cut and grown", &|| [0, 3].into_iter().for_each(|length| other.truncate(ino, length).unwrap())),
    ];
    for (what, change) in theirs {
        assert!(keeps(&client, ino), "{what}");
        change();
        assert!(!keeps(&client, ino), "{what}");
        assert!(keeps(&client, ino), "{what}, and read again");
        // The handle is there before, so no open sees the state that the other client left.
        let mine = client.open(ino, libc::O_RDWR).unwrap();
        change();
        client.write(mine.fh, 100, b"mine").unwrap();
        client.close(mine.fh).unwrap();
        assert!(!keeps(&client, ino), "{what}, and then written here");
        let mine = client.open(ino, libc::O_RDWR).unwrap();
        client.write(mine.fh, 100, b"mine").unwrap();
        change();
        client.close(mine.fh).unwrap();
        assert!(!keeps(&client, ino), "{what} between a write and its commit");
    }
}

#[test]
fn nothing_is_kept_before_the_kernel_has_dropped_older_pages() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    let ino = client.put(ROOT, "f", b"one");
    overwrite(&other, ino, b"two");
    let first = client.open(ino, libc::O_RDONLY).unwrap();
    let second = client.open(ino, libc::O_RDONLY).unwrap();
    assert!(!first.keep_cache && !second.keep_cache, "the answer to the first may be late");
    client.read(second.fh, 0, 3).unwrap();
    assert!(client.open(ino, libc::O_RDONLY).unwrap().keep_cache);
    overwrite(&other, ino, b"333");
    let cancelled = client.open(ino, libc::O_RDONLY).unwrap();
    client.vfs.cancel_open(cancelled.fh).unwrap();
    assert!(!keeps(&client, ino), "the kernel got no answer");
}

#[test]
fn the_kernel_drops_pages_of_an_open_file_that_another_client_changed() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    let dropped = dropped(&client);
    let take = || std::mem::take(&mut *dropped.lock());
    let ino = client.put(ROOT, "f", b"one");
    let opened = client.open(ino, libc::O_RDWR).unwrap();
    client.write(opened.fh, 0, b"1").unwrap();
    client.vfs.fsync(&client.never, opened.fh).unwrap();
    client.lookup(ROOT, "f").unwrap();
    assert_eq!(take(), [], "nobody else changed it");
    overwrite(&other, ino, b"two");
    client.lookup(ROOT, "f").unwrap();
    assert_eq!(take(), [ino]);
    client.lookup(ROOT, "f").unwrap();
    assert_eq!(take(), [], "they are dropped once");
    assert!(!keeps(&client, ino));
    assert!(keeps(&client, ino));
    overwrite(&other, ino, b"333");
    client.write(opened.fh, 0, b"4").unwrap();
    client.vfs.flush(opened.fh, 0).unwrap();
    assert_eq!(take(), [ino], "the commit found another state");
    client.close(opened.fh).unwrap();
    overwrite(&other, ino, b"555");
    client.lookup(ROOT, "f").unwrap();
    assert_eq!(take(), [], "the next open will see it");
    assert!(!keeps(&client, ino));
}

#[test]
fn open_files_are_looked_at_although_nobody_asks() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    let dropped = dropped(&client);
    let files: Vec<_> = (0..100).map(|file| client.put(ROOT, &rig::name(file), b"one")).collect();
    let opened: Vec<_> = files.iter().map(|ino| client.open(*ino, libc::O_RDONLY).unwrap()).collect();
    let read = |file: usize| client.read(opened[file].fh, 0, 3).unwrap();
    assert_eq!((read(3), read(99)), (b"one".to_vec(), b"one".to_vec()));
    for file in [3, 99] {
        overwrite(&other, files[file], b"two");
    }
    eventually("both files to be found", || {
        [3, 99].iter().all(|file| dropped.lock().contains(&files[*file]))
    });
    assert_eq!(dropped.lock().len(), 2);
    assert_eq!((read(3), read(99)), (b"two".to_vec(), b"two".to_vec()));
}

#[test]
fn the_kernel_drops_pages_of_an_open_file_when_a_change_is_announced() {
    let volume = Volume::new();
    let other = volume.mount();
    let ino = other.put(ROOT, "f", b"one");
    let client = volume.follow(lasting());
    let dropped = dropped(&client);
    let follows: Arc<Mutex<bool>> = Arc::default();
    client.vfs.on_invalidate({
        let follows = Arc::clone(&follows);
        move |change, _| {
            *follows.lock() |= *change == Change::Any;
            true
        }
    });
    eventually("it follows", || *follows.lock());
    let opened = client.open(ino, libc::O_RDONLY).unwrap();
    client.read(opened.fh, 0, 3).unwrap();
    assert_eq!(*dropped.lock(), []);
    overwrite(&other, ino, b"two");
    eventually("the pages to be dropped", || dropped.lock().contains(&ino));
    assert!(!keeps(&client, ino));
}

#[test]
fn a_lock_waits_for_pages_that_are_about_to_be_dropped() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    // A kernel that is slow to drop them.
    client.vfs.on_stale_pages(|_| ());
    let ino = client.put(ROOT, "f", b"one");
    let opened = client.open(ino, libc::O_RDWR).unwrap();
    overwrite(&other, ino, b"two");
    client.lookup(ROOT, "f").unwrap();
    client.vfs.flock(&client.never, (ino, opened.fh), 1, Some(FlockKind::Read), false).unwrap();
    let stale = || client.vfs.revalidate_under_lock(&client.never, opened.fh).unwrap();
    assert!(stale(), "although the state is that of the lookup");
    client.vfs.pages_dropped(ino);
    assert!(!stale());
}

#[test]
fn what_could_not_be_stored_is_not_kept() {
    let volume = Volume::new();
    let fails: Arc<AtomicBool> = Arc::default();
    let engine = Hooked::new(Arc::clone(&volume.engine) as _).before_commit({
        let fails = Arc::clone(&fails);
        move |_| {
            if fails.load(Relaxed) {
                Err(EngineError::Refused { engine: "test".into(), reason: "on purpose".into() })
            } else {
                Ok(())
            }
        }
    });
    let client = volume.mount_on(Arc::new(engine), Options::default(), VfsConfig::default());
    let ino = client.put(ROOT, "f", b"one");
    assert!(keeps(&client, ino));
    let opened = client.open(ino, libc::O_RDWR).unwrap();
    client.write(opened.fh, 0, b"two").unwrap();
    fails.store(true, Relaxed);
    client.close(opened.fh).unwrap_err();
    assert!(!keeps(&client, ino));
}
