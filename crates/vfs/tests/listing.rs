//! Listing directories, large ones and such that change meanwhile.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::collections::HashSet;

use rig::{Client, Volume};
use sluice_meta::{op::At, ops::create::Create};
use sluice_types::{Caller, FileType, Ino, Name};
use sluice_vfs::VfsConfig;

const ROOT: Ino = Ino::ROOT;

/// Makes a directory of so many files.
fn fill(client: &Client, files: usize) -> Ino {
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    let meta = client.vfs.meta();
    for begin in (0..files).step_by(10_000) {
        let ops = (begin..files.min(begin + 10_000)).map(|number| Create {
            at: At::new(dir, Name::new(format!("file-{number}").as_bytes()).unwrap()),
            ino: meta.new_ino(&client.never).unwrap(),
            kind: FileType::File,
            mode: 0o644,
            umask: 0,
            rdev: 0,
            target: None,
            caller: Caller::client(),
        });
        for made in meta.run_all(ops.collect(), &client.never) {
            made.unwrap();
        }
    }
    dir
}

/// Names from an offset on, with the offsets after them.
fn names_from(client: &Client, fh: u64, offset: u64) -> Vec<(u64, Vec<u8>)> {
    let mut names = Vec::new();
    let add = &mut |item: sluice_vfs::DirItem<'_>| {
        names.push((item.cookie, item.name.to_vec()));
        true
    };
    client.vfs.readdir(&client.never, fh, (offset, false), add).unwrap();
    names
}

#[test]
fn an_offset_behind_what_is_kept_stays_good_while_the_directory_changes() {
    const FILES: usize = 9_000;
    let volume = Volume::new();
    let client = volume.mount();
    let dir = fill(&client, FILES);
    let fh = client.vfs.opendir(dir).unwrap();
    let all = names_from(&client, fh, 0);
    assert_eq!(all.len(), FILES + 2);
    for at in [2, 1000, 5000, FILES / 2, FILES + 1] {
        assert_eq!(names_from(&client, fh, all[at].0), all[at + 1..], "from {at}");
    }
    // Of what was read and of what comes, one in ten goes, and others come.
    for (_, name) in all[2..].iter().step_by(10) {
        client.unlink(dir, std::str::from_utf8(name).unwrap()).unwrap();
    }
    for number in 0..100 {
        client.put(dir, &format!("file-{number}-more"), b"");
    }
    let stays = |at: usize| at % 10 != 2;
    let at = 3000;
    let left = names_from(&client, fh, all[at].0);
    let names: HashSet<_> = left.iter().map(|(_, name)| name.clone()).collect();
    assert_eq!(names.len(), left.len(), "each once");
    for (number, (_, name)) in all.iter().enumerate().skip(at + 1) {
        assert_eq!(names.contains(name), stays(number), "name {number}");
    }
    assert!(
        all[2..=at].iter().all(|(_, name)| !names.contains(name)),
        "what was shown before does not come again"
    );

    // Whoever opens it anew, as a file server may for each page, goes on where the other was.
    let first = all[1000].0;
    let anew = client.vfs.opendir(dir).unwrap();
    let left: HashSet<_> = names_from(&client, anew, first).into_iter().map(|(_, name)| name).collect();
    let shown = all[2..=1000].iter().filter(|(_, name)| left.contains(name));
    assert_eq!(shown.count(), 0, "in the first page");
}

#[test]
fn every_name_of_a_large_directory_comes_once() {
    const FILES: usize = 100_000;
    let volume = Volume::new();
    let client = volume.mount_with(VfsConfig::default());
    let dir = fill(&client, FILES);
    let (listed, trips) = volume.engine.during(|| client.list(dir, 777, true));
    let names: HashSet<_> = listed.iter().map(|(name, ..)| name.clone()).collect();
    assert_eq!((listed.len(), names.len()), (FILES + 2, FILES + 2));
    let full = listed.iter().filter(|(.., entry)| entry.is_some()).count();
    assert!(full > FILES / 2, "most come with attributes: {full}");
    assert!(trips.total() < 200, "{trips}");
}

#[test]
fn a_listing_can_be_taken_up_anywhere_and_begun_anew() {
    let volume = Volume::new();
    let client = volume.mount();
    for number in 0..10 {
        client.put(ROOT, &format!("f{number}"), b"");
    }
    let fh = client.vfs.opendir(ROOT).unwrap();
    let names_from = |offset: u64| names_from(&client, fh, offset);
    let all = names_from(0);
    assert_eq!(names_from(all[4].0), all[5..], "from the middle");
    client.put(ROOT, "new", b"");
    assert_eq!(names_from(1), all[1..], "what is open does not change");
    assert!(names_from(0).iter().any(|(_, name)| name == b"new"), "rewound");
}

#[test]
fn what_changed_since_a_page_was_read_comes_without_attributes() {
    let volume = Volume::new();
    let client = volume.mount_with(VfsConfig::default());
    for name in ["a", "b", "c"] {
        client.put(ROOT, name, b"");
    }
    let fh = client.vfs.opendir(ROOT).unwrap();
    let mut seen = Vec::new();
    client
        .vfs
        .readdir(&client.never, fh, (0, true), &mut |item| {
            seen.push(item.cookie);
            // Up to the first file: the page is read.
            item.entry.is_none()
        })
        .unwrap();
    client.unlink(ROOT, "b").unwrap();
    let ino = client.lookup(ROOT, "c").unwrap().ino;
    let handle = client.open(ino, libc::O_RDWR).unwrap();
    client.write(handle.fh, 0, b"more").unwrap();
    client.vfs.flush(handle.fh, 0).unwrap();
    let mut entries = Vec::new();
    client
        .vfs
        .readdir(&client.never, fh, (2, true), &mut |item| {
            entries.push((item.name.to_vec(), item.entry.map(|entry| entry.attr.length)));
            true
        })
        .unwrap();
    let of = |name: &[u8]| entries.iter().find(|(known, _)| known == name).unwrap().1;
    assert_eq!((of(b"a"), of(b"b"), of(b"c")), (Some(0), None, None));
}
