//! What the request of `.control` that fills the block cache does: which files it finds, what it
//! counts, and what ends it.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures::{TryStreamExt as _, executor::block_on};
use parking_lot::Mutex;
use rig::{Client, Volume, control, eventually};
use serde_json::Value;
use sluice_meta::{
    Options,
    engine::{List, Read},
    schema::Key,
};
use sluice_object::ObjectStore;
use sluice_testkit::wrap::Hooked;
use sluice_types::{Caller, FileType, Ino};
use sluice_vfs::{Changes, VfsConfig};

const ROOT: Ino = Ino::ROOT;
const WARM: u8 = 0;
const EVICT: u8 = 1;
const CHECK: u8 = 2;

fn request(paths: &str, background: bool, action: u8) -> Vec<u8> {
    let length = (paths.len() as u32).to_be_bytes();
    [&length[..], paths.as_bytes(), &[0, 8, u8::from(background), action]].concat()
}

/// The answer to a request, in JSON.
fn ask(client: &Client, paths: &str, action: u8) -> Value {
    value(&control(client, 1004, &request(paths, false, action)))
}

fn value(mut answer: &[u8]) -> Value {
    // Items of progress, of two numbers, stand before it.
    while let [0xFE, rest @ ..] = answer {
        answer = &rest[16..];
    }
    assert_eq!(answer[0], 0xFF, "{answer:?}");
    serde_json::from_slice(&answer[5..]).unwrap()
}

/// Files, bytes, bytes that are not cached, and failures.
fn numbers(answer: &Value) -> [u64; 4] {
    let failures = answer["Failures"]["Count"].as_u64();
    let [files, bytes, missed] =
        ["FileCount", "TotalBytes", "MissBytes"].map(|name| answer[name].as_u64().unwrap());
    [files, bytes, missed, failures.unwrap()]
}

/// Removes the objects that hold a file which was stored last.
fn remove_objects(volume: &Volume, before: &[String]) {
    for key in objects(volume).iter().filter(|key| !before.contains(key)) {
        block_on(volume.store.delete(key)).unwrap();
    }
}

fn objects(volume: &Volume) -> Vec<String> {
    block_on(volume.store.list("").map_ok(|meta| meta.key).try_collect()).unwrap()
}

#[test]
fn trees_are_warmed_up_checked_and_evicted() {
    let volume = Volume::new();
    let writer = volume.mount();
    let dir = writer.mkdir(ROOT, "d").unwrap().ino;
    let below = writer.mkdir(dir, "below").unwrap().ino;
    let single = writer.put(dir, "single", &[1; 1000]);
    writer.put(below, "large", &vec![2; 5 << 20]);
    writer.put(below, "empty", b"");
    writer.put(ROOT, "outside", &[3; 7]);
    writer.make(below, "pipe", FileType::Fifo).unwrap();
    writer.vfs.symlink(&writer.caller, &writer.never, ROOT, b"link", b"d/../d/below").unwrap();
    let (entry, opened) = writer.create(below, "hole").unwrap();
    writer.truncate(entry.ino, 300 << 20).unwrap();
    writer.write(opened.fh, 200 << 20, &[4; 10]).unwrap();
    writer.close(opened.fh).unwrap();

    let client = volume.mount();
    let (in_below, in_dir) = ((5 << 20) + 10, (5 << 20) + 1010);
    assert_eq!(numbers(&ask(&client, "/d", CHECK)), [4, in_dir, in_dir, 0]);
    assert_eq!(client.vfs.data().stats().gets.get(), 0, "to look costs no request");
    assert_eq!(numbers(&ask(&client, "/link", WARM)), [3, in_below, 0, 0]);
    let gets = client.vfs.data().stats().gets.get();
    assert_eq!(gets, 3, "the blocks of the large file, and the one in the hole");
    let half = ask(&client, "/d", CHECK);
    assert_eq!(numbers(&half), [4, in_dir, 1000, 0]);
    assert_eq!(half["Locations"]["memory"], in_below);
    assert_eq!(numbers(&ask(&client, &format!("inode:{}", single.0), WARM)), [1, 1000, 0, 0]);
    assert_eq!(numbers(&ask(&client, "", WARM)), [5, in_dir + 7, 0, 0], "the root of the mount");
    assert_eq!(client.vfs.data().stats().gets.get(), gets + 2, "nothing is fetched twice");

    assert_eq!(numbers(&ask(&client, "/d/single\n/outside", EVICT)), [2, 1007, 0, 0]);
    assert_eq!(numbers(&ask(&client, "/d/single\n/d/below/large", CHECK)), [2, in_dir - 10, 1000, 0]);
    let answer = ask(&client, "/nothing\n/d/single/x\n/outside", WARM);
    assert_eq!(numbers(&answer), [1, 7, 0, 2]);
    assert_eq!(answer["Failures"]["Named"][0].as_str().unwrap().split(':').next(), Some("/nothing"));
}

