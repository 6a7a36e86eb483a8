//! The usage of a directory with a quota counts every name below it, after every change.
//!
//! What must stay true: after each step, the usage is compared with a walk of the tree. So a step
//! need not state its expected usage.

use std::sync::Arc;

use sluice_meta::{
    Interrupt, Meta,
    engine::{Commit, Write as Change},
    op::Op,
    ops::{
        create::Create,
        link::Link,
        quota::SetLimits,
        rename::{Rename, RenameMode},
        sustained::DropSustained,
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
    },
    quota::Counting,
    schema::{Quota, QuotaKey, Row},
    tree::CloneTree,
};
use sluice_types::{Caller, FileType, FsError, Ino, Slice};

use super::{
    clients::{Factory, NOW, SharedStore, at, create},
    state::State,
};

/// The directory with the quota.
const LIMITED: u64 = 10_010;
/// One beside it, without.
const FREE: u64 = 10_011;

struct Tree {
    store: SharedStore,
    meta: Arc<Meta>,
}

impl Tree {
    fn new(store: SharedStore, trash_days: i64, quota: Quota) -> Self {
        let meta = store.format(trash_days);
        for (name, ino) in [("limited", LIMITED), ("free", FREE)] {
            meta.run(create(1, name, ino, FileType::Dir), &Interrupt::never()).expect("mkdir");
        }
        let writes = vec![Change::Insert(Row::Quota(QuotaKey::Dir(Ino(LIMITED)), quota))];
        let commit = Commit { writes, ..Commit::default() };
        store.open().commit(&commit).expect("commit");
        meta.beat().expect("beat").expect("the volume is there");
        Self { store, meta }
    }

    fn does<O: Op>(&self, what: &str, op: O) {
        self.meta.run(op, &Interrupt::never()).map(drop).expect(what);
        self.check(what);
    }

    fn clone(&self, source: u64, dir: u64, name: &str) -> Result<(), FsError> {
        let (at, caller) = (at(dir, name), Caller::client());
        let clone = CloneTree { source: Ino(source), at, preserve: false, umask: 0, caller };
        self.meta.clone_tree(&clone, &Interrupt::never(), &|_| {}).map(drop)
    }

    fn remove(&self, dir: u64, name: &str, skip_trash: bool) {
        let (at, caller) = (at(dir, name), Caller::client());
        self.meta.remove_tree(&at, skip_trash, &caller, &Interrupt::never(), &|_| {}).expect("rmr");
        self.check("rmr");
    }

    fn check(&self, what: &str) -> (i64, i64) {
        let state = State::of(self.store.open().as_ref());
        let (mut space, mut inodes, mut dirs) = (0, 0, vec![Ino(LIMITED)]);
        while let Some(dir) = dirs.pop() {
            for row in state.rows.values() {
                if let Row::Entry(of, _, entry) = row
                    && *of == dir
                {
                    let attr = state.node(entry.ino).expect("a node");
                    space += attr.space();
                    inodes += 1;
                    dirs.extend(attr.is_dir().then_some(entry.ino));
                }
            }
        }
        let quota = state.quota(QuotaKey::Dir(Ino(LIMITED))).expect("a quota");
        assert_eq!((quota.used_space, quota.used_inodes), (space, inodes), "{what}");
        (space, inodes)
    }
}

/// With a trash and without.
pub fn usage_of_a_tree_follows_every_change(factory: &Factory<'_>) {
    for trash_days in [0, 1] {
        every_change(&Tree::new(factory(), trash_days, Quota::default()));
    }
}

