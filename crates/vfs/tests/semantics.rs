//! What programs may rely on: files, names, and what happens to files that are removed while they
//! are open.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use rig::{Client, Volume, control, eventually};
use sluice_meta::{
    op::At,
    ops::{getattr::GetAttr, quota::SetLimits, reach::Reach},
    quota,
    schema::QuotaKey,
};
use sluice_types::{AttrFlags, CHUNK_SIZE, Caller, FileType, FsError, Ino, Name, Time};
use sluice_vfs::{Allocation, Changes, Place, RenameMode, SetTime, Squash, VfsConfig};

const ROOT: Ino = Ino::ROOT;

#[test]
fn what_is_written_is_read_before_and_after_it_is_stored() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, b"hello").unwrap();
    client.write(opened.fh, 10, b"world").unwrap();
    assert_eq!(volume.objects(), 0, "nothing is stored yet");
    assert_eq!(client.length(entry.ino).unwrap(), 15, "attributes count what is not flushed");
    assert_eq!(client.lookup(ROOT, "f").unwrap().attr.length, 15);
    assert_eq!(client.read(opened.fh, 0, 100).unwrap(), b"hello\0\0\0\0\0world");
    client.vfs.fsync(&client.never, opened.fh).unwrap();
    assert!(volume.objects() > 0);
    assert_eq!(client.read(opened.fh, 3, 100).unwrap(), b"lo\0\0\0\0\0world");
    client.close(opened.fh).unwrap();
    assert_eq!(client.get(entry.ino), b"hello\0\0\0\0\0world");
}

#[test]
fn a_cut_that_is_refused_takes_nothing() {
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "log", b"first");
    let log = client.open(ino, libc::O_WRONLY | libc::O_APPEND).unwrap();
    let flags = Changes { flags: Some(AttrFlags(AttrFlags::APPEND)), ..Changes::default() };
    client.vfs.setattr(&client.caller, &client.never, ino, flags).unwrap();
    client.write(log.fh, 5, b" second").unwrap();
    assert_eq!(client.open(ino, libc::O_WRONLY | libc::O_TRUNC).map(drop), Err(FsError::Perm));
    assert_eq!(client.truncate(ino, 0), Err(FsError::Perm));
    client.close(log.fh).unwrap();
    assert_eq!(client.get(ino), b"first second");
}

#[test]
fn a_rewrite_that_sets_the_time_back_is_seen_by_the_next_open() {
    let volume = Volume::new();
    let (one, other) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"first");
    assert_eq!(other.get(ino), b"first");
    let before = one.lookup(ROOT, "f").unwrap().attr.mtime;
    let written = one.open(ino, libc::O_WRONLY).unwrap();
    one.write(written.fh, 0, b"other").unwrap();
    one.close(written.fh).unwrap();
    let back = Changes { mtime: Some(SetTime::At(before)), ..Changes::default() };
    one.vfs.setattr(&one.caller, &one.never, ino, back.clone()).unwrap();
    let opened = other.open(ino, libc::O_RDONLY).unwrap();
    assert!(!opened.keep_cache);
    assert_eq!(other.read(opened.fh, 0, 5).unwrap(), b"other");
    let written = one.open(ino, libc::O_WRONLY).unwrap();
    one.write(written.fh, 0, b"third").unwrap();
    one.close(written.fh).unwrap();
    one.vfs.setattr(&one.caller, &one.never, ino, back).unwrap();
    assert_eq!(other.vfs.revalidate_under_lock(&other.never, opened.fh), Ok(true), "nor does a lock hide it");
}

#[test]
fn a_removed_file_lives_until_its_last_close() {
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "f", b"content");
    let one = client.open(ino, libc::O_RDWR).unwrap();
    let two = client.open(ino, libc::O_RDONLY).unwrap();
    client.unlink(ROOT, "f").unwrap();
    assert_eq!(client.lookup(ROOT, "f"), Err(FsError::NotFound));
    client.write(one.fh, 7, b" and more").unwrap();
    client.close(one.fh).unwrap();
    assert_eq!(client.read(two.fh, 0, 100).unwrap(), b"content and more");
    assert_eq!(client.vfs.getattr(&client.never, ino).unwrap().0.nlink, 0);
    client.close(two.fh).unwrap();
    assert_eq!(client.vfs.getattr(&client.never, ino).map(drop), Err(FsError::NotFound));
    eventually("its blocks are deleted", || volume.objects() == 0);
}

