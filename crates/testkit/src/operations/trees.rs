//! Operations on whole trees while other clients work, or with an interrupt.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use sluice_meta::{
    Interrupt, Meta,
    ops::{chunks::ReadChunks, getattr::GetAttr, lookup::Lookup, truncate::Truncate, write::Write},
    schema::Key,
    tree::CloneTree,
};
use sluice_types::{Caller, FileType, FsError, Ino, Slice};

use super::{
    clients::{Factory, NOW, at, create},
    state::State,
};

fn cloned(
    meta: &Meta,
    name: &str,
    interrupt: &Interrupt,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Ino, FsError> {
    let (at, caller) = (at(1, name), Caller::client());
    let clone = CloneTree { source: Ino(10_000), at, preserve: true, umask: 0, caller };
    meta.clone_tree(&clone, interrupt, progress).map(|(ino, _)| ino)
}

/// A file that is filled and emptied shows the same chunks again and again, with another length
/// between.
pub fn a_clone_is_what_its_source_once_was(factory: &Factory<'_>) {
    const SIZE: u32 = 4096;
    let store = factory();
    let (writer, cloner, never) = (store.format(0), store.client(), Interrupt::never());
    writer.run(create(1, "d", 10_000, FileType::Dir), &never).expect("mkdir");
    // The others keep its records apart in what is asked at once.
    for n in 0..40 {
        writer.run(create(10_000, &format!("f{n}"), 10_001 + n, FileType::File), &never).expect("create");
    }
    let (done, file) = (AtomicBool::new(false), Ino(10_020));
    let clones: Vec<Ino> = thread::scope(|scope| {
        scope.spawn(|| {
            for id in 1..100_000 {
                let slices = vec![Slice::whole(0, id, SIZE)];
                writer.run(Write { ino: file, index: 0, slices, mtime: NOW }, &never).expect("write");
                let (length, opened, kill_suid, caller) = (0, true, false, Caller::client());
                let cut = Truncate { ino: file, length, opened, kill_suid, caller };
                writer.run(cut, &never).expect("truncate");
                if done.load(Ordering::Acquire) {
                    break;
                }
            }
        });
        let made = (0..25).map(|n| cloned(&cloner, &format!("c{n}"), &never, &|_| {})).collect();
        done.store(true, Ordering::Release);
        let made: Result<_, _> = made;
        made.expect("clone")
    });
    for dir in clones {
        let (ino, attr) = cloner.read(&Lookup(at(dir.0, "f19")), &never).expect("lookup");
        let chunks = cloner.read(&ReadChunks { ino, from: 0, to: 1 }, &never).expect("chunks");
        let data = chunks.iter().any(|(_, slices)| slices.last().is_some_and(|slice| !slice.is_hole()));
        let known = (attr.length, data);
        assert!(known == (0, false) || known == (u64::from(SIZE), true), "length and data: {known:?}");
    }
}

/// Of a file of terabytes with two chunks only these are copied.
pub fn a_sparse_file_is_cloned(factory: &Factory<'_>) {
    const LAST: u32 = 150_000;
    let store = factory();
    let (meta, never) = (store.format(0), Interrupt::never());
    meta.run(create(1, "f", 10_000, FileType::File), &never).expect("create");
    for (index, id) in [(0, 1), (LAST, 2)] {
        let slices = vec![Slice::whole(0, id, 4096)];
        meta.run(Write { ino: Ino(10_000), index, slices, mtime: NOW }, &never).expect("write");
    }
    let copy = cloned(&meta, "copy", &never, &|_| {}).expect("clone");
    let length = |ino| meta.read(&GetAttr(ino), &never).expect("attributes").length;
    assert_eq!(length(copy), length(Ino(10_000)));
    let chunks = |ino, from, to| meta.read(&ReadChunks { ino, from, to }, &never).expect("chunks");
    assert_eq!(chunks(copy, 0, 2), [(0, vec![Slice::whole(0, 1, 4096)])]);
    assert_eq!(chunks(copy, LAST - 1, LAST + 1), [(LAST, vec![Slice::whole(0, 2, 4096)])]);
}

/// Neither goes on with the next directory, however small each is.
pub fn an_interrupt_ends_work_on_a_tree(factory: &Factory<'_>) {
    let store = factory();
    let (meta, never) = (store.format(0), Interrupt::never());
    meta.run(create(1, "d", 10_000, FileType::Dir), &never).expect("mkdir");
    for dir in 0..5 {
        let ino = 10_010 + dir * 10;
        meta.run(create(10_000, &format!("d{dir}"), ino, FileType::Dir), &never).expect("mkdir");
        for file in 1..=3 {
            meta.run(create(ino, &format!("f{file}"), ino + file, FileType::File), &never).expect("create");
        }
    }
    let nodes =
        || State::of(store.open().as_ref()).rows.keys().filter(|key| matches!(key, Key::Node(_))).count();
    let before = nodes();

    let interrupt = Interrupt::default();
    assert_eq!(cloned(&meta, "copy", &interrupt, &|_| interrupt.set()), Err(FsError::Interrupted));
    assert_eq!(meta.read(&Lookup(at(1, "copy")), &never), Err(FsError::NotFound));
    assert_eq!(nodes(), before, "what was made is gone");

    let interrupt = Interrupt::default();
    let removed = meta.remove_tree(&at(1, "d"), true, &Caller::client(), &interrupt, &|_| interrupt.set());
    assert_eq!(removed, Err(FsError::Interrupted));
    assert!(nodes() > before - 10, "most of it is there");
    meta.read(&GetAttr(Ino(10_000)), &never).expect("the top is there");
    meta.remove_tree(&at(1, "d"), true, &Caller::client(), &never, &|_| {}).expect("rmr");
}
