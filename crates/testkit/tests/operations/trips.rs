//! The budget of trips, operation by operation: reads and commits.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{
    Interrupt, Meta, Options,
    engine::{self, Commit, Engine as _, Read, Scan},
    mem::MemEngine,
    ops::{
        chunks::ReadChunk,
        copy_range::CopyRange,
        flock::Flock,
        getattr::GetAttr,
        link::Link,
        lookup::Lookup,
        plock::GetPlock,
        quota::SetLimits,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        setattr::{Changes, SetAttr},
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
        xattr::{GetXattr, ListXattr, RemoveXattr, SetXattr, XattrMode},
    },
    schema::{FlockKind, Key, LockOwner, PlockRange, Quota, QuotaKey, Row, VolumeFormat},
};
use sluice_testkit::{
    operations::{SharedStore, at, create},
    wrap::Counting,
};
use sluice_types::{Caller, FileType, FsError, Ino, Name, Slice, Time};

/// A new volume, opened by a client that remembers nothing. It keeps what users and groups use:
/// that costs no trip.
fn volume(counting: &Counting) -> Arc<Meta> {
    let engine = counting.clone();
    let store = SharedStore::new(move || Arc::new(engine.clone()));
    store.format_with_owners(0);
    Meta::open(store.open(), Options { record_cache: false, ..Options::default() }).expect("open")
}

fn setup() -> (Counting, Arc<Meta>) {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let meta = volume(&counting);
    let never = Interrupt::never();
    for (name, ino) in [("a", 10), ("b", 11), ("empty", 12)] {
        meta.run(create(1, name, ino, FileType::Dir), &never).unwrap();
    }
    for (name, ino) in [("f", 20), ("g", 21), ("h", 22)] {
        meta.run(create(10, name, ino, FileType::File), &never).unwrap();
    }
    meta.run(create(10, "sub", 13, FileType::Dir), &never).unwrap();
    (counting, meta)
}

#[test]
fn a_change_log_takes_no_trip_and_one_write() {
    let writes = [false, true].map(|change_log| {
        let counting = Counting::new(Arc::new(MemEngine::new()));
        let engine = counting.clone();
        let store = SharedStore::new(move || Arc::new(engine.clone()));
        let meta = store.format_as(VolumeFormat { change_log, ..VolumeFormat::default() });
        let never = Interrupt::never();
        meta.run(create(1, "first", 9, FileType::File), &never).unwrap();
        let ((), trips) = counting.during(|| {
            meta.run(create(1, "a", 10, FileType::File), &never).unwrap();
            meta.run(
                Unlink { at: at(1, "a"), only: None, skip_trash: false, caller: Caller::client() },
                &never,
            )
            .unwrap();
        });
        (trips.total(), trips.writes)
    });
    assert_eq!(writes[1], (writes[0].0, writes[0].1 + 2));
}

#[test]
fn changes_take_two_trips() {
    let (counting, meta) = setup();
    let never = Interrupt::never();
    let caller = Caller::client;
    counting.assert_trips("create", 1, 1, || meta.run(create(10, "x", 30, FileType::File), &never).unwrap());
    counting.assert_trips("mkdir", 1, 1, || meta.run(create(10, "y", 31, FileType::Dir), &never).unwrap());
    counting
        .assert_trips("symlink", 1, 1, || meta.run(create(10, "z", 32, FileType::Symlink), &never).unwrap());
    let link = Link { ino: Ino(20), at: at(11, "link"), caller: caller() };
    counting.assert_trips("link", 1, 1, || meta.run(link, &never).unwrap());
    let unlink = Unlink { at: at(10, "x"), only: None, skip_trash: false, caller: caller() };
    counting.assert_trips("unlink", 1, 1, || meta.run(unlink, &never).unwrap());
    let rmdir = Rmdir { at: at(1, "empty"), hint: Some(Ino(12)), skip_trash: false, caller: caller() };
    counting.assert_trips("rmdir", 1, 1, || meta.run(rmdir, &never).unwrap());
    let rename = |from, to| Rename { from, to, mode: RenameMode::Replace, caller: caller() };
    counting.assert_trips("rename", 1, 1, || meta.run(rename(at(10, "f"), at(11, "f")), &never).unwrap());
    counting
        .assert_trips("rename over", 1, 1, || meta.run(rename(at(10, "g"), at(10, "h")), &never).unwrap());
}