#[test]
fn a_removed_file_that_is_not_open_loses_its_blocks() {
    let volume = Volume::new();
    let client = volume.mount();
    client.put(ROOT, "f", b"content");
    client.put(ROOT, "g", b"other content");
    client
        .vfs
        .rename(&client.caller, &client.never, (ROOT, b"g"), (ROOT, b"f"), RenameMode::Replace)
        .unwrap();
    eventually("the replaced file's block is deleted", || volume.objects() == 1);
    client.unlink(ROOT, "f").unwrap();
    eventually("all blocks are deleted", || volume.objects() == 0);
}

#[test]
fn cutting_a_file_meets_what_is_not_flushed() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    let ino = entry.ino;
    client.write(opened.fh, 0, &[1; 100]).unwrap();
    client.truncate(ino, 40).unwrap();
    assert_eq!(client.length(ino).unwrap(), 40);
    client.truncate(ino, 60).unwrap();
    let expected = [vec![1; 40], vec![0; 20]].concat();
    assert_eq!(client.read(opened.fh, 0, 100).unwrap(), expected, "what was cut off stays off");
    client.write(opened.fh, 80, &[2; 20]).unwrap();
    let expected = [expected, vec![0; 20], vec![2; 20]].concat();
    assert_eq!(client.read(opened.fh, 0, 200).unwrap(), expected);
    client.close(opened.fh).unwrap();
    assert_eq!(client.get(ino), expected);
    let again = client.open(ino, libc::O_RDWR | libc::O_TRUNC).unwrap();
    assert_eq!(client.length(ino).unwrap(), 0);
    client.write(again.fh, 3, b"x").unwrap();
    client.close(again.fh).unwrap();
    assert_eq!(client.get(ino), b"\0\0\0x");
}

#[test]
fn holes_are_made_found_and_copied() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    let at = |offset| Place { fh: opened.fh, offset };
    client.write(opened.fh, 0, &[1; 3000]).unwrap();
    client.vfs.fallocate(&client.caller, &client.never, at(1000), 500, Allocation::PunchHole).unwrap();
    client.vfs.fallocate(&client.caller, &client.never, at(3000), 1000, Allocation::Extend).unwrap();
    assert_eq!(client.length(entry.ino).unwrap(), 4000);
    let seek = |offset, data| client.vfs.seek(&client.never, at(offset), data);
    assert_eq!((seek(0, true), seek(0, false)), (Ok(0), Ok(1000)));
    assert_eq!((seek(1100, true), seek(1100, false)), (Ok(1500), Ok(1100)));
    assert_eq!((seek(3500, true), seek(2000, false)), (Err(FsError::NoDevice), Ok(3000)));
    assert_eq!(seek(4000, false), Err(FsError::NoDevice));
    let (copy, target) = client.create(ROOT, "g").unwrap();
    client.write(target.fh, 0, &[9; 2000]).unwrap();
    let to = Place { fh: target.fh, offset: 100 };
    let copied = client.vfs.copy_range(&client.caller, &client.never, at(500), to, 1200);
    assert_eq!(copied, Ok(1200));
    let expected = [vec![9; 100], vec![1; 500], vec![0; 500], vec![1; 200], vec![9; 700]].concat();
    assert_eq!(client.read(target.fh, 0, 5000).unwrap(), expected);
    client.close(target.fh).unwrap();
    assert_eq!(client.get(copy.ino), expected);
}

