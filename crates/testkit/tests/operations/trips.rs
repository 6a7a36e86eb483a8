//! The budget of trips, operation by operation: reads and commits.

use std::sync::Arc;

use sluice_meta::{
    Interrupt, Meta,
    mem::MemEngine,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        unlink::Unlink,
    },
};
use sluice_testkit::wrap::Counting;
use sluice_types::{Caller, FileType, Ino};

use crate::{at, create, volume};

fn setup() -> (Counting, Arc<Meta>) {
    let counting = Counting::new(Arc::new(MemEngine::new()));
    let meta = volume(Arc::new(counting.clone()));
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
    let unlink = Unlink { at: at(10, "x"), skip_trash: false, caller: caller() };
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
        at: at(10 + n % 2, &format!("many{n}")),
        skip_trash: false,
        caller: Caller::client(),
    });
    let answers = counting.assert_trips("200 unlinks", 1, 1, || meta.run_all(unlinks.collect(), &never));
    assert!(answers.iter().all(Result::is_ok));
}
