//! Files of several names, whose names move while another client changes the file.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sluice_meta::{
    Interrupt, Meta, Options,
    check::{Counted, Finding, Repair},
    engine::{Commit, Engine, Write as Change},
    op::At,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        unlink::Unlink,
        write::Write,
    },
};
use sluice_testkit::{
    operations::{at, create, state::State},
    wrap::Hooked,
};
use sluice_types::{Caller, Clock, FileType, Ino, Slice, Time};

/// A clock that always shows the same time, as the clocks of two clients may do for a moment.
struct Standing;

impl Clock for Standing {
    fn now(&self) -> Time {
        Time { sec: 1_700_000_000, nsec: 0 }
    }
}

fn client(engine: Arc<dyn Engine>) -> Arc<Meta> {
    Meta::open(engine, Options { clock: Arc::new(Standing), ..Options::default() }).unwrap()
}

/// A file grows that has the names `1/a` and `10/b`. Between the last read of this write and its
/// commit, another client makes `change`.
fn grow_while(trash_days: i64, change: impl Fn(&Meta) + Send + Sync + 'static) {
    grow_damaged_while(trash_days, Vec::new(), change);
}

/// As [`grow_while`], with records of the file that are damaged before.
fn grow_damaged_while(trash_days: i64, damage: Vec<Change>, change: impl Fn(&Meta) + Send + Sync + 'static) {
    let (store, never) = (crate::fresh(), Interrupt::never());
    store.format(trash_days);
    let other = client(store.open());
    for (name, ino) in [("d", 10), ("e", 11)] {
        other.run(create(1, name, ino, FileType::Dir), &never).unwrap();
    }
    other.run(create(1, "a", 20, FileType::File), &never).unwrap();
    let link = Link { ino: Ino(20), at: at(10, "b"), caller: Caller::client() };
    other.run(link, &never).unwrap();
    store.open().commit(&Commit { writes: damage, ..Commit::default() }).unwrap();
    let armed = Arc::new(AtomicBool::new(false));
    let once = Arc::clone(&armed);
    let engine = Hooked::new(store.open()).before_commit(move |_| {
        if once.swap(false, Ordering::SeqCst) {
            change(&other);
        }
        Ok(())
    });
    let meta = client(Arc::new(engine));
    armed.store(true, Ordering::SeqCst);
    let slices = vec![Slice::whole(0, 1, 5000)];
    meta.run(Write { ino: Ino(20), index: 0, slices, mtime: Time { sec: 1, nsec: 0 } }, &never).unwrap();
    assert!(!armed.load(Ordering::SeqCst));
    State::of(store.open().as_ref()).assert_tree("after the write");
}

fn rename(meta: &Meta, from: At, to: At, mode: RenameMode) {
    meta.run(Rename { from, to, mode, caller: Caller::client() }, &Interrupt::never()).unwrap();
}

fn unlink(meta: &Meta, at: At) {
    let unlink = Unlink { at, only: None, skip_trash: false, caller: Caller::client() };
    meta.run(unlink, &Interrupt::never()).unwrap();
}

#[test]
fn a_write_counts_in_the_directory_to_which_a_name_moved() {
    grow_while(0, |other| rename(other, at(10, "b"), at(11, "b"), RenameMode::Replace));
}

#[test]
fn a_write_counts_in_the_directories_of_exchanged_names() {
    grow_while(0, |other| {
        other.run(create(11, "c", 21, FileType::File), &Interrupt::never()).unwrap();
        rename(other, at(10, "b"), at(11, "c"), RenameMode::Exchange);
    });
}

#[test]
fn a_write_counts_in_the_trash_to_which_a_name_moved() {
    grow_while(1, |other| unlink(other, at(10, "b")));
}

#[test]
fn a_write_counts_in_the_directory_of_a_name_made_for_another() {
    grow_while(0, |other| {
        unlink(other, at(10, "b"));
        let link = Link { ino: Ino(20), at: at(11, "b"), caller: Caller::client() };
        other.run(link, &Interrupt::never()).unwrap();
    });
}

#[test]
fn a_write_counts_in_the_directory_that_a_repair_found() {
    let damage = vec![Change::Link(Ino(20), Ino(10), -1), Change::Link(Ino(20), Ino(11), 1)];
    grow_damaged_while(0, damage, |other| {
        for (dir, stored, counted) in [(10, 0, 1), (11, 1, 0)] {
            let names = Counted { stored, counted };
            let finding = Finding::Parents { ino: Ino(20), dir: Ino(dir), names };
            let repair = Repair { finding, dir_mode: 0o755, busy_since: None };
            assert_eq!(other.run(repair, &Interrupt::never()), Ok(true));
        }
    });
}
