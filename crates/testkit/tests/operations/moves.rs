//! Directories that move while a batch looks at what is above them.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use sluice_meta::{
    Interrupt, Meta,
    engine::Read,
    ops::rename::{Rename, RenameMode},
    schema::{Counter, Key},
};
use sluice_testkit::{
    operations::{at, create, options, state::State},
    wrap::Hooked,
};
use sluice_types::{Caller, FileType, FsError};

/// `mv /P /s/t/P` comes between the trips of a batch of `mv /s /P/q/s` and of an operation that
/// fails, for which P was read.
#[test]
fn what_a_failed_operation_read_builds_no_cycle() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let other = store.format(0);
    for (dir, name, ino) in [(1, "P", 10), (1, "s", 11), (11, "t", 12), (10, "q", 13)] {
        other.run(create(dir, name, ino, FileType::Dir), &never).unwrap();
    }
    for (name, ino) in [("a", 20), ("b", 21)] {
        other.run(create(10, name, ino, FileType::File), &never).unwrap();
    }
    let rename = |from, to, mode| Rename { from, to, mode, caller: Caller::client() };
    // Not before the batch is on its way: opening a volume reads all counters, too.
    let armed = Arc::new(AtomicBool::new(false));
    let trap = Arc::clone(&armed);
    let engine = Hooked::new(store.open()).before_read(move |reads| {
        let moves = |read: &Read| matches!(read, Read::Get(Key::Counter(Counter::DirMoves)));
        if reads.iter().any(moves) && trap.swap(false, Ordering::SeqCst) {
            let away = rename(at(1, "P"), at(12, "P"), RenameMode::Replace);
            other.run(away, &Interrupt::never()).unwrap();
        }
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    armed.store(true, Ordering::SeqCst);
    let answers = meta.run_all(
        vec![
            rename(at(10, "a"), at(10, "b"), RenameMode::NoReplace),
            rename(at(1, "s"), at(13, "s"), RenameMode::Replace),
        ],
        &never,
    );
    let errors: Vec<_> = answers.into_iter().map(Result::err).collect();
    assert_eq!(errors, [Some(FsError::Exists), Some(FsError::Invalid)]);
    assert!(!armed.load(Ordering::SeqCst), "the other move did not come between");
    State::of(store.open().as_ref()).assert_tree("two directories that cross");
}
