//! Directories that move while others look at what is above them, and at what is below.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, Ordering},
};

use sluice_meta::{
    Interrupt, Meta,
    engine::{Engine, Read, Scan, Write},
    op::At,
    ops::{
        lookup::Lookup,
        quota::SetLimits,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        unlink::Unlink,
    },
    quota::Counting,
    schema::{Counter, Key, QuotaKey},
};
use sluice_testkit::{
    operations::{at, create, options, state::State},
    wrap::Hooked,
};
use sluice_types::{Caller, FileType, FsError, Ino};

fn rename(from: At, to: At, mode: RenameMode) -> Rename {
    Rename { from, to, mode, caller: Caller::client() }
}

fn limit(dir: u64, max_inodes: i64) -> SetLimits {
    SetLimits { key: QuotaKey::Dir(Ino(dir)), max_space: None, max_inodes: Some(max_inodes) }
}

fn counting(never: &Interrupt) -> Counting<'_> {
    Counting { strict: false, interrupt: never, progress: &|_| {} }
}

/// An engine that calls `change` before the next read of a batch that asks how often directories
/// moved, once it is armed.
fn once_armed(
    engine: Arc<dyn Engine>,
    armed: &Arc<AtomicBool>,
    change: impl Fn() + Send + Sync + 'static,
) -> Hooked {
    let armed = Arc::clone(armed);
    Hooked::new(engine).before_read(move |reads| {
        let moves = |read: &Read| matches!(read, Read::Get(Key::Counter(Counter::DirMoves)));
        if reads.iter().any(moves) && armed.swap(false, Ordering::SeqCst) {
            change();
        }
    })
}

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
    // Not before the batch is on its way: opening a volume reads all counters, too.
    let armed = Arc::new(AtomicBool::new(false));
    let engine = once_armed(store.open(), &armed, move || {
        let away = rename(at(1, "P"), at(12, "P"), RenameMode::Replace);
        other.run(away, &Interrupt::never()).unwrap();
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

/// `mv /P /A/P` comes between the trips of a batch of two: one finds that there is no room in P,
/// which it saw where it was before, and the other does not look at P. What is then taken out of P
/// is taken off A.
#[test]
fn what_a_failed_operation_read_is_not_remembered() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let other = store.format(0);
    for (dir, name, ino) in [(1, "P", 10), (10, "q", 11), (1, "A", 12), (1, "free", 13)] {
        other.run(create(dir, name, ino, FileType::Dir), &never).unwrap();
    }
    other.run(create(11, "f", 20, FileType::File), &never).unwrap();
    for (dir, inodes) in [(10, 2), (12, 100), (13, 100)] {
        other.set_quota(limit(dir, inodes), &counting(&never), &|_| {}).unwrap();
    }
    let armed = Arc::new(AtomicBool::new(false));
    let engine = once_armed(store.open(), &armed, move || {
        let away = rename(at(1, "P"), at(12, "P"), RenameMode::Replace);
        other.rename(&away, &Interrupt::never()).unwrap();
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    armed.store(true, Ordering::SeqCst);
    let creates = vec![create(10, "more", 21, FileType::File), create(13, "g", 22, FileType::File)];
    let errors: Vec<_> = meta.run_all(creates, &never).into_iter().map(Result::err).collect();
    assert_eq!(errors, [Some(FsError::Quota), None]);
    assert!(!armed.load(Ordering::SeqCst), "the move did not come between");
    let unlink = Unlink { at: at(11, "f"), only: None, skip_trash: true, caller: Caller::client() };
    let of_another = Unlink { only: Some(Ino(22)), ..unlink.clone() };
    assert_eq!(meta.run(of_another, &never).err(), Some(FsError::NotFound));
    meta.run(unlink, &never).unwrap();
    State::of(store.open().as_ref()).assert_quotas("a file of a directory that moved");
}

/// `rmdir /from/tree/goes` comes between the reads of the two records of that directory, and a file
/// is made below `/from/tree` before that moves.
#[test]
fn a_tree_that_loses_a_directory_moves_with_all_it_holds() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let other = store.format(0);
    for (dir, name, ino) in
        [(1, "from", 10), (1, "to", 11), (10, "tree", 12), (12, "stays", 13), (12, "goes", 14)]
    {
        other.run(create(dir, name, ino, FileType::Dir), &never).unwrap();
    }
    for dir in [10, 11] {
        other.set_quota(limit(dir, 100), &counting(&never), &|_| {}).unwrap();
    }
    let (goes, comes) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let engine = Hooked::new(store.open()).asked_apart().before_ask({
        let (goes, other) = (Arc::clone(&goes), Arc::clone(&other));
        move |reads| {
            if reads == [Read::Get(Key::DirStat(Ino(14)))] && goes.swap(false, Ordering::SeqCst) {
                remove_dir(&other, at(12, "goes"));
            }
            Ok(())
        }
    });
    let engine = engine.before_commit({
        let comes = Arc::clone(&comes);
        move |commit| {
            let At { dir, name } = at(10, "tree");
            let leaves = Write::Delete(Key::Entry(dir, name));
            if commit.writes.contains(&leaves) && comes.swap(false, Ordering::SeqCst) {
                other.run(create(13, "late", 20, FileType::File), &Interrupt::never()).unwrap();
            }
            Ok(())
        }
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    for trap in [&goes, &comes] {
        trap.store(true, Ordering::SeqCst);
    }
    meta.rename(&rename(at(10, "tree"), at(11, "tree"), RenameMode::Replace), &never).unwrap();
    for trap in [goes, comes] {
        assert!(!trap.load(Ordering::SeqCst), "a change did not come between");
    }
    let state = State::of(store.open().as_ref());
    state.assert_tree("a tree that moved");
    state.assert_quotas("a tree that moved");
}

/// `rmdir /tree/goes` comes between the reads of the two records of that directory while a quota is
/// counted, and later a file moves from a directory that is not counted yet to one that is.
#[test]
fn a_tree_that_loses_a_directory_is_counted_at_one_moment() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let other = store.format(0);
    for (dir, name, ino) in [(1, "tree", 10), (10, "goes", 11), (10, "new", 12), (10, "old", 13)] {
        other.run(create(dir, name, ino, FileType::Dir), &never).unwrap();
    }
    other.run(create(13, "f", 20, FileType::File), &never).unwrap();
    other.run(limit(10, 100), &never).unwrap();
    other.beat().unwrap().unwrap();
    // Reads the directory that goes, and then at the quota.
    let (looks, quotas) = (AtomicU32::new(0), AtomicU32::new(0));
    let moved = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&moved);
    let engine = Hooked::new(store.open()).asked_apart().before_ask(move |reads| {
        match reads {
            // The first look finds out which directories there are.
            [Read::Get(Key::DirStat(Ino(11)))] if looks.fetch_add(1, Ordering::SeqCst) == 1 => {
                remove_dir(&other, at(10, "goes"));
            }
            // One belongs to the look that found no statistics.
            [Read::Get(Key::Quota(QuotaKey::Dir(Ino(10))))] if looks.load(Ordering::SeqCst) > 1 => {
                quotas.fetch_add(1, Ordering::SeqCst);
            }
            [Read::Get(Key::DirStat(Ino(13)))]
                if quotas.load(Ordering::SeqCst) > 1 && !seen.swap(true, Ordering::SeqCst) =>
            {
                let moves = rename(at(13, "f"), at(12, "f"), RenameMode::Replace);
                other.rename(&moves, &Interrupt::never()).unwrap();
            }
            _ => {}
        }
        Ok(())
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    assert_eq!(meta.settle_tree(Ino(10), &counting(&never)), Ok(true));
    assert!(moved.load(Ordering::SeqCst), "the move did not come between");
    State::of(store.open().as_ref()).assert_quotas("a quota that was counted");
}

fn remove_dir(meta: &Meta, at: At) {
    let rmdir = Rmdir { at, hint: None, skip_trash: true, caller: Caller::client() };
    meta.run(rmdir, &Interrupt::never()).unwrap();
}

/// `mv d away; mv full d` comes while the content of `d` is looked at, which is to be removed.
#[test]
fn a_directory_that_takes_the_place_of_a_removed_one_goes_too() {
    let (store, never) = (crate::fresh(), Interrupt::never());
    let other = store.format(0);
    for (dir, name, ino, kind) in
        [(1, "d", 10, FileType::Dir), (1, "full", 11, FileType::Dir), (11, "f", 20, FileType::File)]
    {
        other.run(create(dir, name, ino, kind), &never).unwrap();
    }
    let (looks, tired) = (AtomicU32::new(0), Interrupt::default());
    let until = tired.clone();
    let engine = Hooked::new(store.open()).before_scan(move |scan, _| {
        if matches!(scan, Scan::Entries { .. }) {
            match looks.fetch_add(1, Ordering::SeqCst) {
                0 => {
                    for (from, to) in [("d", "away"), ("full", "d")] {
                        let moved = rename(at(1, from), at(1, to), RenameMode::Replace);
                        other.run(moved, &Interrupt::never()).unwrap();
                    }
                }
                // Something is looked at for ever.
                100 => until.set(),
                _ => {}
            }
        }
        None
    });
    let meta = Meta::open(Arc::new(engine), options()).unwrap();
    meta.remove_tree(&at(1, "d"), true, &Caller::client(), &tired, &|_| {}).unwrap();
    let inodes = ["d", "away"].map(|name| meta.read(&Lookup(at(1, name)), &never).map(|(ino, _)| ino));
    assert_eq!(inodes, [Err(FsError::NotFound), Ok(Ino(10))]);
}