#[test]
fn data_and_holes_are_found_far_away() {
    let volume = Volume::new();
    let client = volume.mount();
    let (_, opened) = client.create(ROOT, "f").unwrap();
    let far = 1000 * CHUNK_SIZE + 5;
    client.write(opened.fh, 0, &[1; 10]).unwrap();
    client.write(opened.fh, far, &[2; 10]).unwrap();
    let seek = |offset, data| client.vfs.seek(&client.never, Place { fh: opened.fh, offset }, data);
    assert_eq!((seek(5, true), seek(5, false)), (Ok(5), Ok(10)));
    assert_eq!((seek(10, true), seek(CHUNK_SIZE, false)), (Ok(far), Ok(CHUNK_SIZE)));
    assert_eq!((seek(far + 1, true), seek(far + 1, false)), (Ok(far + 1), Ok(far + 10)));
    assert_eq!(seek(far + 10, true), Err(FsError::NoDevice));
    client.close(opened.fh).unwrap();
}

#[test]
fn a_time_that_was_set_survives_what_was_written_before() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, b"data").unwrap();
    let time = sluice_types::Time { sec: 1_000_000, nsec: 5 };
    let changes = Changes { mtime: Some(SetTime::At(time)), ..Changes::default() };
    let attr = client.vfs.setattr(&client.caller, &client.never, entry.ino, changes).unwrap();
    assert_eq!((attr.mtime, attr.length), (time, 4));
    client.close(opened.fh).unwrap();
    assert_eq!(client.vfs.getattr(&client.never, entry.ino).unwrap().0.mtime, time);
}

#[test]
fn a_time_that_was_set_survives_data_of_several_commits() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    // In three chunks.
    for chunk in 0..3 {
        client.write(opened.fh, chunk * CHUNK_SIZE, b"data").unwrap();
    }
    let time = Time { sec: 1_000_000, nsec: 5 };
    let changes = Changes { mtime: Some(SetTime::At(time)), ..Changes::default() };
    let set = || client.vfs.setattr(&client.caller, &client.never, entry.ino, changes.clone());
    assert_eq!(set().unwrap().length, 2 * CHUNK_SIZE + 4);
    client.close(opened.fh).unwrap();
    assert_eq!(client.vfs.getattr(&client.never, entry.ino).unwrap().0.mtime, time);
}

#[test]
fn a_time_that_may_not_be_set_loses_no_data() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, b"data").unwrap();
    let changes = Changes { mtime: Some(SetTime::At(Time { sec: 1, nsec: 5 })), ..Changes::default() };
    let stranger = Caller::user(1000, 1000);
    assert_eq!(
        client.vfs.setattr(&stranger, &client.never, entry.ino, changes).map(drop),
        Err(FsError::Perm)
    );
    client.close(opened.fh).unwrap();
    let attr = client.vfs.getattr(&client.never, entry.ino).unwrap().0;
    assert_eq!((attr.length, client.get(entry.ino)), (4, b"data".to_vec()));
    assert_ne!(attr.mtime.sec, 1);
}

#[test]
fn no_time_is_set_if_the_data_before_it_was_not_stored() {
    let volume = Volume::new();
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    let (entry, opened) = client.create(dir, "f").unwrap();
    client.write(opened.fh, 0, &vec![1; 64 << 10]).unwrap();
    let limits = SetLimits { key: QuotaKey::Dir(dir), max_space: Some(8 << 10), max_inodes: None };
    let counting = quota::Counting { strict: false, interrupt: &client.never, progress: &|_| {} };
    client.vfs.meta().set_quota(limits, &counting, &|_| {}).unwrap();
    let changes = Changes { mtime: Some(SetTime::At(Time { sec: 1, nsec: 5 })), ..Changes::default() };
    let set = client.vfs.setattr(&client.caller, &client.never, entry.ino, changes);
    assert_eq!(set.map(drop), Err(FsError::Quota));
    let attr = client.vfs.meta().read(&GetAttr(entry.ino), &client.never).unwrap();
    assert!(attr.length == 0 && attr.mtime.sec != 1, "{attr:?}");
}

