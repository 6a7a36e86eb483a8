//! The identity of a commit (session, lane, number), by which a client finds out after a lost
//! answer whether the commit happened.

use sluice_meta::{
    engine::{Commit, EngineError, Expect, Moment, Read, Step, Write},
    schema::{Key, Row},
};

use super::{
    Factory,
    sample::{dir_row, file_row},
    store::{Store, assert_conflict, node},
};

const ME: u64 = 12;

fn step(lane: u16, from: u64, to: u64) -> Step {
    Step { writer: ME, lane, from, to }
}

fn put(step: Step, ino: u64) -> Commit {
    Commit { step: Some(step), expects: vec![], writes: vec![Write::Put(file_row(ino))] }
}

fn registered(factory: &Factory<'_>, lanes: u16) -> Store {
    Store::with(factory, (0..lanes).map(|lane| Row::Writer(ME, lane, 0)).collect())
}

fn number(store: &Store, lane: u16) -> Option<u64> {
    match store.get(&Key::Writer(ME, lane)) {
        Some(Row::Writer(ME, at, n)) if at == lane => Some(n),
        None => None,
        other => panic!("a writer record reads {other:?}"),
    }
}

/// Each commit takes the record one further; it may leap, and commit nothing else.
pub fn numbers_follow_each_other(factory: &Factory<'_>) {
    let store = registered(factory, 1);
    for n in 0..5 {
        store.engine.commit(&put(step(0, n, n + 1), 100 + n)).expect("in order");
        assert_eq!(number(&store, 0), Some(n + 1));
        store.assert_row(&node(100 + n), Some(&file_row(100 + n)));
    }
    let alone = Commit { step: Some(step(0, 5, 7)), ..Commit::default() };
    store.engine.commit(&alone).expect("a step without writes");
    assert_eq!(number(&store, 0), Some(7));
    let far = (1 << 53) + 1;
    store.engine.commit(&put(step(0, 7, far), 200)).expect("far");
    store.engine.commit(&put(step(0, far, far + 1), 201)).expect("farther");
    assert_eq!(number(&store, 0), Some(far + 1));
}

/// The same commit again, an older one and one from the future: refused, and nothing happens.
pub fn a_replay_is_refused(factory: &Factory<'_>) {
    let store = registered(factory, 1);
    store.engine.commit(&put(step(0, 0, 1), 100)).expect("first");
    store.engine.commit(&put(step(0, 1, 2), 101)).expect("second");
    store.write(vec![Write::Delete(node(100)), Write::Delete(node(101))]);
    for (from, to, ino) in [(0, 1, 100), (1, 2, 101), (3, 4, 102), (0, 9, 103)] {
        assert_conflict(&store.engine.commit(&put(step(0, from, to), ino)), &Key::Writer(ME, 0));
        store.assert_row(&node(ino), None);
        assert_eq!(number(&store, 0), Some(2));
    }
}

/// No record: somebody fenced this client.
pub fn a_missing_writer_record_fences(factory: &Factory<'_>) {
    let store = registered(factory, 2);
    store.engine.commit(&put(step(0, 0, 1), 100)).expect("alive");
    store.write(vec![Write::Delete(Key::Writer(ME, 0))]);
    assert_conflict(&store.engine.commit(&put(step(0, 1, 2), 101)), &Key::Writer(ME, 0));
    assert_eq!(number(&store, 0), None, "a fenced commit must not make the record");
    store.assert_row(&node(101), None);
    store.engine.commit(&put(step(1, 0, 1), 102)).expect("the other lane");
    let stranger = Step { writer: 99, lane: 0, from: 0, to: 1 };
    assert_conflict(&store.engine.commit(&put(stranger, 103)), &Key::Writer(99, 0));
    let again = Commit {
        step: None,
        expects: vec![Expect::Absent(Key::Writer(ME, 0))],
        writes: vec![Write::Insert(Row::Writer(ME, 0, 2))],
    };
    store.engine.commit(&again).expect("registered again");
    store.engine.commit(&put(step(0, 2, 3), 104)).expect("goes on");
}

/// A commit that fails for another reason leaves the number, and one that fails in its step leaves
/// no writes.
pub fn a_step_is_undone_with_its_commit(factory: &Factory<'_>) {
    let store = registered(factory, 1);
    store.insert(vec![dir_row(2)]);
    let mut failing = put(step(0, 0, 1), 100);
    failing.writes.push(Write::Insert(dir_row(2)));
    assert_conflict(&store.engine.commit(&failing), &node(2));
    assert_eq!(number(&store, 0), Some(0));
    let mut both = put(step(0, 7, 8), 100);
    both.writes.push(Write::Insert(dir_row(2)));
    assert!(matches!(store.engine.commit(&both), Err(EngineError::Conflict(_))));
    store.engine.commit(&put(step(0, 0, 1), 100)).expect("the same number again");
    assert_eq!(number(&store, 0), Some(1));
}

/// Each lane of a process has its own number.
pub fn lanes_count_apart(factory: &Factory<'_>) {
    let store = registered(factory, 3);
    for (lane, count) in [(0, 1), (1, 4), (2, 2)] {
        for n in 0..count {
            let commit = put(step(lane, n, n + 1), 100 * u64::from(lane + 1) + n);
            store.engine.commit(&commit).expect("its own number");
        }
    }
    assert_eq!([0, 1, 2].map(|lane| number(&store, lane)), [Some(1), Some(4), Some(2)]);
}

/// The answer to n -> n+1 was lost; n -> n+2 was committed in its stead; then the original arrives.
pub fn a_late_original_loses_against_its_successor(factory: &Factory<'_>) {
    let store = registered(factory, 1);
    let original = put(step(0, 0, 1), 100);
    store.engine.commit(&Commit { step: Some(step(0, 0, 2)), ..Commit::default() }).expect("in its stead");
    assert_conflict(&store.engine.commit(&original), &Key::Writer(ME, 0));
    store.assert_row(&node(100), None);
    // After reads it is the same.
    let mut moment = Moment::default();
    store.engine.read_at(&[Read::Get(node(100))], &mut moment).expect("read");
    assert_conflict(&store.engine.commit_at(&original, moment), &Key::Writer(ME, 0));
    store.assert_row(&node(100), None);
}
