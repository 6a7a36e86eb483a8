//! How often each call asks the engine. A trip more is a fault: users wait for every one of them.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::Volume;
use sluice_types::Ino;
use sluice_vfs::{Changes, RenameMode, VfsConfig};

const ROOT: Ino = Ino::ROOT;

#[test]
fn every_call_stays_in_its_budget() {
    let volume = Volume::new();
    let client = volume.mount_with(VfsConfig::default());
    let count = &volume.engine;
    // Numbers come in batches, and the first of each batch is paid for by nobody in particular.
    client.put(ROOT, "first", b"x");

    let dir = count.assert_trips("mkdir", 1, 1, || client.mkdir(ROOT, "d")).unwrap().ino;
    let (entry, opened) = count.assert_trips("create", 1, 1, || client.create(dir, "f")).unwrap();
    let ino = entry.ino;
    let parent = count.assert_trips("getattr of the parent", 0, 0, || client.vfs.getattr(&client.never, dir));
    assert_eq!(parent.unwrap().0.nlink, 2);
    count.assert_trips("write", 0, 0, || client.write(opened.fh, 0, b"data")).unwrap();
    count.assert_trips("flush", 1, 1, || client.vfs.flush(opened.fh, 0)).unwrap();
    count.assert_trips("flush of nothing", 0, 0, || client.vfs.flush(opened.fh, 0)).unwrap();
    count.assert_trips("release", 0, 0, || client.vfs.release(opened.fh, None)).unwrap();

    count.assert_trips("lookup", 1, 0, || client.lookup(dir, "f")).unwrap();
    count.assert_trips("getattr", 1, 0, || client.vfs.getattr(&client.never, ino)).unwrap();
    let opened = count.assert_trips("open", 1, 0, || client.open(ino, libc::O_RDONLY)).unwrap();
    count.assert_trips("getattr after open", 0, 0, || client.vfs.getattr(&client.never, ino)).unwrap();
    count.assert_trips("first read", 1, 0, || client.read(opened.fh, 0, 4)).unwrap();
    count.assert_trips("second read", 0, 0, || client.read(opened.fh, 0, 4)).unwrap();
    count.assert_trips("close", 0, 0, || client.close(opened.fh)).unwrap();

    let changes = || Changes { mode: Some(0o600), ..Changes::default() };
    let chmod = || client.vfs.setattr(&client.caller, &client.never, ino, changes());
    count.assert_trips("setattr", 1, 1, chmod).unwrap();
    count.assert_trips("truncate that grows", 1, 1, || client.truncate(ino, 5)).unwrap();
    // What is to be hidden is only known when the length is.
    count.assert_trips("truncate that cuts", 2, 1, || client.truncate(ino, 2)).unwrap();
    let cut =
        count.assert_trips("open with O_TRUNC", 2, 1, || client.open(ino, libc::O_WRONLY | libc::O_TRUNC));
    client.close(cut.unwrap().fh).unwrap();
    let link = || client.vfs.link(&client.caller, &client.never, ino, dir, b"g");
    count.assert_trips("link", 1, 1, link).unwrap();
    let rename = |to: &'static [u8]| {
        client.vfs.rename(&client.caller, &client.never, (dir, b"g"), (dir, to), RenameMode::Replace)
    };
    count.assert_trips("rename", 1, 1, || rename(b"h")).unwrap();
    count.assert_trips("unlink", 1, 1, || client.unlink(dir, "h")).unwrap();
    count.assert_trips("getattr of the parent", 0, 0, || client.vfs.getattr(&client.never, dir)).unwrap();

    let (_, trips) = count.during(|| client.list(dir, 100, true));
    assert_eq!((trips.total(), trips.pages), (1, 1), "a listing of one page");
    client.mkdir(dir, "e").unwrap();
    count.assert_trips("rmdir of a directory that was made here", 1, 1, || client.rmdir(dir, "e")).unwrap();
}