#[test]
fn attributes_of_a_frozen_file_stay_as_they_are() {
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "f", b"data");
    let set = |changes: Changes| client.vfs.setattr(&client.caller, &client.never, ino, changes).map(drop);
    let flags = |flags| Changes { flags: Some(AttrFlags(flags)), ..Changes::default() };
    let mode = || Changes { mode: Some(0o600), ..Changes::default() };
    let owner = || Changes { uid: Some(7), ..Changes::default() };
    let time = |time| Changes { mtime: Some(time), ..Changes::default() };
    let past = || time(SetTime::At(Time { sec: 1, nsec: 0 }));
    for (frozen, touch) in [(AttrFlags::IMMUTABLE, Err(FsError::Perm)), (AttrFlags::APPEND, Ok(()))] {
        set(flags(frozen)).unwrap();
        assert_eq!([set(mode()), set(owner()), set(past())], [const { Err(FsError::Perm) }; 3]);
        assert_eq!(set(time(SetTime::Now)), touch);
        set(flags(0)).unwrap();
        assert_eq!([set(mode()), set(owner()), set(past())], [Ok(()), Ok(()), Ok(())]);
    }
}

#[test]
fn the_pages_of_a_file_are_kept_only_if_it_did_not_change() {
    let volume = Volume::new();
    let (client, other) = (volume.mount(), volume.mount());
    let ino = client.put(ROOT, "f", b"one");
    client.get(ino);
    let opened = client.open(ino, libc::O_RDONLY).unwrap();
    assert!(opened.keep_cache);
    let elsewhere = other.open(ino, libc::O_RDWR).unwrap();
    other.write(elsewhere.fh, 0, b"two").unwrap();
    other.close(elsewhere.fh).unwrap();
    assert!(!client.open(ino, libc::O_RDONLY).unwrap().keep_cache);
}

#[test]
fn an_open_sees_what_another_client_closed() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"first");
    assert_eq!(two.get(ino), b"first");
    for round in 0..20_u8 {
        let text = format!("round {round} by one, of some length {}", "x".repeat(usize::from(round)));
        let opened = one.open(ino, libc::O_RDWR | libc::O_TRUNC).unwrap();
        one.write(opened.fh, 0, text.as_bytes()).unwrap();
        one.close(opened.fh).unwrap();
        assert_eq!(two.get(ino), text.as_bytes());
        // Within the file, so that only the records change.
        let opened = two.open(ino, libc::O_RDWR).unwrap();
        two.write(opened.fh, 0, b"ROUND").unwrap();
        two.close(opened.fh).unwrap();
        assert_eq!(one.get(ino), [b"ROUND", &text.as_bytes()[5..]].concat());
    }
}

#[test]
fn what_is_appended_goes_behind_what_another_client_appended_before_the_open() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "log", b"first");
    let before = one.open(ino, libc::O_WRONLY | libc::O_APPEND).unwrap();
    let other = two.open(ino, libc::O_WRONLY | libc::O_APPEND).unwrap();
    two.write(other.fh, 5, b" second").unwrap();
    two.close(other.fh).unwrap();
    let opened = one.open(ino, libc::O_WRONLY | libc::O_APPEND).unwrap();
    // The kernel still believes that the file has five bytes, through whichever handle.
    for handle in [opened, before] {
        let place = Place { fh: handle.fh, offset: 5 };
        let end = one.vfs.append_at(&one.never, place, true).unwrap();
        one.write(handle.fh, end, b" third").unwrap();
    }
    let place = Place { fh: before.fh, offset: 99 };
    assert_eq!(one.vfs.append_at(&one.never, place, true), Ok(24), "a file that was cut elsewhere");
    assert_eq!(one.vfs.append_at(&one.never, place, false), Ok(99), "not the first part of a call");
    one.close(opened.fh).unwrap();
    one.close(before.fh).unwrap();
    assert_eq!(two.get(ino), b"first second third third");
    assert_eq!(one.vfs.append_at(&one.never, place, true), Ok(99), "a handle that is gone");
}

