//! After every change, the recorded usage of every user and group is correct, and their limits are
//! enforced.
//!
//! What must stay true: after each step, the usage is compared with a count of all nodes. So a step
//! need not state its expected usage.

use std::sync::Arc;

use sluice_meta::{
    Interrupt, Meta,
    op::{At, Op},
    ops::{
        copy_range::CopyRange,
        create::Create,
        link::Link,
        rename::{Rename, RenameMode},
        setattr::{Changes, SetAttr},
        sustained::DropSustained,
        truncate::{Allocation, Fallocate, Truncate},
        unlink::Unlink,
        write::Write,
    },
    schema::{Quota, QuotaKey, Row},
    tree::CloneTree,
};
use sluice_types::{Caller, FileType, FsError, Ino, Slice};

use super::{
    clients::{Factory, NOW, SharedStore, at, create},
    state::State,
};

/// A volume on which every step is checked.
struct Checked {
    store: SharedStore,
    meta: Arc<Meta>,
}

impl Checked {
    fn new(store: SharedStore, trash_days: i64) -> Self {
        let meta = store.format_with_owners(trash_days);
        Self { store, meta }
    }

    fn does<O: Op>(&self, what: &str, op: O) -> O::Out {
        let out = self.meta.run(op, &Interrupt::never()).expect(what);
        self.check(what);
        out
    }

    fn check(&self, what: &str) -> State {
        let state = State::of(self.store.open().as_ref());
        state.assert_owners(what);
        state
    }
}

fn by(user: &Caller, dir: u64, name: &str, ino: u64, kind: FileType) -> Create {
    Create { caller: user.clone(), ..create(dir, name, ino, kind) }
}

fn write(ino: u64, pos: u32, id: u64, length: u32) -> Write {
    Write { ino: Ino(ino), index: 0, slices: vec![Slice::whole(pos, id, length)], mtime: NOW }
}

fn unlink(at: At) -> Unlink {
    Unlink { at, only: None, skip_trash: false, caller: Caller::client() }
}

fn chown(ino: u64, uid: Option<u32>, gid: Option<u32>) -> SetAttr {
    SetAttr { ino: Ino(ino), changes: Changes { uid, gid, ..Changes::default() }, caller: Caller::client() }
}

/// One of each change that moves what somebody uses.
fn every_change(checked: &Checked) {
    let Checked { meta, .. } = checked;
    let never = Interrupt::never();
    let (ann, bob) = (
        Caller { check: false, ..Caller::user(1000, 100) },
        Caller { check: false, ..Caller::user(1001, 101) },
    );
    let client = Caller::client;
    let file = FileType::File;
    checked.does("mkdir", by(&ann, 1, "d", 10_010, FileType::Dir));
    checked.does("create", by(&ann, 10_010, "f", 10_020, file));
    for (n, kind) in (10_030..).zip([FileType::Symlink, FileType::Fifo, FileType::Char, FileType::Socket]) {
        checked.does("mknod", by(&bob, 10_010, &format!("special{n}"), n, kind));
    }
    checked.does(
        "create in a directory that gives its group",
        SetAttr {
            ino: Ino(10_010),
            changes: Changes { mode: Some(0o2777), ..Changes::default() },
            caller: client(),
        },
    );
    checked.does("create", by(&bob, 10_010, "g", 10_021, file));

    checked.does("a write that grows the file", write(10_020, 0, 1, 10_000));
    checked.does("a write into it", write(10_020, 100, 2, 5000));
    checked.does("growing it by truncate", truncate(10_020, 100_000));
    checked.does("shrinking it", truncate(10_020, 5000));
    let fallocate = |what, length| Fallocate { ino: Ino(10_021), what, offset: 0, length };
    checked.does("allocating", fallocate(Allocation::Extend, 20_000));
    checked.does("punching a hole", fallocate(Allocation::PunchHole, 8192));
    let (from, to) = (Ino(10_020), Ino(10_021));
    checked.does(
        "copying a range behind the end",
        CopyRange { from, from_offset: 0, to, to_offset: 30_000, length: 5000 },
    );

    checked.does("chown", chown(10_020, Some(1001), None));
    checked.does("chgrp", chown(10_020, None, Some(102)));
    checked.does(
        "chown to an owner that there never was",
        chown(10_020, Some(4_000_000_000), Some(4_000_000_001)),
    );
    checked.does("chown of a symlink", chown(10_030, Some(1000), Some(100)));
    checked.does("chown of the root, which counts for nobody", chown(1, Some(1000), Some(100)));
    checked.does("chown of a directory", chown(10_010, Some(1002), Some(103)));

    checked.does("link", Link { ino: Ino(10_020), at: at(1, "second"), caller: client() });
    checked.does("growing it under two names", write(10_020, 20_000, 3, 9000));
    checked.does("unlink of one name", unlink(at(10_010, "f")));
    let rename = |from, to, mode| Rename { from, to, mode, caller: client() };
    checked.does("rename over another's file", rename(at(10_010, "g"), at(1, "second"), RenameMode::Replace));
    checked.does("create", by(&ann, 10_010, "h", 10_022, file));
    checked.does("exchange", rename(at(10_010, "h"), at(1, "second"), RenameMode::Exchange));

    for (name, preserve) in [("copy", false), ("likeness", true)] {
        let clone =
            CloneTree { source: Ino(10_010), at: at(1, name), preserve, umask: 0, caller: ann.clone() };
        meta.clone_tree(&clone, &never, &|_| {}).expect("clone");
        checked.check("clone");
    }
    for n in ["10030", "10031", "10032", "10033"] {
        checked.does("unlink of what is no file", unlink(at(10_010, &format!("special{n}"))));
    }
    meta.remove_tree(&at(1, "copy"), false, &client(), &never, &|_| {}).expect("rmr");
    checked.check("rmr");
    meta.remove_tree(&at(1, "likeness"), true, &client(), &never, &|_| {}).expect("rmr");
    checked.check("rmr past the trash");

    checked.does("create", by(&bob, 10_010, "open", 10_023, file));
    checked.does("write", write(10_023, 0, 9, 50_000));
    meta.register_open(Ino(10_023));
    checked.does("unlink of an open file", Unlink { skip_trash: true, ..unlink(at(10_010, "open")) });
    checked.does("growing it without a name", truncate(10_023, 70_000));
    meta.unregister_open(Ino(10_023));
    checked.does("its last close", DropSustained { sid: meta.sid(), ino: Ino(10_023), dead_before: None });
}

