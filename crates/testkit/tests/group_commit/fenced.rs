//! What tells a client that others took for dead whether a commit happened.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sluice_meta::{
    batch::Interrupt,
    engine::{Commit, Engine, EngineError, Write},
    mem::MemEngine,
    schema::Key,
};
use sluice_testkit::wrap::Hooked;
use sluice_types::{FsError, Ino, Name, Time};

use crate::fixture::{Create, batcher, fence, log, store};

/// An engine that does the first commit or not, and loses the answer. Before the client can ask,
/// others remove the file and change its directory, and this client is fenced.
fn losing_and_fencing(engine: &MemEngine, happens: bool, keep: bool) -> Hooked {
    let (inner, commits) = (engine.clone(), AtomicUsize::new(0));
    let hook = move |commit: &Commit| {
        if commits.fetch_add(1, Ordering::Relaxed) > 0 {
            return Ok(());
        }
        if happens {
            inner.commit(commit).unwrap();
        }
        let entry = Key::Entry(Ino(1), Name::new(b"f").unwrap());
        let mut writes = [Key::Node(Ino(100)), entry].map(Write::Discard).to_vec();
        let later = Some(Time { sec: 1_800_000_000, nsec: 0 });
        writes.push(Write::Bump { ino: Ino(1), nlink: 0, time: later });
        inner.commit(&Commit { writes, ..Commit::default() }).unwrap();
        fence(&inner, keep);
        Err(EngineError::Indeterminate { engine: "mem".into(), reason: "nobody knows".into() })
    };
    Hooked::new(Arc::new(engine.clone())).limited(1, 100).before_commit(hook)
}

/// What a client is told of a creation whose answer was lost, and how often the file was made.
fn create(happens: bool, keep: bool) -> (Result<u64, FsError>, usize) {
    let engine = store();
    let create = Create { dir: 1, name: "f".into(), ino: 100 };
    let answer =
        batcher(Arc::new(losing_and_fencing(&engine, happens, keep))).submit(create, &Interrupt::never());
    (answer, log(&engine).len())
}

#[test]
fn the_number_that_was_kept_says_whether_a_commit_happened() {
    assert_eq!(create(true, true), (Ok(100), 1), "it happened, and is not done again");
    assert_eq!(create(false, true), (Ok(100), 1), "it did not happen, and is done");
}

#[test]
fn without_that_number_nobody_is_told_that_a_commit_happened_or_did_not() {
    for happens in [true, false] {
        let (answer, made) = create(happens, false);
        assert!(matches!(answer, Err(FsError::Io(_))), "{answer:?}");
        assert_eq!(made, usize::from(happens), "it is not done again");
    }
}