#[test]
fn a_running_program_is_not_cut() {
    const FMODE_EXEC: i32 = 0x20;
    let volume = Volume::new();
    let client = volume.mount();
    let ino = client.put(ROOT, "program", b"code");
    let running = client.open(ino, FMODE_EXEC).unwrap();
    assert_eq!(client.open(ino, libc::O_RDONLY | libc::O_TRUNC), Err(FsError::TextBusy));
    assert_eq!(client.get(ino), b"code");
    client.close(running.fh).unwrap();
    let cut = client.open(ino, libc::O_RDONLY | libc::O_TRUNC).unwrap();
    client.close(cut.fh).unwrap();
    assert_eq!(client.get(ino), b"");
}

#[test]
fn writers_of_two_clients_lose_nothing() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", &[0; 64]);
    let (a, b) = (one.open(ino, libc::O_RDWR).unwrap(), two.open(ino, libc::O_RDWR).unwrap());
    for at in 0..32_u64 {
        one.write(a.fh, 2 * at, b"a").unwrap();
        two.write(b.fh, 2 * at + 1, b"b").unwrap();
        one.vfs.fsync(&one.never, a.fh).unwrap();
        two.vfs.fsync(&two.never, b.fh).unwrap();
    }
    one.close(a.fh).unwrap();
    two.close(b.fh).unwrap();
    assert_eq!(one.get(ino), b"ab".repeat(32));
    assert_eq!(two.get(ino), b"ab".repeat(32));
}

#[test]
fn a_file_removed_elsewhere_takes_its_writers_data_along() {
    let volume = Volume::new();
    let (one, two) = (volume.mount(), volume.mount());
    let ino = one.put(ROOT, "f", b"x");
    let opened = one.open(ino, libc::O_RDWR).unwrap();
    two.unlink(ROOT, "f").unwrap();
    one.write(opened.fh, 0, b"late").unwrap();
    assert_eq!(one.vfs.fsync(&one.never, opened.fh), Err(FsError::Stale));
    eventually("nothing is left behind", || volume.objects() == 0);
}

#[test]
fn the_end_of_a_mount_stores_everything() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, b"not flushed").unwrap();
    client.vfs.close(None).unwrap();
    assert_eq!(volume.mount().get(entry.ino), b"not flushed");
}

#[test]
fn internal_files_are_there_and_cannot_be_touched() {
    let volume = Volume::with(|format| format.trash_days = 1);
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    client.put(dir, "f", b"x");
    client.unlink(dir, "f").unwrap();
    let listed: Vec<_> = client.list(ROOT, 100, false).into_iter().map(|(name, ..)| name).collect();
    for name in [&b".stats"[..], b".config", b".accesslog", b".trash", b"d", b".", b".."] {
        assert!(listed.contains(&name.to_vec()), "{}", name.escape_ascii());
    }
    assert_eq!(client.lookup(dir, ".stats"), Err(FsError::NotFound));
    assert!(client.lookup(dir, ".control").is_ok(), "it is in every directory");
    assert_eq!(client.unlink(ROOT, ".stats"), Err(FsError::Perm));
    assert_eq!(client.make(ROOT, ".control", FileType::File).map(drop), Err(FsError::Exists));
    let trash = client.lookup(ROOT, ".trash").unwrap().ino;
    let hours = client.list(trash, 100, true);
    assert_eq!((trash, hours.len()), (Ino::TRASH, 3), "one hour directory");
    let hour = hours.into_iter().map(|(name, ..)| String::from_utf8(name).unwrap()).max().unwrap();
    let inside = client.lookup(trash, &hour).unwrap().ino;
    for (name, ..) in client.list(inside, 100, true).into_iter().filter(|(name, ..)| !name.starts_with(b"."))
    {
        client.unlink(inside, std::str::from_utf8(&name).unwrap()).unwrap();
    }
    assert_eq!(client.rmdir(trash, &hour), Err(FsError::Busy), "deletions go there");
    client.put(dir, "g", b"y");
    client.unlink(dir, "g").unwrap();
    assert_eq!(client.list(inside, 100, true).len(), 3, "and are found");
    let stats = client.open(client.lookup(ROOT, ".stats").unwrap().ino, libc::O_RDONLY).unwrap();
    assert!(stats.direct);
    let text = String::from_utf8(client.read(stats.fh, 0, 1 << 16).unwrap()).unwrap();
    assert!(text.contains("juicefs_used_inodes 3"), "{text}");
    let config = client.open(client.lookup(ROOT, ".config").unwrap().ino, libc::O_RDONLY).unwrap();
    let text = String::from_utf8(client.read(config.fh, 0, 1 << 16).unwrap()).unwrap();
    assert!(text.contains("\"Name\": \"test\"") && text.contains("\"Sid\": 1"), "{text}");
}