fn truncate(ino: u64, length: u64) -> Truncate {
    Truncate { ino: Ino(ino), length, opened: true, kill_suid: false, caller: Caller::client() }
}

/// What is removed is gone.
pub fn usage_follows_every_change(factory: &Factory<'_>) {
    let checked = Checked::new(factory(), 0);
    every_change(&checked);
    let never = Interrupt::never();
    for name in ["d", "second"] {
        checked.meta.remove_tree(&at(1, name), false, &Caller::client(), &never, &|_| {}).expect("rmr");
    }
    let state = checked.check("rmr of everything");
    for key in [QuotaKey::User(1000), QuotaKey::Group(101), QuotaKey::User(4_000_000_000)] {
        assert_eq!(state.quota(key), Some(Quota::UNLIMITED), "{key:?} owns nothing and stays on record");
    }
}

/// What is removed still belongs to its owner, until the trash is emptied.
pub fn usage_follows_every_change_with_a_trash(factory: &Factory<'_>) {
    let checked = Checked::new(factory(), 1);
    every_change(&checked);
    let state = checked.check("everything");
    let hour = state.rows.values().find_map(|row| match row {
        Row::Entry(Ino::TRASH, name, _) => Some(name.clone()),
        _ => None,
    });
    let hour = At::new(Ino::TRASH, hour.expect("something in the trash"));
    let never = Interrupt::never();
    checked.meta.remove_tree(&hour, true, &Caller::client(), &never, &|_| {}).expect("rmr");
    checked.check("emptying the trash");
}

/// A limit counts what the same client did a moment ago, and earlier in the same batch; others
/// notice with their heartbeat. What takes nothing more is never refused.
pub fn a_limit_holds_at_once(factory: &Factory<'_>) {
    let checked = Checked::new(factory(), 0);
    let never = Interrupt::never();
    let limits = [
        (QuotaKey::User(1000), Quota { max_inodes: 3, ..Quota::UNLIMITED }),
        (QuotaKey::Group(200), Quota { max_space: 40_960, ..Quota::UNLIMITED }),
    ];
    let writes = limits.map(|(key, quota)| sluice_meta::engine::Write::Insert(Row::Quota(key, quota)));
    let commit = sluice_meta::engine::Commit { writes: writes.into(), ..Default::default() };
    checked.store.open().commit(&commit).expect("commit");
    let other = checked.store.client();
    checked.meta.beat().expect("beat").expect("the volume is there");
    let meta = &checked.meta;

    let ann = Caller { check: false, ..Caller::user(1000, 100) };
    let creates = (0..5).map(|n| by(&ann, 1, &format!("f{n}"), 20 + n, FileType::File)).collect();
    let made = meta.run_all(creates, &never);
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 3);
    assert!(made.iter().all(|made| !matches!(made, Err(error) if *error != FsError::Quota)), "{made:?}");
    checked.check("as many as she may");
    let one_more = |meta: &Meta| meta.run(by(&ann, 1, "more", 30, FileType::File), &never).map(drop);
    assert_eq!(one_more(meta), Err(FsError::Quota));
    other.beat().expect("beat").expect("the volume is there");
    assert_eq!(one_more(&other), Err(FsError::Quota));
    meta.run(write(20, 0, 1, 1 << 20), &never).expect("space is not limited");
    meta.run(unlink(at(1, "f1")), &never).expect("less is always admitted");
    assert_eq!(one_more(meta), Ok(()));

    let bob = Caller { check: false, ..Caller::user(1001, 200) };
    meta.run(by(&bob, 1, "b", 40, FileType::File), &never).expect("create");
    meta.run(write(40, 0, 2, 40_960), &never).expect("all of the space");
    assert_eq!(meta.run(write(40, 40_960, 3, 1), &never).map(drop), Err(FsError::Quota));
    meta.run(write(40, 0, 4, 40_960), &never).expect("over what is there");
    assert_eq!(meta.run(truncate(40, 50_000), &never).map(drop), Err(FsError::Quota));
    meta.run(truncate(40, 100), &never).expect("less");
    meta.run(truncate(40, 30_000), &never).expect("up to the limit");
    checked.check("as much as the group may");
}

/// A volume that does not keep usage grows no such records, and knows no such limits.
pub fn without_the_feature_nothing_is_kept(factory: &Factory<'_>) {
    let store = factory();
    let meta = store.format(1);
    let never = Interrupt::never();
    let ann = Caller { check: false, ..Caller::user(1000, 100) };
    meta.run(by(&ann, 1, "f", 20, FileType::File), &never).expect("create");
    meta.run(write(20, 0, 1, 5000), &never).expect("write");
    meta.run(chown(20, Some(1001), Some(101)), &never).expect("chown");
    meta.run(unlink(at(1, "f")), &never).expect("unlink");
    let state = State::of(store.open().as_ref());
    state.assert_owners("without the feature");
    assert!(!state.rows.values().any(|row| matches!(row, Row::Quota(..))));
}