#[test]
fn many_at_once_take_as_many_trips_as_one() {
    let (counting, meta) = setup();
    let never = Interrupt::never();
    let creates =
        (0..200).map(|n| create(10 + n % 2, &format!("many{n}"), 1000 + n, FileType::File)).collect();
    let answers = counting.assert_trips("200 creates", 1, 1, || meta.run_all(creates, &never));
    assert!(answers.iter().all(Result::is_ok));
    let unlinks = (0..200).map(|n| Unlink {
        only: None,
        at: at(10 + n % 2, &format!("many{n}")),
        skip_trash: false,
        caller: Caller::client(),
    });
    let answers = counting.assert_trips("200 unlinks", 1, 1, || meta.run_all(unlinks.collect(), &never));
    assert!(answers.iter().all(Result::is_ok));
}

#[test]
fn looks_take_one_trip() {
    let (counting, meta) = setup();
    let never = Interrupt::never();
    counting.assert_trips("lookup", 1, 0, || meta.read(&Lookup(at(10, "f")), &never).unwrap());
    counting.assert_trips("getattr and open", 1, 0, || meta.read(&GetAttr(Ino(20)), &never).unwrap());
    counting.assert_trips("read", 1, 0, || meta.read(&ReadChunk { ino: Ino(20), index: 0 }, &never).unwrap());
    counting.assert_trips("listxattr", 1, 0, || meta.read(&ListXattr(Ino(20)), &never).unwrap());
    let name = Name::new(b"user.none").unwrap();
    counting
        .assert_trips("getxattr", 1, 0, || meta.read(&GetXattr { ino: Ino(20), name }, &never).unwrap_err());
    let range = PlockRange { write: true, pid: 1, start: 0, end: 9 };
    let owner = LockOwner { sid: 1, owner: 1 };
    counting
        .assert_trips("getlk", 1, 0, || meta.read(&GetPlock { ino: Ino(20), owner, range }, &never).unwrap());
    let (page, trips) = counting.during(|| {
        meta.scan_readable(Scan::Entries { dir: Ino(10), nodes: true }, None, 100, &never).unwrap()
    });
    assert_eq!(page.rows.len(), 8, "four entries with their nodes");
    assert_eq!((trips.reads, trips.commits, trips.pages), (0, 0, 1), "readdir page");
}

#[test]
fn changes_of_a_file_take_two_trips() {
    let (counting, meta) = setup();
    let never = Interrupt::never();
    let caller = Caller::client;
    let ino = Ino(20);
    let changes = Changes { mode: Some(0o600), ..Changes::default() };
    counting.assert_trips("setattr", 1, 1, || {
        meta.run(SetAttr { ino, changes, caller: caller() }, &never).unwrap();
    });
    let slices = vec![Slice::whole(0, 5, 100)];
    let write = Write { ino, index: 0, slices, mtime: Time { sec: 1_700_000_001, nsec: 0 } };
    counting.assert_trips("write-commit", 1, 1, || meta.run(write, &never).unwrap());
    let truncate = |length| Truncate { ino, length, opened: true, kill_suid: false, caller: caller() };
    counting.assert_trips("truncate up", 1, 1, || meta.run(truncate(200), &never).unwrap());
    counting.assert_trips("truncate down", 2, 1, || meta.run(truncate(50), &never).unwrap());
    let value = bytes::Bytes::from_static(b"v");
    let name = Name::new(b"user.x").unwrap();
    let set = SetXattr { ino, name: name.clone(), value, mode: XattrMode::Any, caller: caller() };
    counting.assert_trips("setxattr", 1, 1, || meta.run(set, &never).unwrap());
    let remove = RemoveXattr { ino, name, caller: caller() };
    counting.assert_trips("removexattr", 1, 1, || meta.run(remove, &never).unwrap());
    let owner = LockOwner { sid: meta.sid(), owner: 1 };
    let flock = |kind| Flock { ino, owner, kind };
    counting.assert_trips("flock", 1, 1, || meta.run(flock(Some(FlockKind::Write)), &never).unwrap());
    counting.assert_trips("flock held", 1, 0, || meta.run(flock(Some(FlockKind::Write)), &never).unwrap());
    counting.assert_trips("unflock", 1, 1, || meta.run(flock(None), &never).unwrap());
    let copy = CopyRange { from: ino, from_offset: 0, to: Ino(21), to_offset: 0, length: 50 };
    counting.assert_trips("copy_file_range", 1, 1, || meta.run(copy, &never).unwrap());
}

