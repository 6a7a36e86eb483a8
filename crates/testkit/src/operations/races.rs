//! Two clients change names at the same time. What one of them removes, the other does not use.

use sluice_meta::{
    Interrupt, Meta,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        unlink::Unlink,
    },
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino};

use super::{Factory, at, create, play::duel, state::State};

const ROUNDS: u64 = 2000;

/// Makes `d0`, `d1` … (or `prefix` otherwise) in the root, numbered from `first`.
fn make(meta: &Meta, prefix: &str, first: u64, count: u64, kind: FileType) {
    let ops = (0..count).map(|n| create(1, &format!("{prefix}{n}"), first + n, kind)).collect();
    for made in meta.run_all(ops, &Interrupt::never()) {
        made.expect("create");
    }
}

fn unlink(meta: &Meta, name: &str) -> FsResult<()> {
    let op = Unlink { at: at(1, name), only: None, skip_trash: false, caller: Caller::client() };
    meta.run(op, &Interrupt::never()).map(drop)
}

/// Asserts that in each round exactly one of both succeeds and the other fails as it should. Each
/// side must succeed at least once.
fn assert_one_winner(rounds: Vec<(FsResult<()>, FsResult<()>)>, left: &FsError, right: &FsError) {
    let mut wins = (0, 0);
    for (round, answers) in rounds.into_iter().enumerate() {
        match answers {
            (Ok(()), Err(error)) if error == *right => wins.0 += 1,
            (Err(error), Ok(())) if error == *left => wins.1 += 1,
            other => panic!("round {round}: {other:?}"),
        }
    }
    eprintln!("the left side won {} times, the right side {} times", wins.0, wins.1);
    assert!(wins.0 > 0 && wins.1 > 0, "one side never won: {wins:?}");
}

/// A file appears in a directory that is removed: one of the two fails, and no unreachable file is
/// left.
pub fn create_against_rmdir_leaves_no_orphan(factory: &Factory<'_>) {
    let store = factory();
    let (creator, remover) = (store.format(0), store.client());
    make(&creator, "d", 10_000, ROUNDS, FileType::Dir);
    let rounds = duel(
        ROUNDS,
        |round| {
            let op = create(10_000 + round, "f", 20_000 + round, FileType::File);
            creator.run(op, &Interrupt::never()).map(drop)
        },
        |round| {
            let hint = (round % 2 == 0).then_some(Ino(10_000 + round));
            let op =
                Rmdir { at: at(1, &format!("d{round}")), hint, skip_trash: false, caller: Caller::client() };
            remover.run(op, &Interrupt::never()).map(drop)
        },
    );
    assert_one_winner(rounds, &FsError::NotFound, &FsError::NotEmpty);
    State::of(store.open().as_ref()).assert_tree("create against rmdir");
}

/// `/a -> /b/x` against `/b -> /a/y`: only one can succeed. In every other round the targets lie a
/// level deeper, where the records that one of them holds tell nothing of the other.
pub fn directories_that_cross_build_no_cycle(factory: &Factory<'_>) {
    const ROUNDS: u64 = 500;
    let store = factory();
    let (left, right) = (store.format(0), store.client());
    make(&left, "a", 10_000, ROUNDS, FileType::Dir);
    make(&left, "b", 20_000, ROUNDS, FileType::Dir);
    for (parents, first) in [(10_000, 30_000), (20_000, 40_000)] {
        let ops = (0..ROUNDS).map(|n| create(parents + n, "deep", first + n, FileType::Dir)).collect();
        for made in left.run_all(ops, &Interrupt::never()) {
            made.expect("create");
        }
    }
    let deeper = |round: u64| (round % 2) * 20_000 + round;
    let moved = |meta: &Meta, name: String, into: u64, called: &str| {
        let (from, to) = (at(1, &name), at(into, called));
        let op = Rename { from, to, mode: RenameMode::Replace, caller: Caller::client() };
        meta.run(op, &Interrupt::never()).map(drop)
    };
    let rounds = duel(
        ROUNDS,
        |round| moved(&left, format!("a{round}"), 20_000 + deeper(round), "x"),
        |round| moved(&right, format!("b{round}"), 10_000 + deeper(round), "y"),
    );
    assert_one_winner(rounds, &FsError::Invalid, &FsError::Invalid);
    State::of(store.open().as_ref()).assert_tree("crossing directories");
}

/// A file gets a second name while it loses its first: it stays under the second, or the second
/// name comes too late.
pub fn link_against_unlink_keeps_the_count(factory: &Factory<'_>) {
    let store = factory();
    let (linker, remover) = (store.format(0), store.client());
    make(&linker, "f", 10_000, ROUNDS, FileType::File);
    let rounds = duel(
        ROUNDS,
        |round| {
            let ino = Ino(10_000 + round);
            let op = Link { ino, at: at(1, &format!("l{round}")), caller: Caller::client() };
            linker.run(op, &Interrupt::never()).map(drop)
        },
        |round| unlink(&remover, &format!("f{round}")),
    );
    let state = State::of(store.open().as_ref());
    let mut linked = 0;
    for (round, answers) in rounds.into_iter().enumerate() {
        let lives = state.node(Ino(10_000 + round as u64)).map(|attr| attr.nlink);
        match answers {
            (Ok(()), Ok(())) => {
                linked += 1;
                assert_eq!(lives, Some(1), "round {round}");
            }
            (Err(FsError::NotFound), Ok(())) => assert_eq!(lives, None, "round {round}"),
            other => panic!("round {round}: {other:?}"),
        }
    }
    assert!(linked > 0 && linked < ROUNDS, "{linked} links came in time");
    state.assert_tree("link against unlink");
}

/// Both remove the same name.
pub fn one_of_two_unlinks_wins(factory: &Factory<'_>) {
    let store = factory();
    let (left, right) = (store.format(0), store.client());
    make(&left, "f", 10_000, ROUNDS, FileType::File);
    let rounds = duel(
        ROUNDS,
        |round| unlink(&left, &format!("f{round}")),
        |round| unlink(&right, &format!("f{round}")),
    );
    assert_one_winner(rounds, &FsError::NotFound, &FsError::NotFound);
    State::of(store.open().as_ref()).assert_tree("unlink against unlink");
}