fn every_change(tree: &Tree) {
    let write = |ino, pos, id| {
        let slices = vec![Slice::whole(pos, id, 10_000)];
        Write { ino: Ino(ino), index: 0, slices, mtime: NOW }
    };
    let link = |ino, dir, name| Link { ino: Ino(ino), at: at(dir, name), caller: Caller::client() };
    let unlink =
        |dir, name| Unlink { at: at(dir, name), only: None, skip_trash: false, caller: Caller::client() };
    let rename = |from, to| Rename { from, to, mode: RenameMode::Replace, caller: Caller::client() };
    tree.does("mkdir", create(LIMITED, "d", 10_020, FileType::Dir));
    tree.does("create", create(10_020, "f", 10_021, FileType::File));
    tree.does("symlink", create(10_020, "s", 10_022, FileType::Symlink));
    tree.does("write", write(10_021, 0, 1));
    tree.does("create beside it", create(FREE, "g", 10_023, FileType::File));
    tree.does("write beside it", write(10_023, 0, 2));
    tree.does("a link from outside", link(10_023, 10_020, "g"));
    tree.does("a second link", link(10_023, LIMITED, "g"));
    tree.does("growing what has two names inside", write(10_023, 50_000, 3));
    let truncate =
        Truncate { ino: Ino(10_023), length: 5000, opened: true, kill_suid: false, caller: Caller::client() };
    tree.does("cutting it", truncate);
    tree.does("unlink of the name outside", unlink(FREE, "g"));
    tree.does("unlink of a name inside", unlink(10_020, "g"));
    tree.does("a file moves out", rename(at(LIMITED, "g"), at(FREE, "g")));
    tree.does("and back over another", rename(at(FREE, "g"), at(10_020, "f")));
    tree.does("create", create(LIMITED, "open", 10_024, FileType::File));
    tree.does("write", write(10_024, 0, 4));
    tree.meta.register_open(Ino(10_024));
    tree.does("unlink of an open file", Unlink { skip_trash: true, ..unlink(LIMITED, "open") });
    tree.does("growing it without a name", write(10_024, 50_000, 5));
    let truncate =
        Truncate { ino: Ino(10_024), length: 0, opened: true, kill_suid: false, caller: Caller::client() };
    tree.does("cutting it", truncate);
    tree.meta.unregister_open(Ino(10_024));
    tree.does("its last close", DropSustained { sid: tree.meta.sid(), ino: Ino(10_024), dead_before: None });
    State::of(tree.store.open().as_ref()).assert_tree("a file without a name");
    for (dir, name) in [(LIMITED, "copy"), (FREE, "copy"), (LIMITED, "again")] {
        tree.clone(10_020, dir, name).expect("clone");
        tree.check("clone");
    }
    tree.remove(LIMITED, "copy", false);
    tree.remove(LIMITED, "again", true);
    tree.remove(LIMITED, "d", false);
    assert_eq!(tree.check("all is gone"), (0, 0));
}

/// A tree that does not fit is not cloned, and what was made of it by then is gone.
pub fn a_clone_over_the_limit_leaves_nothing(factory: &Factory<'_>) {
    let tree = Tree::new(factory(), 0, Quota { max_inodes: 5, ..Quota::default() });
    for n in 0..4 {
        tree.does("create", create(FREE, &format!("f{n}"), 10_030 + n, FileType::File));
    }
    tree.clone(FREE, LIMITED, "fits").expect("five inodes");
    tree.check("as many as it may hold");
    let before = State::of(tree.store.open().as_ref());
    assert_eq!(tree.clone(FREE, LIMITED, "not"), Err(FsError::Quota));
    tree.check("no more than that");
    let after = State::of(tree.store.open().as_ref());
    // What was made of it went by way of the trash.
    let inodes = |state: &State| {
        state.nodes().iter().map(|(ino, _)| *ino).filter(|ino| !ino.is_trash()).collect::<Vec<_>>()
    };
    assert_eq!(inodes(&after), inodes(&before));
    after.assert_tree("a clone over the limit");
    tree.remove(LIMITED, "fits", false);
    tree.clone(FREE, LIMITED, "now").expect("there is room again");
    tree.check("again");
}

/// A clone of which one user may not have his files takes away what it made of the others', and
/// all quotas say so.
pub fn a_clone_that_one_user_may_not_have_leaves_nothing(factory: &Factory<'_>) {
    let store = factory();
    let meta = store.format_with_owners(0);
    let never = Interrupt::never();
    meta.run(create(1, "dir", LIMITED, FileType::Dir), &never).expect("mkdir");
    for n in 0..6 {
        let caller = Caller { check: false, ..Caller::user(1 + n as u32 % 2, 0) };
        let create = Create { caller, ..create(LIMITED, &format!("f{n}"), 10_030 + n, FileType::File) };
        meta.run(create, &never).expect("create");
    }
    let counting = Counting { strict: false, interrupt: &never, progress: &|_| {} };
    for (key, max) in [(QuotaKey::Dir(Ino::ROOT), 100), (QuotaKey::User(1), 3)] {
        let limits = SetLimits { key, max_space: None, max_inodes: Some(max) };
        meta.set_quota(limits, &counting, &|_| {}).expect("a quota");
    }
    let (at, caller) = (at(1, "copy"), Caller::client());
    let clone = CloneTree { source: Ino(LIMITED), at, preserve: true, umask: 0, caller };
    assert_eq!(meta.clone_tree(&clone, &never, &|_| {}).map(drop), Err(FsError::Quota));
    let state = State::of(store.open().as_ref());
    let nodes = state.nodes();
    let outside = nodes.iter().filter(|(ino, _)| !ino.is_trash()).count();
    assert_eq!(outside, 8, "the root, a directory and six files");
    state.assert_tree("a clone that was refused");
    state.assert_quotas("a clone that was refused");
}

