//! A commit is all or nothing, and says whose fault it was.

mod support;

use std::sync::Arc;

use sluice_meta::{
    Interrupt, Meta, Options,
    engine::{Commit, Engine, EngineError, Expect, Found, Hold, List, Moment, Read, Step, Write},
    ops::allocate::Allocate,
    schema::{Change, Counter, Entry, FlockKind, Key, LockOwner, RING, Row, VolumeFormat},
};
use sluice_types::{Attr, FileType, Ino, Name, Slice, Time};
use support::{commit, conflict, fresh, get};

fn attr() -> Attr {
    Attr::new(FileType::Dir, 0o755, 1, 2, Ino(1), Time { sec: 1_700_000_000, nsec: 5 })
}

fn node(ino: u64) -> Row {
    Row::Node(Ino(ino), attr())
}

fn entry(name: &str) -> Row {
    Row::Entry(Ino(1), Name::stored(name.as_bytes()), Entry { kind: FileType::Dir, ino: Ino(5) })
}

/// A write whose trace shows whether the commit happened.
fn trace() -> Write {
    Write::Count(Counter::NextTrash, 1)
}

const TRACE: Key = Key::Counter(Counter::NextTrash);

#[test]
fn a_failed_precondition_is_a_conflict_that_leaves_no_trace() {
    let (_dir, engine) = fresh();
    let old = [
        node(5),
        entry("old"),
        Row::SliceRef(3, 10, 1),
        Row::Chunk(Ino(5), 0, vec![]),
        Row::Sustained(1, Ino(5)),
    ];
    commit(&engine, old.iter().cloned().map(Write::Insert).collect()).expect("insert");
    for row in old {
        let key = row.key();
        assert_eq!(conflict(commit(&engine, vec![trace(), Write::Insert(row)])), [key]);
    }
    // Among many, one at a time and in bulk, the culprit is named.
    for at in [0, 15, 17] {
        let mut many: Vec<Write> = (100..118).map(|ino| Write::Insert(node(ino))).collect();
        many[at] = Write::Insert(node(5));
        many.push(trace());
        assert_eq!(conflict(commit(&engine, many)), [Key::Node(Ino(5))]);
    }
    // The table knows a slice only by its id.
    assert_eq!(
        conflict(commit(&engine, vec![Write::Insert(Row::SliceRef(3, 11, 1)), trace()])),
        [Key::SliceRef(3, 11)]
    );
    let gone = [node(6).key(), entry("new").key(), Key::SliceRef(3, 11), Key::Session(1), Key::Writer(1, 0)];
    for key in gone {
        assert_eq!(conflict(commit(&engine, vec![trace(), Write::Delete(key.clone())])), [key]);
    }
    for time in [None, Some(Time { sec: 1, nsec: 0 })] {
        let bump = Write::Bump { ino: Ino(6), nlink: 1, time };
        assert_eq!(conflict(commit(&engine, vec![trace(), bump])), [Key::Node(Ino(6))]);
    }
    assert_eq!(get(&engine, TRACE), None);
    commit(&engine, vec![trace()]).expect("the engine goes on");
    assert_eq!(get(&engine, TRACE), Some(Row::Counter(Counter::NextTrash, 1)));
}

#[test]
fn a_step_is_taken_once() {
    let (_dir, engine) = fresh();
    let step = |from, to| Step { writer: 7, lane: 0, from, to };
    let take = |step| engine.commit(&Commit { step: Some(step), writes: vec![trace()], ..Commit::default() });
    assert_eq!(conflict(take(step(0, 1))), [Key::Writer(7, 0)], "not registered");
    commit(&engine, vec![Write::Insert(Row::Writer(7, 0, 0))]).expect("register");
    take(step(0, 1)).expect("the first");
    assert_eq!(conflict(take(step(0, 1))), [Key::Writer(7, 0)], "a late twin");
    take(step(1, 5)).expect("a leap");
    assert_eq!(get(&engine, Key::Writer(7, 0)), Some(Row::Writer(7, 0, 5)));
    assert_eq!(get(&engine, TRACE), Some(Row::Counter(Counter::NextTrash, 2)));
}