#[test]
fn the_control_file_counts_clones_and_removes() {
    let volume = Volume::new();
    let client = volume.mount();
    let dir = client.mkdir(ROOT, "d").unwrap().ino;
    client.put(dir, "a", b"12345");
    client.put(dir, "b", b"678");
    let open = client.put(dir, "c", b"still open");
    let handle = client.open(open, libc::O_RDONLY).unwrap();
    let ask = |op, body: &[u8]| control(&client, op, body);
    let summary = ask(1007, &dir.0.to_be_bytes());
    let text = String::from_utf8_lossy(&summary);
    assert!(text.contains("\"Files\":3,\"Dirs\":1"), "{text}");
    let ids = [dir, ROOT, ROOT].map(|ino| ino.0.to_be_bytes()).concat();
    let clone = [&ids[..], b"\x04copy", &[0, 0o22, 0, 4]].concat();
    assert_eq!(ask(1006, &clone).last(), Some(&0));
    let copy = client.lookup(ROOT, "copy").unwrap().ino;
    let copied = client.lookup(copy, "a").unwrap().ino;
    let info = ask(1005, &copied.0.to_be_bytes());
    let text = String::from_utf8_lossy(&info);
    assert!(text.contains("\"Paths\":[\"/copy/a\"]") && text.contains("test/chunks/0/0/"), "{text}");
    let remove = [&ROOT.0.to_be_bytes()[..], b"\x01d\x00"].concat();
    assert_eq!(ask(1002, &remove).last(), Some(&0));
    assert_eq!(client.lookup(ROOT, "d"), Err(FsError::NotFound));
    assert_eq!(client.get(copied), b"12345", "clones keep the blocks");
    assert_eq!(client.read(handle.fh, 0, 100).unwrap(), b"still open");
    client.close(handle.fh).unwrap();
    assert_eq!(client.length(open), Err(FsError::NotFound));
    assert_eq!(ask(1234, b""), [22]);
}

#[test]
fn the_control_file_shows_and_changes_only_what_its_user_can_come_to() {
    let (volume, denied) = (Volume::new(), libc::EACCES as u8);
    let client = volume.mount();
    let secret = client.mkdir(ROOT, "secret").unwrap().ino;
    let open = client.mkdir(secret, "open").unwrap().ino;
    let mode = |ino, mode| {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
    };
    mode(ROOT, 0o777);
    mode(secret, 0o700);
    mode(open, 0o777);
    let file = client.put(open, "f", b"for nobody else");
    let user = Client { caller: Caller::user(1000, 1000), ..volume.mount() };
    let ids = [file, ROOT, ROOT].map(|ino| ino.0.to_be_bytes()).concat();
    let clone = [&ids[..], b"\x04copy", &[0, 0o22, 0, 4]].concat();
    let remove = |skip_trash| [&open.0.to_be_bytes()[..], b"\x01f", &[skip_trash]].concat();
    assert_eq!(control(&user, 1006, &clone), [denied]);
    assert_eq!(control(&user, 1002, &remove(0)), [denied]);
    assert_eq!(control(&user, 1005, &file.0.to_be_bytes()), [denied]);
    assert_eq!(control(&user, 1007, &open.0.to_be_bytes()), [denied]);
    let below = volume.mount_with(VfsConfig { root: open, ..VfsConfig::default() });
    let outside =
        below.vfs.meta().read(&Reach { ino: secret, root: open, caller: below.caller.clone() }, &below.never);
    assert_eq!(outside, Err(FsError::Access), "nor the superuser of a part");
    mode(secret, 0o711);
    assert_eq!(control(&user, 1006, &clone).last(), Some(&0));
    assert_eq!(control(&user, 1002, &remove(1)), [libc::EPERM as u8], "past the trash");
    assert_eq!(control(&user, 1002, &remove(0)).last(), Some(&0));
}