/// A limit holds for what comes by another way than being made there.
pub fn a_limit_holds_for_moves_and_links(factory: &Factory<'_>) {
    let tree = Tree::new(factory(), 0, Quota { max_inodes: 2, ..Quota::default() });
    for n in 0..3 {
        tree.does("create", create(FREE, &format!("f{n}"), 10_030 + n, FileType::File));
    }
    let caller = Caller::client;
    let link = |ino, name| Link { ino: Ino(ino), at: at(LIMITED, name), caller: caller() };
    let rename = |from, to| Rename { from, to, mode: RenameMode::Replace, caller: caller() };
    let never = Interrupt::never();
    tree.does("a file moves in", rename(at(FREE, "f0"), at(LIMITED, "f0")));
    tree.does("a link", link(10_031, "f1"));
    let move_in = |name| tree.meta.run(rename(at(FREE, "f2"), at(LIMITED, name)), &never).map(drop);
    assert_eq!(move_in("f2"), Err(FsError::Quota));
    assert_eq!(tree.meta.run(link(10_032, "f2"), &never).map(drop), Err(FsError::Quota));
    tree.check("no more than that");
    tree.does("a move inside", rename(at(LIMITED, "f1"), at(LIMITED, "g1")));
    assert_eq!(move_in("f0"), Ok(()), "in the place of another");
    tree.check("in its place");
    tree.does("mkdir", create(FREE, "d", 10_040, FileType::Dir));
    let exchange = Rename { mode: RenameMode::Exchange, ..rename(at(FREE, "d"), at(LIMITED, "f0")) };
    tree.does("an exchange of one for one", exchange);
}

/// What a file has for each of its names counts, whichever directory it was made in.
pub fn a_limit_holds_for_files_with_several_names(factory: &Factory<'_>) {
    let tree = Tree::new(factory(), 0, Quota { max_space: 100 << 10, ..Quota::default() });
    let link = |dir, name| Link { ino: Ino(10_031), at: at(dir, name), caller: Caller::client() };
    tree.does("create", create(FREE, "f", 10_031, FileType::File));
    tree.does("mkdir", create(LIMITED, "d", 10_032, FileType::Dir));
    tree.does("a link", link(LIMITED, "f"));
    let never = Interrupt::never();
    let grow = |length| {
        let caller = Caller::client();
        let truncate = Truncate { ino: Ino(10_031), length, opened: true, kill_suid: false, caller };
        tree.meta.run(truncate, &never).map(drop)
    };
    assert_eq!(grow(1 << 20), Err(FsError::Quota));
    assert_eq!(grow(40 << 10), Ok(()));
    tree.check("what fits");
    // Each name alone would fit.
    tree.does("a second link", link(10_032, "f"));
    assert_eq!(grow(52 << 10), Err(FsError::Quota));
    tree.check("no more than that");
    assert_eq!(grow(4 << 10), Ok(()));
    tree.check("cut");
}

/// Clients that do not know what the others used, nor that a limit is another by now, fill a tree
/// to the last inode and no further.
pub fn a_limit_holds_for_clients_that_know_nothing_of_each_other(factory: &Factory<'_>) {
    let tree = Tree::new(factory(), 0, Quota { max_inodes: 20, ..Quota::default() });
    let never = Interrupt::never();
    let other = tree.store.client();
    let create_all = |meta: &Meta, from: u64, count: u64| {
        let creates = (from..from + count).map(|n| create(LIMITED, &format!("f{n}"), n, FileType::File));
        let made = meta.run_all(creates.collect(), &never);
        assert!(made.iter().all(|made| !matches!(made, Err(error) if *error != FsError::Quota)), "{made:?}");
        made.iter().filter(|made| made.is_ok()).count()
    };
    let unlink = |meta: &Meta, n: u64| {
        let unlink = Unlink {
            at: at(LIMITED, &format!("f{n}")),
            only: None,
            skip_trash: true,
            caller: Caller::client(),
        };
        meta.run(unlink, &never).map(drop).expect("unlink");
    };
    assert_eq!(create_all(&tree.meta, 20_000, 12), 12);
    assert_eq!(create_all(&other, 30_000, 12), 8, "as many as there is room for");
    assert_eq!(create_all(&tree.meta, 21_000, 3), 0);
    assert_eq!(tree.check("full").1, 20);
    unlink(&tree.meta, 20_000);
    assert_eq!(create_all(&other, 31_000, 2), 1, "there is room again");
    // Another limit.
    let limits = |max| SetLimits { key: QuotaKey::Dir(Ino(LIMITED)), max_space: None, max_inodes: Some(max) };
    tree.meta.run(limits(25), &never).expect("a higher limit");
    assert_eq!(create_all(&other, 32_000, 2), 2);
    tree.meta.run(limits(22), &never).expect("a lower limit");
    assert_eq!(create_all(&other, 33_000, 1), 0);
    tree.meta.run(limits(10), &never).expect("a limit below what is used");
    unlink(&other, 30_000);
    assert_eq!(create_all(&other, 34_000, 1), 0);
    assert_eq!(tree.check("at the end").1, 21);
}
