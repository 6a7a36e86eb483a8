//! Lookups answered from a page of their directory: many in a row take few trips, and what changed
//! is seen.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::{Volume, lasting, name};
use sluice_types::{FsError, Ino};
use sluice_vfs::{Changes, RenameMode};

const ROOT: Ino = Ino::ROOT;
const FILES: usize = 200;

#[test]
fn many_lookups_take_few_trips_and_changes_are_seen() {
    let volume = Volume::new();
    let (one, two) = (volume.mount_with(lasting()), volume.mount_with(lasting()));
    let dir = one.mkdir(ROOT, "d").unwrap().ino;
    let inos: Vec<Ino> = (0..FILES)
        .map(|file| {
            let (entry, opened) = one.create(dir, &name(file)).unwrap();
            one.close(opened.fh).unwrap();
            entry.ino
        })
        .collect();
    let sub = one.mkdir(dir, "sub").unwrap().ino;
    let (found, trips) = volume
        .engine
        .during(|| (0..FILES).map(|file| two.lookup(dir, &name(file)).unwrap().ino).collect::<Vec<_>>());
    assert_eq!(found, inos);
    // A slow machine looks up in several streaks, of which only one may be needed.
    assert!(trips.pages == 1 && trips.reads < FILES as u64, "{trips}");

    // What is not there is always asked for: another client may have made it.
    assert_eq!(two.lookup(dir, "new").unwrap_err(), FsError::NotFound);
    let new = one.create(dir, "new").unwrap().0.ino;
    assert_eq!(two.lookup(dir, "new").unwrap().ino, new);

    // What this client changed is not shown as it was.
    two.unlink(dir, &name(20)).unwrap();
    assert_eq!(two.lookup(dir, &name(20)).unwrap_err(), FsError::NotFound);
    let rename = |from: &[u8], to: &[u8]| {
        two.vfs.rename(&two.caller, &two.never, (dir, from), (dir, to), RenameMode::Replace)
    };
    rename(b"f21", b"f22").unwrap();
    assert_eq!(two.lookup(dir, "f21").unwrap_err(), FsError::NotFound);
    assert_eq!(two.lookup(dir, "f22").unwrap().ino, inos[21]);
    let changes = Changes { mode: Some(0o600), ..Changes::default() };
    two.vfs.setattr(&two.caller, &two.never, inos[23], changes).unwrap();
    assert_eq!(two.lookup(dir, "f23").unwrap().attr.mode & 0o777, 0o600);

    // So with what is in a directory, and what is not stored yet.
    let before = two.lookup(dir, "sub").unwrap().attr.nlink;
    two.mkdir(sub, "deeper").unwrap();
    assert_eq!(two.lookup(dir, "sub").unwrap().attr.nlink, before + 1);
    let opened = two.open(inos[25], libc::O_WRONLY).unwrap();
    two.write(opened.fh, 0, b"four").unwrap();
    assert_eq!(two.lookup(dir, "f25").unwrap().attr.length, 4);
    two.close(opened.fh).unwrap();
    assert_eq!(two.lookup(dir, "f25").unwrap().attr.length, 4);

    // What another client wrote is seen by an open, and not forgotten by a lookup after it.
    one.put(dir, "f24", b"longer");
    let opened = two.open(inos[24], libc::O_RDONLY).unwrap();
    two.close(opened.fh).unwrap();
    assert_eq!(two.lookup(dir, "f24").unwrap().attr.length, 6);
}