#[test]
fn who_may_not_keep_them_takes_setuid_and_setgid_from_what_he_changes() {
    let volume = Volume::new();
    let client = volume.mount();
    let user = Client { caller: Caller::user(1000, 1000), ..volume.mount() };
    let ino = client.put(ROOT, "f", b"content");
    let set = |who: &Client| {
        let changes = Changes { mode: Some(0o6777), ..Changes::default() };
        who.vfs.setattr(&client.caller, &who.never, ino, changes).unwrap();
    };
    let is_left = || client.lookup(ROOT, "f").unwrap().attr.mode & 0o6000 != 0;
    for who in [&client, &user] {
        set(who);
        let flags = libc::O_WRONLY | libc::O_TRUNC;
        who.close(who.open(ino, flags).unwrap().fh).unwrap();
        assert_eq!(is_left(), who.caller.superuser, "emptied by {}", who.caller.uid);
        let fh = who.open(ino, libc::O_RDWR).unwrap().fh;
        let at = |offset| Place { fh, offset };
        set(who);
        who.vfs.fallocate(&who.caller, &who.never, at(0), 100, Allocation::Extend).unwrap();
        assert_eq!(is_left(), who.caller.superuser, "allocated by {}", who.caller.uid);
        set(who);
        who.vfs.copy_range(&who.caller, &who.never, at(0), at(50), 10).unwrap();
        assert_eq!(is_left(), who.caller.superuser, "copied by {}", who.caller.uid);
        who.close(fh).unwrap();
    }
}

#[test]
fn sparse_files_fill_no_counter() {
    let volume = Volume::new();
    let client = volume.mount();
    let mut made = 0;
    for n in 0..70 {
        let grown = client.create(ROOT, &format!("f{n}")).and_then(|(entry, opened)| {
            client.close(opened.fh)?;
            client.truncate(entry.ino, 1 << 57)
        });
        if let Err(error) = grown {
            assert_eq!(error, FsError::NoSpace);
            break;
        }
        made += 1;
    }
    assert!((1..=32).contains(&made), "{made} files of 128 PiB");
    let size = client.vfs.statfs();
    assert!(size.total > size.used && size.used >= made << 57);
    client.unlink(ROOT, "f0").unwrap();
    client.put(ROOT, "small", b"there is room again");
}

#[test]
fn an_open_file_without_a_name_is_its_owners_still() {
    let volume = Volume::with(|format| format.trash_days = 1);
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.unlink(ROOT, "f").unwrap();
    let mode = |mode| {
        let changes = Changes { mode: Some(mode), ..Changes::default() };
        client.vfs.setattr(&client.caller, &client.never, entry.ino, changes).map(|attr| attr.mode)
    };
    assert_eq!(mode(0o600), Ok(0o600), "it is in the trash, but open");
    client.close(opened.fh).unwrap();
    assert_eq!(mode(0o644), Err(FsError::Perm));
}

#[test]
fn what_lost_its_name_unseen_goes_with_the_next_heartbeat() {
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, b"content").unwrap();
    client.vfs.fsync(&client.never, opened.fh).unwrap();
    let at = At::new(ROOT, Name::new(b"f").unwrap());
    client.vfs.meta().remove_tree(&at, true, &Caller::client(), &client.never, &|_| {}).unwrap();
    client.vfs.meta().beat().unwrap().unwrap();
    assert_eq!(client.read(opened.fh, 0, 10).unwrap(), b"content", "it is open");
    client.close(opened.fh).unwrap();
    let node = || client.vfs.meta().read(&GetAttr(entry.ino), &client.never).map(drop);
    assert_eq!(node(), Ok(()), "nobody told the mount");
    client.vfs.meta().beat().unwrap().unwrap();
    assert_eq!(node(), Err(FsError::NotFound));
}