#[test]
fn a_directory_that_moves_pays_for_its_new_ancestors() {
    let (counting, meta) = setup();
    let never = Interrupt::never();
    let rename = Rename {
        from: at(10, "sub"),
        to: at(11, "sub"),
        mode: RenameMode::Replace,
        caller: Caller::client(),
    };
    let (moved, trips) = counting.during(|| meta.run(rename, &never));
    moved.unwrap();
    assert!(trips.reads <= 3 && trips.commits == 1, "{trips:?}: one level is one trip more");
    let rmdir = Rmdir { at: at(1, "empty"), hint: None, skip_trash: false, caller: Caller::client() };
    counting.assert_trips("rmdir without a hint", 2, 1, || meta.run(rmdir, &never).unwrap());
}

#[test]
fn changes_of_what_was_just_seen_take_one_trip() {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let never = Interrupt::never();
    drop(volume(&counting));
    let meta = Meta::open(Arc::new(counting.clone()), Options::default()).unwrap();
    meta.run(create(1, "d", 10, FileType::Dir), &never).unwrap();
    counting.assert_trips("create", 0, 1, || meta.run(create(10, "f", 20, FileType::File), &never).unwrap());
    let slices = vec![Slice::whole(0, 5, 100)];
    let write = Write { ino: Ino(20), index: 0, slices, mtime: Time { sec: 1_700_000_001, nsec: 0 } };
    counting.assert_trips("write-commit", 0, 1, || meta.run(write, &never).unwrap());
    let name = Name::new(b"user.x").unwrap();
    let set = |value: usize, mode| {
        let value = bytes::Bytes::from(vec![b'v'; value]);
        SetXattr { ino: Ino(20), name: name.clone(), value, mode, caller: Caller::client() }
    };
    let remove = || RemoveXattr { ino: Ino(20), name: name.clone(), caller: Caller::client() };
    counting.assert_trips("first setxattr", 1, 1, || meta.run(set(1, XattrMode::Any), &never).unwrap());
    counting.assert_trips("setxattr", 0, 1, || meta.run(set(2, XattrMode::Replace), &never).unwrap());
    counting.assert_trips("removexattr", 0, 1, || meta.run(remove(), &never).unwrap());
    counting.assert_trips("setxattr", 0, 1, || meta.run(set(5000, XattrMode::Create), &never).unwrap());
    counting.assert_trips("removexattr of a long value", 1, 1, || meta.run(remove(), &never).unwrap());
    let unlink = Unlink { at: at(10, "f"), only: None, skip_trash: false, caller: Caller::client() };
    counting.assert_trips("unlink", 0, 1, || meta.run(unlink, &never).unwrap());
    // Another client changes what this one remembers: the commit notices, and the change is made on
    // what is.
    let other = Meta::open(Arc::new(counting.clone()), Options { record_cache: false, ..Options::default() })
        .unwrap();
    other.run(create(10, "g", 30, FileType::File), &never).unwrap();
    let taken = meta.run(create(10, "g", 21, FileType::File), &never);
    assert_eq!(taken.unwrap_err(), FsError::Exists);
    let on_g = |op: SetXattr| SetXattr { ino: Ino(30), ..op };
    meta.run(on_g(set(1, XattrMode::Create)), &never).unwrap();
    other.run(RemoveXattr { ino: Ino(30), ..remove() }, &never).unwrap();
    let gone = meta.run(on_g(set(2, XattrMode::Replace)), &never);
    assert_eq!(gone.unwrap_err(), FsError::NoData);
    other.run(on_g(set(3, XattrMode::Create)), &never).unwrap();
    let made = meta.run(on_g(set(4, XattrMode::Create)), &never);
    assert_eq!(made.unwrap_err(), FsError::Exists);
    let changes = Changes { mode: Some(0o500), ..Changes::default() };
    other.run(SetAttr { ino: Ino(10), changes, caller: Caller::client() }, &never).unwrap();
    let made = meta.run(create(10, "h", 22, FileType::File), &never).unwrap();
    assert_eq!(made.dir.mode, 0o500);
}

