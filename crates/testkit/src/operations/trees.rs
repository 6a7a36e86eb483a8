//! Operations on whole trees while other clients work, or with an interrupt.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use sluice_meta::{
    Interrupt, Meta,
    ops::{
        chunks::ReadChunks,
        clone::{CloneNode, TrashDetached, Visibility},
        getattr::GetAttr,
        lookup::Lookup,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
    },
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
    // The trash stays, once it is made.
    let is_node = |key: &&Key| matches!(key, Key::Node(ino) if !ino.is_trash());
    let nodes = || State::of(store.open().as_ref()).rows.keys().filter(is_node).count();
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

/// Nobody sees it elsewhere, not even while it is removed.
pub fn a_tree_that_got_no_name_goes_to_the_trash(factory: &Factory<'_>) {
    let store = factory();
    let (meta, never) = (store.format(0), Interrupt::never());
    meta.run(create(1, "d", 10_000, FileType::Dir), &never).expect("mkdir");
    let before = meta.read(&GetAttr(Ino(1)), &never).expect("the root");
    let node = CloneNode {
        source: Ino(10_000),
        length: 0,
        ino: Ino(10_001),
        at: at(1, "copy"),
        visibility: Visibility::Later,
        preserve: true,
        umask: 0,
        caller: Caller::client(),
    };
    meta.run(node, &never).expect("clone");
    let place = meta.run(TrashDetached { ino: Ino(10_001) }, &never).expect("to the trash");
    assert!(place.dir.is_trash(), "{place:?}");
    assert_eq!(meta.read(&Lookup(place.clone()), &never).expect("there").0, Ino(10_001));
    assert_eq!(meta.read(&GetAttr(Ino(1)), &never).expect("the root"), before);
    assert_eq!(meta.run(TrashDetached { ino: Ino(10_001) }, &never), Err(FsError::NotFound));
    meta.remove_tree(&place, true, &Caller::client(), &never, &|_| {}).expect("rmr");
    assert_eq!(meta.read(&GetAttr(Ino(10_001)), &never), Err(FsError::NotFound));
}

/// A restore that only rebuilds trees in the trash does not keep them from expiring.
pub fn a_tree_rebuilt_in_the_trash_expires(factory: &Factory<'_>) {
    let store = factory();
    let (meta, never) = (store.format(1), Interrupt::never());
    let caller = Caller::client;
    meta.run(create(1, "d", 10_000, FileType::Dir), &never).expect("mkdir");
    meta.run(create(10_000, "f", 10_001, FileType::File), &never).expect("create");
    let unlink = Unlink { at: at(10_000, "f"), only: None, skip_trash: false, caller: caller() };
    meta.run(unlink, &never).expect("unlink");
    let rmdir = Rmdir { at: at(1, "d"), hint: None, skip_trash: false, caller: caller() };
    meta.run(rmdir, &never).expect("rmdir");
    let hour = meta.read(&GetAttr(Ino(10_000)), &never).expect("the directory").parent;
    let from = at(hour.0, "10000-10001-f");
    let rename = Rename { from, to: at(10_000, "f"), mode: RenameMode::Restore, caller: caller() };
    meta.run(rename, &never).expect("restore");
    meta.clean_trash(NOW.sec + 2 * 86_400, &never, &|_| {}).expect("the trash");
    for ino in [hour, Ino(10_000), Ino(10_001)] {
        assert_eq!(meta.read(&GetAttr(ino), &never), Err(FsError::NotFound), "{ino}");
    }
}