#[test]
fn a_full_volume_takes_no_more() {
    let volume = Volume::with(|format| format.capacity = 1 << 20);
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    client.write(opened.fh, 0, &vec![1; 512 << 10]).unwrap();
    client.vfs.fsync(&client.never, opened.fh).unwrap();
    assert_eq!(client.write(opened.fh, 512 << 10, &vec![1; 768 << 10]), Err(FsError::NoSpace));
    client.close(opened.fh).unwrap();
    assert_eq!(client.length(entry.ino).unwrap(), 512 << 10);
    let size = client.vfs.statfs();
    assert_eq!((size.total, size.used), (1 << 20, 512 << 10));
}

#[test]
fn a_subdirectory_can_be_the_root() {
    let volume = Volume::with(|format| format.trash_days = 1);
    let dir = volume.mount().mkdir(ROOT, "d").unwrap().ino;
    let client = volume.mount_with(VfsConfig { root: dir, ..VfsConfig::default() });
    client.put(dir, "f", b"x");
    assert_eq!(client.lookup(dir, ".trash"), Err(FsError::NotFound));
    assert!(client.lookup(dir, ".stats").is_ok());
    let names = client.list(dir, 10, false);
    assert!(names.iter().any(|(name, ..)| name == b"f") && !names.iter().any(|(name, ..)| name == b".trash"));
}

#[test]
fn a_growing_file_never_looks_shorter_whoever_looks_and_changes_it() {
    const ROUNDS: u64 = 400;
    let volume = Volume::new();
    let client = volume.mount();
    let (entry, opened) = client.create(ROOT, "f").unwrap();
    let (ino, fh) = (entry.ino, opened.fh);
    let done = std::sync::atomic::AtomicBool::new(false);
    let is_done = || done.load(std::sync::atomic::Ordering::SeqCst);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                client.write(fh, round * 10, b"0123456789").unwrap();
                if round % 3 == 0 {
                    client.vfs.flush(fh, 0).unwrap();
                }
            }
            done.store(true, std::sync::atomic::Ordering::SeqCst);
        });
        scope.spawn(|| {
            let mut bits = 0;
            while !is_done() {
                bits = (bits + 1) & 0o777;
                let changes = Changes { mode: Some(bits), ..Changes::default() };
                client.vfs.setattr(&client.caller, &client.never, ino, changes).unwrap();
            }
        });
        scope.spawn(|| {
            let mut length = 0;
            while !is_done() {
                let now = client.length(ino).unwrap();
                assert!(now >= length, "{now} after {length}");
                length = now;
            }
        });
        let mut length = 0;
        while !is_done() {
            let data = client.read(fh, 0, 1 << 16).unwrap();
            assert!(data.len() >= length, "{} after {length}", data.len());
            assert!(
                data.chunks(10).all(|piece| piece == &b"0123456789"[..piece.len()]),
                "zeros in the middle"
            );
            length = data.len();
        }
    });
    client.close(fh).unwrap();
    assert_eq!(client.get(ino).len() as u64, ROUNDS * 10);
}

#[test]
fn who_is_squashed_keeps_none_of_his_groups() {
    let volume = Volume::new();
    for (all, uid, squashed) in [(true, 1000, true), (true, 0, true), (false, 0, true), (false, 1000, false)]
    {
        let squash = Some(Squash { all, uid: 12, gid: 34 });
        let client = volume.mount_with(VfsConfig { squash, ..VfsConfig::default() });
        let caller = client.vfs.caller(uid, 500, 1);
        assert_eq!((caller.uid, caller.gid), if squashed { (12, 34) } else { (uid, 500) });
        // Nobody looks for the others of a caller who has some.
        assert_eq!(caller.groups, if squashed { vec![34] } else { vec![] });
    }
}
