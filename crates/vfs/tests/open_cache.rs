//! Opens that are answered without the engine: they take no trip, and changes that this client
//! makes or hears of are seen.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::{Client, TTL, Volume, lasting};
use sluice_types::Ino;
use sluice_vfs::{Changes, VfsConfig};

const ROOT: Ino = Ino::ROOT;

fn cached() -> VfsConfig {
    VfsConfig { open_ttl: TTL, ..lasting() }
}

/// Opens, reads and closes; what it read.
fn read_once(client: &Client, ino: Ino) -> Vec<u8> {
    let opened = client.open(ino, libc::O_RDONLY).unwrap();
    let read = client.read(opened.fh, 0, 100).unwrap();
    client.close(opened.fh).unwrap();
    read
}

#[test]
fn a_file_that_was_looked_up_is_opened_without_a_trip() {
    let volume = Volume::new();
    let (writer, reader) = (volume.mount(), volume.mount_with(cached()));
    writer.put(ROOT, "f", b"data");
    let ino = reader.lookup(ROOT, "f").unwrap().ino;
    let (read, trips) = volume.engine.during(|| read_once(&reader, ino));
    assert_eq!((read.as_slice(), trips.total()), (&b"data"[..], 1), "the records of its chunk: {trips}");
    let (read, trips) = volume.engine.during(|| read_once(&reader, ino));
    assert_eq!((read.as_slice(), trips.total()), (&b"data"[..], 0), "{trips}");
    // By default, every open asks.
    let usual = volume.mount_with(lasting());
    usual.lookup(ROOT, "f").unwrap();
    read_once(&usual, ino);
    let ((), trips) = volume.engine.during(|| drop(read_once(&usual, ino)));
    assert!(trips.total() > 0, "{trips}");
}

#[test]
fn what_this_client_changes_is_seen_by_its_next_open() {
    let volume = Volume::new();
    let client = volume.mount_with(cached());
    client.put(ROOT, "f", b"data");
    let ino = client.lookup(ROOT, "f").unwrap().ino;
    assert_eq!(read_once(&client, ino), b"data");
    client.truncate(ino, 2).unwrap();
    assert_eq!(read_once(&client, ino), b"da");
    let opened = client.open(ino, libc::O_RDWR).unwrap();
    client.write(opened.fh, 2, b"te").unwrap();
    client.close(opened.fh).unwrap();
    assert_eq!(read_once(&client, ino), b"date");
    let changes = Changes { mode: Some(0), ..Changes::default() };
    client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
    let other = sluice_types::Caller::user(5, 5);
    assert!(client.vfs.open(&other, &client.never, ino, libc::O_RDONLY).is_err(), "it is for nobody now");
}

#[test]
fn an_answer_of_the_engine_replaces_what_was_known() {
    let volume = Volume::new();
    let (writer, reader) = (volume.mount(), volume.mount_with(cached()));
    writer.put(ROOT, "f", b"data");
    let ino = reader.lookup(ROOT, "f").unwrap().ino;
    assert_eq!(read_once(&reader, ino), b"data");
    let opened = writer.open(ino, libc::O_RDWR).unwrap();
    writer.write(opened.fh, 4, b" and more").unwrap();
    writer.close(opened.fh).unwrap();
    assert_eq!(read_once(&reader, ino), b"data", "as the mount was asked to");
    reader.lookup(ROOT, "f").unwrap();
    assert_eq!(read_once(&reader, ino), b"data and more");
}
