//! The shapes of reads: many in one call, an entry with its node, names with a limit.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{Commit, Expect, Found, Hold, List, Moment, Notices, Read, Step, Write},
    schema::{Change, Key, Notice, Row},
};
use sluice_types::{Attr, Ino, Name};

use super::{
    Factory,
    sample::{dir_attr, dir_row, entry_row, file_row, samples},
    store::{Store, TIMEOUT, name, names, node},
};

/// Hundreds of questions of all shapes in one call, some twice, some about nothing.
pub fn answers_come_in_order(factory: &Factory<'_>) {
    let store = Store::with(factory, samples().into_iter().map(|sample| sample.first).collect());
    store.insert(vec![dir_row(2), entry_row(2, &name("a"), 500), file_row(500)]);
    let entry = entry_row(2, &name("a"), 500);
    let mut reads = Vec::new();
    let mut wanted = Vec::new();
    for round in 0..8 {
        for sample in samples() {
            reads.push(Read::Get(sample.first.key()));
            wanted.push(Found::Row(Some(sample.first)));
            reads.push(Read::Get(node(90_000 + round)));
            wanted.push(Found::Row(None));
        }
        reads.push(Read::Follow(Ino(2), name("a")));
        wanted.push(Found::Rows(vec![entry.clone(), file_row(500)]));
        reads.push(Read::Follow(Ino(2), name("b")));
        wanted.push(Found::Rows(vec![]));
        reads.push(Read::Names { dir: Ino(2), limit: 5 });
        wanted.push(Found::Names(vec![name("a")]));
        reads.push(Read::All(List::Xattrs(Ino(2))));
        wanted.push(Found::Rows(vec![]));
        reads.push(Read::Names { dir: Ino(3), limit: 5 });
        wanted.push(Found::Names(vec![]));
    }
    assert_eq!(store.read(&reads), wanted, "by itself");
    assert_eq!(store.read(&[]), []);
    let found = store.engine.read_at(&reads, &mut Moment::default()).expect("read");
    assert_eq!(found, wanted, "for a commit");
}

/// Nothing, the entry alone, or both, in this order.
pub fn follow_answers_the_entry_and_its_node(factory: &Factory<'_>) {
    let linked = [entry_row(2, &name("one"), 5), entry_row(3, &name("two"), 5)];
    let dangling = entry_row(2, &name("dangling"), 404);
    let mut rows = vec![dir_row(2), dir_row(3), file_row(5), dangling.clone()];
    rows.extend(linked.clone());
    let store = Store::with(factory, rows);
    let ask = |dir, called: &str| Read::Follow(Ino(dir), name(called));
    let found =
        store.read(&[ask(2, "one"), ask(3, "two"), ask(2, "two"), ask(2, "dangling"), ask(404, "one")]);
    let [one, two] = linked.clone();
    let wanted = [vec![one, file_row(5)], vec![two, file_row(5)], vec![], vec![dangling], vec![]];
    assert_eq!(found, wanted.map(Found::Rows));
}

/// All names if they are fewer, else as many as asked for.
pub fn names_keep_their_limit(factory: &Factory<'_>) {
    let called = names("n", 600);
    let mut rows: Vec<Row> = called.iter().map(|name| entry_row(2, name, 9)).collect();
    rows.push(entry_row(1, &name("other"), 9));
    rows.push(entry_row(3, &name("other"), 9));
    let store = Store::with(factory, rows);
    for limit in [1, 2, 599, 600, 601, 5000] {
        let Found::Names(found) = store.read(&[Read::Names { dir: Ino(2), limit }]).remove(0) else {
            panic!("no names");
        };
        assert_eq!(found.len(), limit.min(600), "limit {limit}");
        let mut distinct = found.clone();
        distinct.sort();
        distinct.dedup();
        assert_eq!(distinct.len(), found.len(), "a name came twice");
        assert!(found.iter().all(|name| called.contains(name)), "a name of another directory");
    }
}

