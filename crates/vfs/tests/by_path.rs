//! Calls on paths that need no trip of their own for the way.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::{Client, Volume};
use sluice_types::{Caller, FileType, FsError, Ino, Name};
use sluice_vfs::{Dir, Found, NewNode, RenameMode};

const ROOT: Ino = Ino::ROOT;

fn names(path: &[&str]) -> Vec<Name> {
    path.iter().map(|name| Name::new(name.as_bytes()).unwrap()).collect()
}

fn found(client: &Client, path: &[&str]) -> Found {
    client.vfs.walk_to_open(&client.caller, &client.never, ROOT, &names(path)).unwrap().1.unwrap()
}

fn open(client: &Client, found: &Found, flags: i32) -> Result<u64, FsError> {
    client.vfs.open_found(&client.caller, &client.never, found, flags).map(|opened| opened.fh)
}

/// The guess for a path that was met.
fn guess(client: &Client, path: &[&str]) -> Dir {
    client.vfs.walk(&client.caller, &client.never, ROOT, &names(path)).unwrap();
    client.vfs.guess(&client.caller, ROOT, &names(path)).unwrap()
}

#[test]
fn what_a_walk_found_is_opened_without_a_trip() {
    let volume = Volume::new();
    let (one, other) = (volume.mount(), volume.mount());
    let dir = one.mkdir(ROOT, "d").unwrap().ino;
    let ino = one.put(dir, "f", b"first");
    assert_eq!(other.get(ino), b"first");
    let written = one.open(ino, libc::O_WRONLY).unwrap();
    one.write(written.fh, 0, b"what others closed").unwrap();
    one.close(written.fh).unwrap();
    let file = found(&other, &["d", "f"]);
    let (fh, trips) = volume.engine.during(|| open(&other, &file, libc::O_RDONLY));
    let fh = fh.unwrap();
    assert_eq!((trips.reads, trips.commits), (0, 0), "{trips}");
    assert_eq!(other.read(fh, 0, 100).unwrap(), b"what others closed");
    other.close(fh).unwrap();
    let (walked, dir) = other.vfs.walk_to_open(&other.caller, &other.never, ROOT, &names(&["d"])).unwrap();
    assert!(dir.is_none() && walked.found.len() == 1, "a directory is no file");
}

#[test]
fn an_open_shows_what_this_client_changed_after_the_walk() {
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "f", b"first");
    let before = found(&client, &["f"]);
    client.truncate(ino, 2).unwrap();
    let fh = open(&client, &before, libc::O_RDONLY).unwrap();
    assert_eq!(client.read(fh, 0, 100).unwrap(), b"fi");
    let before = found(&client, &["f"]);
    let written = client.open(ino, libc::O_WRONLY).unwrap();
    client.write(written.fh, 2, b"ll").unwrap();
    client.close(written.fh).unwrap();
    let again = open(&client, &before, libc::O_RDONLY).unwrap();
    assert_eq!(client.read(again, 0, 100).unwrap(), b"fill");
    for fh in [fh, again] {
        client.close(fh).unwrap();
    }
}

#[test]
fn what_this_client_removed_after_the_walk_is_not_opened() {
    let volume = Volume::new();
    let client = volume.mount();
    for replaced in [false, true] {
        client.put(ROOT, "f", b"content");
        let file = found(&client, &["f"]);
        if replaced {
            client.put(ROOT, "g", b"other");
            let (from, to) = ((ROOT, &b"g"[..]), (ROOT, &b"f"[..]));
            client.vfs.rename(&client.caller, &client.never, from, to, RenameMode::Replace).unwrap();
        }
        client.unlink(ROOT, "f").unwrap();
        assert_eq!(open(&client, &file, libc::O_RDONLY), Err(FsError::NotFound), "{replaced}");
    }
    let file = {
        client.put(ROOT, "open", b"content");
        found(&client, &["open"])
    };
    let fh = open(&client, &file, libc::O_RDONLY).unwrap();
    client.unlink(ROOT, "open").unwrap();
    assert_eq!(client.read(fh, 0, 100).unwrap(), b"content", "it was open");
    client.close(fh).unwrap();
}

#[test]
fn a_guess_that_is_wrong_changes_nothing() {
    let volume = Volume::new();
    let (one, other) = (volume.mount(), volume.mount());
    let old = one.mkdir(ROOT, "d").unwrap().ino;
    one.put(old, "f", b"old");
    let place = || guess(&other, &["d"]);
    let guesses: Vec<Dir> = (0..5).map(|_| place()).collect();
    let (from, to) = ((ROOT, &b"d"[..]), (ROOT, &b"moved"[..]));
    one.vfs.rename(&one.caller, &one.never, from, to, RenameMode::Replace).unwrap();
    let new = one.mkdir(ROOT, "d").unwrap().ino;
    one.put(new, "f", b"new");
    let [unlink, create, make, from, to] = <[Dir; 5]>::try_from(guesses).unwrap();
    let (caller, never) = (&other.caller, &other.never);
    let node = |kind| NewNode { kind, mode: 0o644, umask: 0, rdev: 0 };
    let again = Err(FsError::Again);
    assert_eq!(other.vfs.unlink(caller, never, unlink, b"f"), again);
    let made = other.vfs.create(caller, never, create, b"g", node(FileType::File), libc::O_RDWR);
    assert_eq!(made.map(drop), again);
    assert_eq!(other.vfs.make(caller, never, make, b"h", node(FileType::Dir)).map(drop), again);
    assert_eq!(other.vfs.rename(caller, never, (from, b"f"), (to, b"g"), RenameMode::Replace), again);
    let listed = |dir| other.vfs.list(never, dir, None, 10).unwrap().0.len();
    assert_eq!((listed(old), listed(new)), (1, 1));
    other.vfs.unlink(caller, never, place(), b"f").unwrap();
    assert_eq!((listed(old), listed(new)), (1, 0));
}

#[test]
fn a_guess_takes_one_read_and_lets_nobody_through_who_may_not_search() {
    let volume = Volume::new();
    let client = volume.mount();
    let above = client.mkdir(ROOT, "a").unwrap().ino;
    let dir = client.mkdir(above, "d").unwrap().ino;
    client.put(dir, "f", b"content");
    let place = guess(&client, &["a", "d"]);
    let (renamed, trips) = volume.engine.during(|| {
        let (from, to) = ((place.clone(), &b"f"[..]), (place.clone(), &b"g"[..]));
        client.vfs.rename(&client.caller, &client.never, from, to, RenameMode::NoReplace)
    });
    renamed.unwrap();
    assert_eq!((trips.reads, trips.commits), (1, 1), "{trips}");
    let private = sluice_vfs::Changes { mode: Some(0o700), ..sluice_vfs::Changes::default() };
    client.vfs.setattr(&client.caller, &client.never, above, private).unwrap();
    let open = sluice_vfs::Changes { mode: Some(0o777), ..sluice_vfs::Changes::default() };
    client.vfs.setattr(&client.caller, &client.never, dir, open).unwrap();
    let eve = Caller::user(1000, 1000);
    let place = client.vfs.guess(&eve, ROOT, &names(&["a", "d"])).unwrap();
    assert_eq!(client.vfs.unlink(&eve, &client.never, place, b"g"), Err(FsError::Access));
    assert!(client.vfs.guess(&eve, ROOT, &names(&["a", "x"])).is_none(), "it was never met");
    assert!(client.vfs.guess(&eve, ROOT, &names(&[".trash", "x"])).is_none());
}
