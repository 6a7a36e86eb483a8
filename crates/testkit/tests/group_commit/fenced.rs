//! What tells a client that others took for dead whether a commit happened.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use sluice_meta::{
    batch::Interrupt,
    engine::{Commit, Engine, EngineError, Write},
    schema::{Key, Row},
};
use sluice_testkit::wrap::Hooked;
use sluice_types::{Attr, FileType, Ino, Time};

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
