//! What `.control` does to a mount: who is shown what, and what the kernel hears of it.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::sync::Arc;

use parking_lot::Mutex;
use rig::{Client, Volume, control};
use sluice_types::{Caller, Ino, Name};
use sluice_vfs::{Change, Changes, VfsConfig};

const ROOT: Ino = Ino::ROOT;

fn chmod(client: &Client, ino: Ino, mode: u16) {
    let changes = Changes { mode: Some(mode), ..Changes::default() };
    client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
}

fn clone(source: Ino, dir: Ino, name: &str) -> Vec<u8> {
    let ids = [source, dir, dir].map(|ino| ino.0.to_be_bytes()).concat();
    [&ids[..], &[name.len() as u8], name.as_bytes(), &[0, 0o22, 0, 4]].concat()
}

fn text(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).into_owned()
}

#[test]
fn what_a_user_may_not_list_is_left_out_and_said() {
    let volume = Volume::new();
    let client = volume.mount();
    let public = client.mkdir(ROOT, "public").unwrap().ino;
    let home = client.mkdir(public, "home").unwrap().ino;
    client.put(public, "seen", b"12345");
    let hidden = client.put(home, "hidden", b"1234567");
    chmod(&client, home, 0o711);
    let user = Client { caller: Caller::user(1000, 1000), ..volume.mount() };
    let summary =
        |client, ino: Ino| text(&control(client, 1007, &[&ino.0.to_be_bytes()[..], &[255, 255]].concat()));
    let info = |client, ino: Ino| text(&control(client, 1005, &[&ino.0.to_be_bytes()[..], &[1]].concat()));

    let all = summary(&client, ROOT);
    assert!(all.contains("hidden") && all.contains("\"Count\":0"), "{all}");
    let shown = summary(&user, ROOT);
    assert!(!shown.contains("hidden") && shown.contains("seen"), "{shown}");
    assert!(shown.contains("\"Denied\":{\"Count\":1,\"Paths\":[\"public/home\"]}"), "{shown}");
    let shown = info(&user, ROOT);
    assert!(shown.contains("\"Files\":1") && shown.contains("\"Paths\":[\"public/home\"]"), "{shown}");
    let shown = info(&client, ROOT);
    assert!(shown.contains("\"Files\":2") && shown.contains("\"Count\":0"), "{shown}");

    let denied = [libc::EACCES as u8];
    assert_eq!(summary(&user, home).as_bytes(), text(&denied).as_bytes(), "not even its sum");
    assert_eq!(control(&user, 1008, &hidden.0.to_be_bytes()).last(), denied.last(), "he may not write it");
    assert_eq!(control(&user, 1008, &ROOT.0.to_be_bytes()).last(), denied.last());
    assert_eq!(control(&client, 1008, &ROOT.0.to_be_bytes()).last(), Some(&0));
}

#[test]
fn a_clone_is_invalidated_in_the_kernel_and_takes_no_name_of_the_mount() {
    let volume = Volume::with(|format| format.trash_days = 1);
    let client = volume.mount_with(VfsConfig::default());
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    client.put(dir, "a", b"12345");
    let invalidated: Arc<Mutex<Vec<Change>>> = Arc::default();
    let notified = Arc::clone(&invalidated);
    client.vfs.on_invalidate(move |change, _| {
        notified.lock().push(change.clone());
        true
    });
    assert_eq!(control(&client, 1006, &clone(dir, ROOT, "copy")).last(), Some(&0));
    let name = Change::Entry(ROOT, Name::new(b"copy").unwrap());
    for change in [name, Change::Node(ROOT)] {
        assert!(invalidated.lock().contains(&change), "{change:?} of {:?}", invalidated.lock());
    }
    for name in [".trash", ".config", ".stats", ".accesslog", ".control"] {
        assert_eq!(control(&client, 1006, &clone(dir, ROOT, name)), [libc::EEXIST as u8], "{name}");
    }
    let kept = client.vfs.getattr(&client.never, ROOT).unwrap().0;
    assert_eq!(kept.nlink, 4, "the root counts the copy");
}

#[test]
fn a_clone_stores_what_it_copies_and_nothing_else() {
    let volume = Volume::new();
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    let written = |dir, name| {
        let (entry, opened) = client.create(dir, name).unwrap();
        client.write(opened.fh, 0, b"not stored yet").unwrap();
        (entry.ino, opened.fh)
    };
    let (inside, outside) = (written(dir, "inside"), written(ROOT, "outside"));
    assert_eq!(control(&client, 1006, &clone(dir, ROOT, "copy")).last(), Some(&0));
    assert_eq!(control(&client, 1006, &clone(inside.0, ROOT, "single")).last(), Some(&0));
    assert_eq!(client.vfs.data().dirty_end(inside.0), 0);
    assert_eq!(client.vfs.data().dirty_end(outside.0), 14, "it has nothing to do with the clone");
    let copy = client.lookup(ROOT, "copy").unwrap().ino;
    for ino in [client.lookup(copy, "inside").unwrap().ino, client.lookup(ROOT, "single").unwrap().ino] {
        assert_eq!(client.get(ino), b"not stored yet");
    }
    for (_, fh) in [inside, outside] {
        client.close(fh).unwrap();
    }
}

#[test]
fn a_removal_asks_for_no_file_that_is_open() {
    let volume = Volume::new();
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    let gone = client.put(dir, "gone", b"still read");
    let handles: Vec<u64> = (0..500)
        .map(|number| {
            let ino = client.put(ROOT, &format!("f{number}"), b"");
            client.open(ino, libc::O_RDONLY).unwrap().fh
        })
        .collect();
    let open = client.open(gone, libc::O_RDONLY).unwrap().fh;
    let remove = [&ROOT.0.to_be_bytes()[..], b"\x01d\x00"].concat();
    let (answer, trips) = volume.engine.during(|| control(&client, 1002, &remove));
    assert_eq!(answer.last(), Some(&0));
    assert!(trips.total() < 100, "{trips}");
    assert_eq!(client.read(open, 0, 100).unwrap(), b"still read");
    client.close(open).unwrap();
    assert!(client.length(gone).is_err(), "its last close ends it");
    for fh in handles {
        client.close(fh).unwrap();
    }
}
