//! What tells a client that others took for dead whether a commit happened.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sluice_meta::{
    batch::Interrupt,
    engine::{Commit, Engine, EngineError, Write},
    mem::MemEngine,
    schema::{Key, Row},
};
use sluice_testkit::wrap::Hooked;
use sluice_types::{Attr, FileType, FsError, Ino, Name, Time};

use crate::fixture::{Create, WRITER, batcher, log, store};

#[test]
fn a_node_that_others_make_as_well_does_not_say_that_a_commit_happened() {
    let engine = store();
    let hour = Ino(Ino::TRASH.0 + 1);
    let (inner, commits) = (engine.clone(), AtomicUsize::new(0));
    let hook = move |_: &Commit| {
        if commits.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        let attr = Attr::new(FileType::Dir, 0o555, 0, 0, Ino::TRASH, Time::default());
        let made = Write::Insert(Row::Node(hour, attr));
        let writes = vec![made, Write::Discard(Key::Writer(WRITER, 0))];
        inner.commit(&Commit { writes, ..Commit::default() }).unwrap();
        Err(EngineError::Indeterminate { engine: "mem".into(), reason: "it did not happen".into() })
    };
    let hooked = Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook);
    let create = Create { dir: 1, name: "f".into(), ino: hour.0 };
    let answer = batcher(Arc::new(hooked)).submit(create, &Interrupt::never());
    assert!(answer.is_err(), "{answer:?}");
    assert!(log(&engine).is_empty(), "it did not happen");
}

/// An engine that does the first commit or not, and loses the answer. Before the client can ask,
/// another client removes the file, and this one is fenced.
fn losing_and_fencing(engine: &MemEngine, happens: bool) -> Hooked {
    let (inner, commits) = (engine.clone(), AtomicUsize::new(0));
    let hook = move |commit: &Commit| {
        if commits.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        if happens {
            inner.commit(commit).unwrap();
        }
        let entry = Key::Entry(Ino(1), Name::new(b"f").unwrap());
        let removed = [Key::Node(Ino(100)), entry, Key::Writer(WRITER, 0)];
        let writes = removed.map(Write::Discard).to_vec();
        inner.commit(&Commit { writes, ..Commit::default() }).unwrap();
        Err(EngineError::Indeterminate { engine: "mem".into(), reason: "nobody knows".into() })
    };
    Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)
}

#[test]
fn what_was_made_and_removed_since_is_not_made_again() {
    let create = || Create { dir: 1, name: "f".into(), ino: 100 };
    let engine = store();
    let answer = batcher(Arc::new(losing_and_fencing(&engine, true))).submit(create(), &Interrupt::never());
    assert!(matches!(answer, Err(FsError::Io(_))), "{answer:?}");
    assert_eq!(log(&engine), [100], "it happened once");

    // Nobody has changed anything in the directory: it did not happen.
    let engine = store();
    let answer = batcher(Arc::new(losing_and_fencing(&engine, false))).submit(create(), &Interrupt::never());
    assert_eq!(answer, Ok(100));
    assert_eq!(log(&engine), [100]);
}
