//! Two clients change the content of files: no slice is leaked, and none is lost.

use std::collections::BTreeSet;

use parking_lot::Mutex;
use sluice_meta::{
    BlockSink, Interrupt, Meta,
    ops::{
        chunks::ReadChunk,
        getattr::GetAttr,
        setattr::{Changes, SetAttr, SetTime},
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
    },
    schema::Row,
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Slice, Time};

use super::{
    clients::{Factory, NOW, at, create},
    play::duel,
    state::State,
};

/// Notes which slices are deleted.
#[derive(Default)]
struct Deleted(Mutex<Vec<u64>>);

impl BlockSink for Deleted {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        self.0.lock().extend(slices.iter().map(|(id, _)| id));
        slices.iter().map(|_| Ok(())).collect()
    }
}

fn write(meta: &Meta, ino: u64, pos: u32, id: u64) -> FsResult<()> {
    let slices = vec![Slice::whole(pos, id, 100)];
    let op = Write { ino: Ino(ino), index: 0, slices, mtime: Time { sec: 1_700_000_001, nsec: 0 } };
    meta.run(op, &Interrupt::never()).map(drop)
}

/// A slice is added to a file that goes. If the write comes first the slice goes with the file,
/// exactly once; if it comes too late it never was.
pub fn write_against_unlink_leaks_no_slice(factory: &Factory<'_>) {
    const ROUNDS: u64 = 1000;
    let never = Interrupt::never();
    let store = factory();
    let (writer, remover) = (store.format(0), store.client());
    let files =
        (0..ROUNDS).map(|n| create(1, &format!("f{n}"), 10_000 + n, FileType::File)).collect::<Vec<_>>();
    for made in writer.run_all(files, &never) {
        made.expect("create");
    }
    for round in 0..ROUNDS {
        write(&writer, 10_000 + round, 0, 1 + round).expect("the first slice");
    }
    let rounds = duel(
        ROUNDS,
        |round| write(&writer, 10_000 + round, 50, 100_000 + round),
        |round| {
            let op = Unlink {
                at: at(1, &format!("f{round}")),
                only: None,
                skip_trash: false,
                caller: Caller::client(),
            };
            remover.run(op, &Interrupt::never()).map(drop)
        },
    );
    let mut wanted: BTreeSet<u64> = (1..=ROUNDS).collect();
    for (round, answers) in rounds.into_iter().enumerate() {
        match answers {
            (Ok(()), Ok(())) => drop(wanted.insert(100_000 + round as u64)),
            (Err(FsError::NotFound), Ok(())) => {}
            other => panic!("round {round}: {other:?}"),
        }
    }
    let in_time = wanted.len() as u64 - ROUNDS;
    assert!(in_time > 0 && in_time < ROUNDS, "{in_time} writes came in time");
    let state = State::of(store.open().as_ref());
    state.assert_tree("write against unlink");
    state.assert_slices("write against unlink");

    let sink = Deleted::default();
    remover.clean_deleted_files(i64::MAX, &sink, &never).expect("clean");
    let deleted = sink.0.into_inner();
    assert_eq!(deleted.len(), wanted.len(), "each slice is deleted once");
    assert_eq!(deleted.into_iter().collect::<BTreeSet<_>>(), wanted);
    let left = State::of(store.open().as_ref());
    let content = |row: &&Row| matches!(row, Row::Chunk(..) | Row::SliceRef(..) | Row::DelFile(..));
    assert_eq!(left.rows.values().filter(content).collect::<Vec<_>>(), Vec::<&Row>::new());
}

