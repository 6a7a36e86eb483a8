//! How often each call asks the engine. A trip more is a fault: users wait for every one of them.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::Volume;
use sluice_testkit::wrap::Counting;
use sluice_types::{Ino, Time};
use sluice_vfs::{Changes, RenameMode, SetTime, VfsConfig};

const ROOT: Ino = Ino::ROOT;

/// Asserts that `run` takes no more than so many reads and commits, and no scan. Fewer is no fault:
/// what a commit validates may be remembered instead of read.
#[track_caller]
fn at_most<T>(count: &Counting, what: &str, reads: u64, commits: u64, run: impl FnOnce() -> T) -> T {
    let (answer, trips) = count.during(run);
    assert!(trips.reads <= reads && trips.commits <= commits && trips.pages == 0, "{what}: {trips}");
    answer
}

#[test]
fn every_call_stays_in_its_budget() {
    let volume = Volume::new();
    let client = volume.mount_with(VfsConfig::default());
    let count = &volume.engine;
    // Numbers come in batches, and the first of each batch is paid for by nobody in particular.
    client.put(ROOT, "first", b"x");

    let dir = at_most(count, "mkdir", 1, 1, || client.mkdir(ROOT, "d")).unwrap().ino;
    let (entry, opened) = at_most(count, "create", 1, 1, || client.create(dir, "f")).unwrap();
    let ino = entry.ino;
    let parent = at_most(count, "getattr of the parent", 0, 0, || client.vfs.getattr(&client.never, dir));
    assert_eq!(parent.unwrap().0.nlink, 2);
    at_most(count, "write", 0, 0, || client.write(opened.fh, 0, b"data")).unwrap();
    at_most(count, "flush", 1, 1, || client.vfs.flush(opened.fh, 0)).unwrap();
    at_most(count, "flush of nothing", 0, 0, || client.vfs.flush(opened.fh, 0)).unwrap();
    at_most(count, "write", 0, 0, || client.write(opened.fh, 0, b"data")).unwrap();
    let time = || Changes { mtime: Some(SetTime::At(Time { sec: 1, nsec: 0 })), ..Changes::default() };
    let utimens = || client.vfs.setattr(&client.caller, &client.never, ino, time());
    // With what was written before it.
    let attr = at_most(count, "setattr of a time", 1, 1, utimens).unwrap();
    assert_eq!((attr.mtime.sec, attr.length), (1, 4));
    at_most(count, "release", 0, 0, || client.vfs.release(opened.fh, None)).unwrap();

    at_most(count, "lookup", 1, 0, || client.lookup(dir, "f")).unwrap();
    at_most(count, "getattr", 1, 0, || client.vfs.getattr(&client.never, ino)).unwrap();
    let opened = at_most(count, "open", 1, 0, || client.open(ino, libc::O_RDONLY)).unwrap();
    at_most(count, "getattr after open", 0, 0, || client.vfs.getattr(&client.never, ino)).unwrap();
    at_most(count, "first read", 1, 0, || client.read(opened.fh, 0, 4)).unwrap();
    at_most(count, "second read", 0, 0, || client.read(opened.fh, 0, 4)).unwrap();
    at_most(count, "close", 0, 0, || client.close(opened.fh)).unwrap();

    let changes = || Changes { mode: Some(0o600), ..Changes::default() };
    let chmod = || client.vfs.setattr(&client.caller, &client.never, ino, changes());
    at_most(count, "setattr", 1, 1, chmod).unwrap();
    at_most(count, "truncate that grows", 1, 1, || client.truncate(ino, 5)).unwrap();
    // What is to be hidden is only known when the length is.
    at_most(count, "truncate that cuts", 2, 1, || client.truncate(ino, 2)).unwrap();
    let cut = at_most(count, "open with O_TRUNC", 2, 1, || client.open(ino, libc::O_WRONLY | libc::O_TRUNC));
    client.close(cut.unwrap().fh).unwrap();
    let link = || client.vfs.link(&client.caller, &client.never, ino, dir, b"g");
    at_most(count, "link", 1, 1, link).unwrap();
    let rename = |to: &'static [u8]| {
        client.vfs.rename(&client.caller, &client.never, (dir, b"g"), (dir, to), RenameMode::Replace)
    };
    at_most(count, "rename", 1, 1, || rename(b"h")).unwrap();
    at_most(count, "unlink", 1, 1, || client.unlink(dir, "h")).unwrap();
    at_most(count, "getattr of the parent", 0, 0, || client.vfs.getattr(&client.never, dir)).unwrap();

    let (_, trips) = count.during(|| client.list(dir, 100, true));
    assert_eq!((trips.total(), trips.pages), (1, 1), "a listing of one page");
    client.mkdir(dir, "e").unwrap();
    at_most(count, "rmdir of a directory that was made here", 1, 1, || client.rmdir(dir, "e")).unwrap();
}

#[test]
fn a_new_file_of_100_kib_takes_three_trips() {
    let volume = Volume::new();
    let client = volume.mount_with(VfsConfig::default());
    client.put(ROOT, "first", b"x");
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    let ((), trips) = volume.engine.during(|| {
        assert!(client.lookup(dir, "f").is_err());
        let (_, opened) = client.create(dir, "f").unwrap();
        client.write(opened.fh, 0, &vec![1; 100 << 10]).unwrap();
        client.vfs.flush(opened.fh, 0).unwrap();
        client.vfs.release(opened.fh, None).unwrap();
    });
    assert_eq!((trips.total(), trips.commits), (3, 2), "{trips}");
}
