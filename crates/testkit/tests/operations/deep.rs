//! Trees so deep that no path leads to their end.

use std::thread;

use sluice_meta::{
    Interrupt, Meta,
    engine::{Commit, Write},
    ops::{
        reach::Reach,
        rename::{Rename, RenameMode},
    },
    schema::{Quota, QuotaKey, Row},
    tree::CloneTree,
};
use sluice_testkit::operations::{at, create, state::State};
use sluice_types::{Caller, FileType, FsError, Ino};

const LEVELS: u64 = 2000;
const TOP: u64 = 10_000;

/// Directories in each other; answers the last.
fn dig(meta: &Meta, levels: u64) -> u64 {
    for level in 0..levels {
        let above = if level == 0 { 1 } else { TOP + level - 1 };
        meta.run(create(above, "d", TOP + level, FileType::Dir), &Interrupt::never()).unwrap();
    }
    TOP + levels - 1
}

#[test]
fn each_quota_above_is_asked() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(0);
    let bottom = dig(&meta, 200);
    let quota = Quota { max_inodes: 1, ..Quota::default() };
    let writes = vec![Write::Insert(Row::Quota(QuotaKey::Dir(Ino(TOP)), quota))];
    store.open().commit(&Commit { writes, ..Commit::default() }).unwrap();
    meta.beat().unwrap().unwrap();
    meta.run(create(bottom, "f", 20_000, FileType::File), &never).unwrap();
    assert_eq!(meta.run(create(bottom, "g", 20_001, FileType::File), &never).map(drop), Err(FsError::Quota));
}

fn walk_a_deep_tree() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let meta = store.format(0);
    let bottom = dig(&meta, LEVELS);
    meta.run(create(bottom, "f", 20_000, FileType::File), &never).unwrap();
    meta.run(create(1, "other", 20_001, FileType::Dir), &never).unwrap();
    let (from, to) = (at(1, "other"), at(bottom, "moved"));
    let below = Rename { from, to, mode: RenameMode::Replace, caller: Caller::client() };
    meta.run(below, &never).expect("no directory above is the one that moves");
    let reach = |root| Reach { ino: Ino(20_000), root, caller: Caller::user(1000, 1000) };
    assert_eq!(meta.read(&reach(Ino::ROOT), &never), Ok(()));
    assert_eq!(meta.read(&reach(Ino(20_001)), &never), Err(FsError::Access));

    let client = Caller::client();
    let counted = |ino| meta.summarize(Ino(ino), (255, 10), &client, &never, &|_| {}).unwrap().0.total;
    assert_eq!((counted(TOP).dirs, counted(TOP).files), (LEVELS + 1, 1));
    let clone =
        CloneTree { source: Ino(TOP), at: at(1, "copy"), preserve: true, umask: 0, caller: Caller::client() };
    let (copy, _) = meta.clone_tree(&clone, &never, &|_| {}).unwrap();
    assert_eq!(counted(copy.0), counted(TOP));
    for name in ["d", "copy"] {
        meta.remove_tree(&at(1, name), true, &Caller::client(), &never, &|_| {}).unwrap();
    }
    State::of(store.open().as_ref()).assert_tree("the trees are gone");
    assert_eq!(counted(1).dirs, 1);
}

#[test]
fn a_deep_tree_needs_no_deep_stack() {
    let walker = thread::Builder::new().stack_size(512 << 10);
    walker.spawn(walk_a_deep_tree).unwrap().join().unwrap();
}