/// The slices of chunks after the end of a truncated file are deleted like all others, once.
pub fn chunks_behind_the_end_are_deleted(factory: &Factory<'_>) {
    let never = Interrupt::never();
    let store = factory();
    let meta = store.format(0);
    let caller = Caller::client;
    meta.run(create(1, "f", 10_000, FileType::File), &never).expect("create");
    let indexes = [0, 3, 200, 400];
    for (id, index) in (1..).zip(indexes) {
        let (ino, slices) = (Ino(10_000), vec![Slice::whole(0, id, 100)]);
        meta.run(Write { ino, index, slices, mtime: NOW }, &never).expect("write");
    }
    let truncate =
        Truncate { ino: Ino(10_000), length: 10, opened: true, kill_suid: false, caller: caller() };
    meta.run(truncate, &never).expect("truncate");
    meta.run(Unlink { at: at(1, "f"), only: None, skip_trash: false, caller: caller() }, &never)
        .expect("unlink");
    let sink = Deleted::default();
    meta.clean_deleted_files(i64::MAX, &sink, &never).expect("clean");
    meta.clean(&sink, &never).expect("clean");
    let mut deleted = sink.0.into_inner();
    deleted.sort_unstable();
    assert_eq!(deleted, [1, 2, 3, 4]);
}

/// Slices that two clients add to one chunk all arrive, each client's in its order, and readers
/// notice every one.
pub fn writes_of_two_clients_all_show(factory: &Factory<'_>) {
    const ROUNDS: u64 = 300;
    let never = Interrupt::never();
    let store = factory();
    let (left, right) = (store.format(0), store.client());
    left.run(create(1, "f", 10_000, FileType::File), &never).expect("create");
    duel(
        ROUNDS,
        |round| write(&left, 10_000, round as u32 * 100, 1 + round).expect("write"),
        |round| write(&right, 10_000, round as u32 * 100, 100_000 + round).expect("write"),
    );
    let slices = left.read(&ReadChunk { ino: Ino(10_000), index: 0 }, &never).expect("read");
    let ids = |of: std::ops::Range<u64>| -> Vec<u64> {
        slices.iter().map(|slice| slice.id).filter(|id| of.contains(id)).collect()
    };
    assert_eq!(ids(0..100_000), (1..=ROUNDS).collect::<Vec<_>>());
    assert_eq!(ids(100_000..200_000), (100_000..100_000 + ROUNDS).collect::<Vec<_>>());
    let state = State::of(store.open().as_ref());
    state.assert_tree("writes of two clients");
    state.assert_slices("writes of two clients");
    let attr = state.node(Ino(10_000)).expect("the file");
    assert_eq!(attr.length, ROUNDS * 100);
    // Each write told the same time; each moved it on by a nanosecond, or a reader would have
    // missed it.
    assert!(attr.mtime > Time { sec: 1_700_000_001, nsec: 0 }, "{:?}", attr.mtime);
}

/// Any second can be a time of a node, and what happens to it later is later than that.
pub fn times_before_1970_are_kept(factory: &Factory<'_>) {
    let never = Interrupt::never();
    let store = factory();
    let meta = store.format(0);
    let old = Time { sec: -315_619_201, nsec: 999_999_999 };
    for (ino, name, kind) in [(10_000, "d", FileType::Dir), (10_001, "f", FileType::File)] {
        meta.run(create(1, name, ino, kind), &never).expect("create");
        let (ino, set) = (Ino(ino), Some(SetTime::At(old)));
        let changes = Changes { atime: set, mtime: set, ..Changes::default() };
        meta.run(SetAttr { ino, changes, caller: Caller::client() }, &never).expect("set");
        let attr = store.client().read(&GetAttr(ino), &never).expect("ask");
        assert_eq!((attr.atime, attr.mtime), (old, old), "{kind:?}");
    }
    meta.run(create(10_000, "child", 10_002, FileType::File), &never).expect("create");
    write(&meta, 10_001, 0, 1).expect("write");
    for ino in [10_000, 10_001] {
        let attr = store.client().read(&GetAttr(Ino(ino)), &never).expect("ask");
        assert_eq!((attr.atime, attr.mtime >= NOW), (old, true), "{attr:?}");
    }
}