#[test]
fn a_wide_directory_is_walked_page_by_page() {
    let volume = Volume::new();
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "wide").unwrap().ino;
    for number in 0..1500 {
        client.put(dir, &format!("{number}"), if number % 100 == 0 { b"x" } else { b"" });
    }
    assert_eq!(numbers(&ask(&client, "/wide", CHECK))[..2], [1500, 15]);
}

#[test]
fn a_missing_object_is_named_once_and_the_rest_goes_on() {
    let volume = Volume::new();
    let writer = volume.mount();
    writer.put(ROOT, "whole", &[1; 100]);
    let before = objects(&volume);
    let damaged = writer.put(ROOT, "damaged", &[2; 50]);
    writer.vfs.link(&writer.caller, &writer.never, damaged, ROOT, b"again").unwrap();
    remove_objects(&volume, &before);
    let client = volume.mount();
    let answer = ask(&client, "/", WARM);
    assert_eq!(numbers(&answer), [3, 200, 100, 1], "{answer}");
    let named = answer["Failures"]["Named"].as_array().unwrap();
    assert_eq!(named.len(), 1);
    let named = named[0].as_str().unwrap();
    assert!(["/damaged", "/again"].iter().any(|path| named.starts_with(path)), "{named}");
    assert!(named.contains("chunks/0/0/") && named.contains("does not exist"), "{named}");
    assert_eq!(answer["Failures"]["Incomplete"], false);
}

#[test]
fn nobody_fetches_what_he_may_not_read() {
    let volume = Volume::new();
    let client = volume.mount();
    let home = client.mkdir(ROOT, "home").unwrap().ino;
    client.put(home, "inside", &[1; 10]);
    let secret = client.put(ROOT, "secret", &[2; 20]);
    client.put(ROOT, "public", &[3; 30]);
    for (ino, mode) in [(home, 0o700), (secret, 0o600)] {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
    }
    let user = Client { caller: Caller::user(1000, 1000), ..volume.mount() };
    let answer = ask(&user, "/", WARM);
    assert_eq!(numbers(&answer), [1, 30, 0, 2], "{answer}");
    for path in ["/home", "/secret"] {
        let denied = format!("{path}: permission denied");
        assert!(answer["Failures"]["Named"].as_array().unwrap().contains(&denied.into()), "{answer}");
    }
    let answer = ask(&user, &format!("/home/inside\ninode:{}", secret.0), WARM);
    assert_eq!(numbers(&answer)[3], 2, "{answer}");
    assert_eq!(user.vfs.data().stats().gets.get(), 1);
}

fn asks_for_chunks(reads: &[Read]) -> bool {
    reads.iter().any(|read| matches!(read, Read::All(List::Chunks(..))))
}

