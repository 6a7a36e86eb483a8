//! What the kernel has cached is invalidated when others change it, by name, however it came to
//! know of it.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

mod rig;

use std::sync::Arc;

use parking_lot::Mutex;
use rig::{TTL, Volume, eventually, lasting, name};
use sluice_meta::{
    engine::{Commit, Engine as _, Step, Write},
    schema::{Change, Row},
};
use sluice_types::{Ino, Name};
use sluice_vfs::{Certainty, Changes};

#[test]
fn every_name_of_a_changed_directory_is_invalidated() {
    let volume = Volume::new();
    let other = volume.mount();
    let [looked, listed] = ["looked", "listed"].map(|dir| other.mkdir(Ino::ROOT, dir).unwrap().ino);
    for (dir, file) in [looked, listed].into_iter().flat_map(|dir| (0..40).map(move |file| (dir, file))) {
        other.put(dir, &name(file), b"");
    }

    let one = volume.follow(lasting());
    let invalidated: Arc<Mutex<Vec<Change>>> = Arc::default();
    let notified = Arc::clone(&invalidated);
    one.vfs.on_invalidate(move |change, _| {
        notified.lock().push(change.clone());
        true
    });
    eventually("it follows", || invalidated.lock().contains(&Change::Any));

    // So many in a row that most are answered by a page.
    for file in 0..40 {
        assert!(one.lookup(looked, &name(file)).unwrap().entry_ttl > TTL / 2);
    }
    let given = one.list(listed, 100, true).into_iter().filter(|(.., entry)| entry.is_some());
    assert_eq!(given.count(), 40);

    invalidated.lock().clear();
    let step = Step { writer: 99, lane: 0, from: 0, to: 1 };
    let writes = [looked, listed].map(|dir| Write::Notify(Change::Names(dir))).to_vec();
    let begin = vec![Write::Put(Row::Writer(step.writer, step.lane, step.from))];
    for commit in [
        Commit { writes: begin, ..Commit::default() },
        Commit { step: Some(step), writes, ..Commit::default() },
    ] {
        volume.engine.commit(&commit).unwrap();
    }
    let all = |invalidated: &[Change]| {
        let wanted = |dir, file| Change::Entry(dir, Name::new(name(file).as_bytes()).unwrap());
        [looked, listed].into_iter().all(|dir| (0..40).all(|file| invalidated.contains(&wanted(dir, file))))
    };
    eventually("the names of both directories to be invalidated", || all(&invalidated.lock()));
}

#[test]
fn only_what_surely_changed_is_invalidated_as_changed() {
    let volume = Volume::new();
    let other = volume.mount();
    let dir = other.mkdir(Ino::ROOT, "d").unwrap().ino;
    other.put(dir, "f", b"");
    other.put(dir, "g", b"");
    let one = volume.follow(lasting());
    let invalidated: Arc<Mutex<Vec<(Change, Certainty)>>> = Arc::default();
    let notified = Arc::clone(&invalidated);
    one.vfs.on_invalidate(move |change, certainty| {
        notified.lock().push((change.clone(), certainty));
        true
    });
    eventually("it follows", || invalidated.lock().iter().any(|(change, _)| *change == Change::Any));
    one.lookup(dir, "f").unwrap();
    one.lookup(dir, "g").unwrap();
    let entry = |name: &str| Change::Entry(dir, Name::new(name.as_bytes()).unwrap());
    other.unlink(dir, "g").unwrap();
    eventually("the name that went", || invalidated.lock().contains(&(entry("g"), Certainty::Changed)));
    let step = Step { writer: 99, lane: 0, from: 0, to: 1 };
    let begin = vec![Write::Put(Row::Writer(step.writer, step.lane, step.from))];
    for commit in [
        Commit { writes: begin, ..Commit::default() },
        Commit { step: Some(step), writes: vec![Write::Notify(Change::Names(dir))], ..Commit::default() },
    ] {
        volume.engine.commit(&commit).unwrap();
    }
    eventually("the other name", || invalidated.lock().contains(&(entry("f"), Certainty::Suspected)));
    assert!(!invalidated.lock().contains(&(entry("f"), Certainty::Changed)));
}

#[test]
fn an_inode_that_the_kernel_is_about_to_know_is_invalidated_by_its_name() {
    let volume = Volume::new();
    let other = volume.mount();
    let ino = other.put(Ino::ROOT, "f", b"");
    let one = volume.follow(lasting());
    let invalidated: Arc<Mutex<Vec<Change>>> = Arc::default();
    let notified = Arc::clone(&invalidated);
    one.vfs.on_invalidate(move |change, _| {
        notified.lock().push(change.clone());
        !matches!(change, Change::Node(_))
    });
    eventually("it follows", || invalidated.lock().contains(&Change::Any));
    one.lookup(Ino::ROOT, "f").unwrap();
    let mode = Changes { mode: Some(0o600), ..Changes::default() };
    other.vfs.setattr(&other.caller, &other.never, ino, mode).unwrap();
    let name = Change::Entry(Ino::ROOT, Name::new(b"f").unwrap());
    eventually("the name", || invalidated.lock().contains(&name));
}