/// What the first reads show decides the next ones.
pub fn a_moment_reads_several_times(factory: &Factory<'_>) {
    let entry = entry_row(2, &name("a"), 5);
    let store = Store::with(factory, vec![dir_row(2), entry.clone(), file_row(5)]);
    let mut moment = Moment::default();
    let mut read = |reads: &[Read]| store.engine.read_at(reads, &mut moment).expect("read");
    let first = read(&[Read::Get(node(2)), Read::Get(entry.key())]);
    assert_eq!(first, [Found::Row(Some(dir_row(2))), Found::Row(Some(entry.clone()))]);
    let second = read(&[Read::Follow(Ino(2), name("a"))]);
    assert_eq!(second, [Found::Rows(vec![entry.clone(), file_row(5)])]);
    let third = read(&[Read::Get(node(2)), Read::Names { dir: Ino(2), limit: 2 }]);
    assert_eq!(third, [Found::Row(Some(dir_row(2))), Found::Names(vec![name("a")])]);
    let changed = Row::Node(Ino(2), Attr { mode: 0o711, ..dir_attr() });
    let commit = Commit {
        step: None,
        expects: vec![
            Expect::Row(dir_row(2), Hold::Lock),
            Expect::Row(entry.clone(), Hold::Lock),
            Expect::Row(file_row(5), Hold::Lock),
            Expect::Empty(Ino(2)),
        ],
        writes: vec![
            Write::Put(changed.clone()),
            Write::Delete(Key::Entry(Ino(2), name("a"))),
            Write::Delete(node(5)),
        ],
    };
    store.engine.commit_at(&commit, moment).expect("nothing changed");
    store.assert_row(&node(2), Some(&changed));
    store.assert_row(&entry.key(), None);
}

/// A listener hears of a change, or at least that there was one, if the engine has messages at all.
pub fn what_is_notices_arrives(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let mut watch = store.engine.watch().expect("watch");
    store.write(vec![Write::Put(file_row(5)), Write::Notify(Change::Lock(Ino(5)))]);
    let until = Instant::now() + TIMEOUT;
    loop {
        let heard = watch.next(Duration::from_millis(50)).expect("listen");
        let changes: Vec<&Change> = heard.iter().flat_map(|notice| &notice.changes).collect();
        if changes.contains(&&Change::Lock(Ino(5))) || changes.contains(&&Change::Any) {
            break;
        }
        // It need not hear itself.
        if store.engine.limits().notices == Notices::Hint {
            break;
        }
        assert!(Instant::now() < until, "the message never arrived");
    }
    store.assert_row(&node(5), Some(&file_row(5)));
}

/// Where there are messages every numbered commit sends one, in the order of the numbers, whatever
/// it tells; one that fails sends none.
pub fn numbered_commits_are_told_in_order(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![Row::Writer(12, 1, 0)]);
    if store.engine.limits().notices != Notices::Push {
        return;
    }
    let mut watch = store.engine.watch().expect("watch");
    let long = vec![b'x'; 255];
    let change = |n: u64| match n {
        1 => vec![],
        2 => vec![Change::Node(Ino(5)), Change::Entry(Ino(7), Name::new(&long).expect("a name"))],
        _ => (0..n).map(|at| Change::Entry(Ino(at), name("é"))).collect(),
    };
    let sent: Vec<Notice> = (1..=5).map(|n| Notice { writer: 12, lane: 1, n, changes: change(n) }).collect();
    for notice in &sent {
        let step = |from| Some(Step { writer: 12, lane: 1, from, to: notice.n });
        let mut writes = vec![Write::Put(file_row(100 + notice.n))];
        writes.extend(notice.changes.iter().cloned().map(Write::Notify));
        let commit = |from| Commit { step: step(from), expects: vec![], writes: writes.clone() };
        store.engine.commit(&commit(notice.n + 3)).expect_err("the wrong number");
        store.engine.commit(&commit(notice.n - 1)).expect("commit");
    }
    let (mut heard, until) = (Vec::new(), Instant::now() + TIMEOUT);
    while heard.len() < sent.len() && Instant::now() < until {
        heard.extend(watch.next(Duration::from_millis(50)).expect("listen"));
    }
    assert_eq!(heard, sent);
}