#[test]
fn what_changes_meanwhile_is_no_failure() {
    let volume = Volume::new();
    let writer = volume.mount();
    writer.put(ROOT, "stays", &[1; 100]);
    let before = objects(&volume);
    let [gone, other] = ["gone", "other"].map(|name| writer.put(ROOT, name, &[2; 50]));
    remove_objects(&volume, &before);
    // Their blocks are missing; when that is looked into, one is removed and one written again.
    let changes = Mutex::new(Some(writer));
    let hooked = Hooked::new(Arc::clone(&volume.engine) as _).before_ask(move |reads| {
        let looks = |ino| reads.contains(&Read::Get(Key::Node(ino)));
        if !looks(gone) && !looks(other) {
            return Ok(());
        }
        // Another thread waits until all has changed.
        let mut changes = changes.lock();
        if let Some(writer) = changes.take() {
            writer.unlink(ROOT, "gone").unwrap();
            let fh = writer.open(other, libc::O_RDWR).unwrap().fh;
            writer.write(fh, 0, &[3; 50]).unwrap();
            writer.close(fh).unwrap();
        }
        Ok(())
    });
    let client = volume.mount_on(Arc::new(hooked), Options::default(), VfsConfig::default());
    let answer = ask(&client, "/", WARM);
    assert_eq!(numbers(&answer), [3, 150, 0, 0], "{answer}");
}

/// A client whose walks stop when they read the records of chunks, until told to go on. Returns
/// whether one has come there, and what lets it go on.
fn stopped(volume: &Volume) -> (Client, Arc<AtomicBool>, Arc<AtomicBool>) {
    let [here, on] = [false; 2].map(|is| Arc::new(AtomicBool::new(is)));
    let (came, go) = (Arc::clone(&here), Arc::clone(&on));
    let hooked = Hooked::new(Arc::clone(&volume.engine) as _).before_ask(move |reads| {
        if asks_for_chunks(reads) {
            came.store(true, Ordering::Release);
            eventually("permission to go on", || go.load(Ordering::Acquire));
        }
        Ok(())
    });
    (volume.mount_on(Arc::new(hooked), Options::default(), VfsConfig::default()), here, on)
}

/// Writes a request to `.control`, and closes it without reading the answer once the work has
/// begun.
fn leave(client: &Client, background: bool, begun: &AtomicBool) {
    let body = request("/", background, WARM);
    let ino = client.lookup(ROOT, ".control").unwrap().ino;
    let fh = client.open(ino, libc::O_RDWR).unwrap().fh;
    let head = [1004_u32.to_be_bytes(), (body.len() as u32).to_be_bytes()].concat();
    client.write(fh, 0, &[head, body].concat()).unwrap();
    eventually("the work to begin", || begun.load(Ordering::Acquire));
    client.close(fh).unwrap();
}

#[test]
fn a_program_that_goes_away_ends_the_work_but_not_in_the_background() {
    let volume = Volume::new();
    volume.mount().put(ROOT, "file", &[1; 100]);
    for (background, gets) in [(false, 0), (true, 1)] {
        let (client, begun, on) = stopped(&volume);
        leave(&client, background, &begun);
        on.store(true, Ordering::Release);
        eventually("the end of the work", || Arc::strong_count(&client.vfs) == 1);
        assert_eq!(client.vfs.data().stats().gets.get(), gets, "background: {background}");
    }
}

#[test]
fn the_end_of_the_mount_ends_work_in_the_background() {
    let volume = Volume::new();
    volume.mount().put(ROOT, "file", &[1; 100]);
    let (client, begun, on) = stopped(&volume);
    leave(&client, true, &begun);
    client.vfs.close(None).unwrap();
    on.store(true, Ordering::Release);
    eventually("the end of the work", || Arc::strong_count(&client.vfs) == 1);
    assert_eq!(client.vfs.data().stats().gets.get(), 0);
}

#[test]
fn one_request_may_hold_thousands_of_paths() {
    let volume = Volume::new();
    let client = volume.mount();
    client.put(ROOT, "file", &[1; 100]);
    let paths = "/file\n".repeat(20_000);
    assert_eq!(numbers(&ask(&client, paths.trim_end(), CHECK))[..2], [20_000, 2_000_000]);
}