#[test]
fn expectations_that_were_not_read_are_looked_up() {
    let (_dir, engine) = fresh();
    let lock = Row::Flock(Ino(5), LockOwner { sid: 1, owner: 2 }, FlockKind::Read);
    let old = [node(1), node(5), entry("a"), entry("b"), lock.clone()];
    commit(&engine, old.map(Write::Insert).to_vec()).expect("insert");
    let later = |attr: Attr| Attr { mtime: attr.mtime.next(), nlink: 9, ..attr };
    let stale = Row::Node(Ino(5), later(attr()));
    let other = Row::Node(Ino(5), Attr { mode: 0o700, ..attr() });
    let flocks = List::Flocks(Ino(5));
    let holding = [
        Expect::Row(node(5), Hold::Lock),
        Expect::Row(stale.clone(), Hold::Guard),
        Expect::Row(other.clone(), Hold::None),
        Expect::Absent(entry("c").key()),
        Expect::Empty(Ino(5)),
        Expect::Same(flocks, vec![lock]),
    ];
    for expect in holding {
        let done = engine.commit(&Commit { expects: vec![expect.clone()], ..Commit::default() });
        assert!(done.is_ok(), "{expect:?}: {done:?}");
    }
    let broken = [
        Expect::Row(stale, Hold::Lock),
        Expect::Row(other, Hold::Guard),
        Expect::Row(node(6), Hold::Guard),
        Expect::Absent(entry("a").key()),
        Expect::Empty(Ino(1)),
        Expect::Same(flocks, vec![]),
    ];
    for expect in broken {
        let wish = Commit { expects: vec![expect.clone()], writes: vec![trace()], step: None };
        assert_eq!(conflict(engine.commit(&wish)), [expect.key()]);
    }
    assert_eq!(get(&engine, TRACE), None);
    // A directory is empty if the commit itself removes what is in it.
    let leave = |name: &str| Write::Delete(entry(name).key());
    let empty_dirs = |writes| Commit { expects: vec![Expect::Empty(Ino(1))], writes, step: None };
    assert_eq!(conflict(engine.commit(&empty_dirs(vec![leave("a")]))), [Key::Node(Ino(1))]);
    engine.commit(&empty_dirs(vec![leave("a"), leave("b")])).expect("empty");
}

#[test]
fn a_damaged_row_is_named() {
    let (dir, engine) = fresh();
    let rows = [node(5), entry("a"), Row::Chunk(Ino(5), 3, vec![Slice::whole(0, 1, 1)])];
    commit(&engine, rows.clone().map(Write::Insert).to_vec()).expect("insert");
    let hand = rusqlite::Connection::open(dir.path().join("volume.db")).expect("open");
    hand.execute_batch(
        "UPDATE jfs_node SET type=9; UPDATE jfs_edge SET type=0; UPDATE jfs_chunk SET slices=x'00112233'",
    )
    .expect("damage");
    let names = ["jfs_node 5", "jfs_edge 1 a", "jfs_chunk 5 3"];
    for (row, name) in rows.iter().zip(names) {
        match engine.read(&[Read::Get(row.key())]) {
            Err(EngineError::Corrupt { record, .. }) => assert_eq!(record, name),
            other => panic!("{name}: {other:?}"),
        }
    }
    assert!(engine.read(&[Read::Get(Key::Session(1))]).is_ok(), "the rest stays readable");
    // What would be appended could never be read.
    let append = |index| vec![trace(), Write::Append(Ino(5), index, vec![Slice::whole(0, 2, 1)])];
    match commit(&engine, append(3)) {
        Err(EngineError::Corrupt { record, .. }) => assert_eq!(record, "jfs_chunk 5 3"),
        other => panic!("{other:?}"),
    }
    assert_eq!(get(&engine, TRACE), None, "all or nothing");
    commit(&engine, append(4)).expect("its other chunks are sound");
}