/// Settings, counters and session in one read, quotas in one page, and the renewal.
#[test]
fn a_heartbeat_takes_three_trips() {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    drop(volume(&counting));
    let meta = Meta::open(Arc::new(counting.clone()), Options::default()).unwrap();
    // A machine that takes more than a moment for one of them asks again.
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let (beaten, trips) = counting.during(|| meta.beat());
        beaten.unwrap().unwrap();
        if (trips.reads, trips.pages, trips.commits) == (1, 1, 1) {
            break;
        }
        assert!(Instant::now() < until, "{trips:?} for each heartbeat");
    }
}

/// What memory of a moment saves.
#[test]
fn the_directories_above_are_not_asked_for_each_time() {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let never = Interrupt::never();
    let meta = volume(&counting);
    let levels = 20;
    for level in 0..levels {
        let above = if level == 0 { 1 } else { 99 + level };
        meta.run(create(above, "d", 100 + level, FileType::Dir), &never).unwrap();
    }
    let quota = Quota { max_inodes: 1000, ..Quota::default() };
    let writes = vec![engine::Write::Insert(Row::Quota(QuotaKey::Dir(Ino(100)), quota))];
    counting.commit(&Commit { writes, ..Commit::default() }).unwrap();
    meta.beat().unwrap().unwrap();
    let bottom = 99 + levels;
    let mut files = 0;
    // A machine that takes more than a moment for one of them asks again.
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        let file = create(bottom, &format!("f{files}"), 1000 + files, FileType::File);
        let (made, trips) = counting.during(|| meta.run(file, &never));
        made.unwrap();
        files += 1;
        if trips.reads == 1 {
            break;
        }
        assert!(Instant::now() < until, "{trips:?} for each file");
    }
    assert!(files > 1, "the first has to ask");
    // A move of this client shows at once.
    let rename = Rename {
        from: at(100, "d"),
        to: at(1, "moved"),
        mode: RenameMode::Replace,
        caller: Caller::client(),
    };
    meta.rename(&rename, &never).unwrap();
    let charged = || match counting.read(&[Read::Get(Key::Quota(QuotaKey::Dir(Ino(100))))]) {
        Ok(found) => found,
        Err(error) => panic!("{error}"),
    };
    let before = charged();
    meta.run(create(bottom, "outside", 5000, FileType::File), &never).unwrap();
    assert_eq!(charged(), before);
}

/// Neither the directories above nor the quota, near its limit as it is, are asked for by a client
/// that saw them last: twenty levels cost what one costs.
#[test]
fn a_quota_above_a_deep_tree_takes_no_trip() {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let never = Interrupt::never();
    drop(volume(&counting));
    let meta = Meta::open(Arc::new(counting.clone()), Options::default()).unwrap();
    for level in 0..20 {
        let above = if level == 0 { 1 } else { 99 + level };
        meta.run(create(above, "d", 100 + level, FileType::Dir), &never).unwrap();
    }
    let quota = Quota { max_inodes: 1000, used_inodes: 19, used_space: 19 * 4096, ..Quota::default() };
    let writes = vec![engine::Write::Insert(Row::Quota(QuotaKey::Dir(Ino(100)), quota))];
    counting.commit(&Commit { writes, ..Commit::default() }).unwrap();
    meta.beat().unwrap().unwrap();
    let until = Instant::now() + Duration::from_mins(1);
    for file in 0.. {
        let make = |dir, name: &str| {
            let file = create(dir, &format!("{name}{file}"), 1000 * dir + file, FileType::File);
            let (made, trips) = counting.during(|| meta.run(file, &never));
            made.unwrap();
            (trips.reads, trips.commits)
        };
        // A machine that takes more than a moment for one of them asks again.
        let all = [make(100, "one level"), make(119, "twenty levels")];
        if all == [(0, 1); 2] {
            break;
        }
        assert!(Instant::now() < until, "{all:?} for each file");
    }
    // Only a refusal asks for the quota.
    let limit = SetLimits { key: QuotaKey::Dir(Ino(100)), max_space: None, max_inodes: Some(20) };
    meta.run(limit, &never).unwrap();
    meta.beat().unwrap().unwrap();
    let over = create(119, "over", 9000, FileType::File);
    let (made, trips) = counting.during(|| meta.run(over, &never));
    assert_eq!(made.unwrap_err(), FsError::Quota);
    assert!(trips.reads > 0 && trips.commits == 0, "{trips:?}");
}