/// As after a failover to a replica that lagged behind: who follows by numbers would take new ones
/// for known.
#[test]
fn numbers_that_the_engine_lost_are_not_given_out_again() {
    let (_dir, engine) = fresh();
    let engine = Arc::new(engine);
    let settings = VolumeFormat { name: "lost".into(), ..VolumeFormat::default() };
    Meta::format(engine.as_ref(), &settings, Time { sec: 1, nsec: 0 }).expect("format");
    let meta = Meta::open(engine.clone(), Options::default()).expect("open");
    let sid = meta.sid();
    let take = || {
        let op = Allocate { counter: Counter::NextTrash, count: 1 };
        meta.run(op, &Interrupt::never()).expect("a number");
    };
    let number = || match get(&engine, Key::Writer(sid, 0)) {
        Some(Row::Writer(_, _, n)) => n,
        other => panic!("{other:?}"),
    };
    let notice = |n: u64| match get(&engine, Key::Changes(sid, 0, (n % RING) as u16)) {
        Some(Row::Changes(_, _, _, of, changes)) if of == n => changes,
        other => panic!("{n}: {other:?}"),
    };
    (0..5).for_each(|_| take());
    let before = number();
    assert!(!notice(before).contains(&Change::Any));
    commit(&engine, vec![Write::Put(Row::Writer(sid, 0, before - 3))]).expect("they are lost");
    take();
    assert_eq!(number(), before + 1);
    assert!(notice(before + 1).contains(&Change::Any), "what others saw may be gone");
    take();
    assert!(!notice(before + 2).contains(&Change::Any), "told once");
    meta.close().expect("close");
}

/// What was read for a commit is not compared again if nobody has committed since. Whoever did, on
/// this connection or in another process, it is.
#[test]
fn what_was_read_for_a_commit_is_compared_after_any_other_commit() {
    let (dir, engine) = fresh();
    let other = support::open(&dir.path().join("volume.db"));
    let changed = |nlink| Row::Node(Ino(5), Attr { nlink, ..attr() });
    commit(&engine, vec![Write::Insert(changed(1))]).expect("insert");
    let expecting = |then: Option<Row>| Commit {
        expects: vec![match then {
            Some(row) => Expect::Row(row, Hold::Lock),
            None => Expect::Absent(Key::Node(Ino(5))),
        }],
        writes: vec![trace()],
        ..Commit::default()
    };
    let read = || {
        let mut moment = Moment::default();
        let found = engine.read_at(&[Read::Get(Key::Node(Ino(5)))], &mut moment).expect("read");
        let [Found::Row(row)] = &found[..] else { panic!("{found:?}") };
        (row.clone(), moment)
    };
    // Nobody else.
    let (row, moment) = read();
    engine.commit_at(&expecting(row), moment).expect("as it was");
    // Others, again and again: also right after a commit of ours.
    for (number, by) in [&other, &engine, &other, &other, &engine].into_iter().enumerate() {
        let (row, moment) = read();
        commit(by, vec![Write::Put(changed(2 + number as u32))]).expect("put");
        assert_eq!(conflict(engine.commit_at(&expecting(row), moment)), [Key::Node(Ino(5))], "{number}");
        let (row, moment) = read();
        engine.commit_at(&expecting(row), moment).expect("read again");
    }
    // What was read is not what is expected: a row from a cache.
    let (_, moment) = read();
    assert_eq!(conflict(engine.commit_at(&expecting(Some(changed(1))), moment)), [Key::Node(Ino(5))]);
    let (row, moment) = read();
    commit(&other, vec![Write::Delete(Key::Node(Ino(5)))]).expect("deleted");
    assert_eq!(conflict(engine.commit_at(&expecting(row), moment)), [Key::Node(Ino(5))]);
    let (row, moment) = read();
    assert_eq!(row, None);
    commit(&other, vec![Write::Insert(changed(1))]).expect("insert");
    assert_eq!(conflict(engine.commit_at(&expecting(row), moment)), [Key::Node(Ino(5))]);
}
