//! What a commit may expect of what was read before: held records, absent records, empty
//! directories.
//!
//! Between the reads and the commit, another client makes a change.

use sluice_meta::{
    engine::{Commit, Expect, Hold, List, Moment, Read, Write},
    schema::{Extra, FlockKind, Key, LockOwner, PlockRange, Row},
};
use sluice_types::{Attr, AttrFlags, Ino, Time};

use super::{
    Factory,
    sample::{dir_attr, dir_row, entry_row, file_attr, file_row, samples},
    store::{Store, assert_conflict, name, names, node},
};

/// A commit that changes nothing that anybody reads.
fn mark() -> Vec<Write> {
    vec![Write::Put(file_row(777))]
}

fn commit(expects: Vec<Expect>, writes: Vec<Write>) -> Commit {
    Commit { step: None, expects, writes }
}

/// Reads, lets the rival commit, commits: refused, and nothing is changed.
fn excluded(store: &Store, reads: &[Read], ours: &Commit, theirs: &Commit, key: &Key) {
    store.assert_row(&node(777), None);
    let mut moment = Moment::default();
    store.engine.read_at(reads, &mut moment).expect("read");
    store.engine.commit(theirs).expect("a read holds nobody up");
    assert_conflict(&store.engine.commit_at(ours, moment), key);
    store.assert_row(&node(777), None);
}

/// Reads, lets the rival commit, commits: what changed is not what was held.
fn compatible(store: &Store, reads: &[Read], ours: &Commit, theirs: &Commit) {
    let mut moment = Moment::default();
    store.engine.read_at(reads, &mut moment).expect("read");
    store.engine.commit(theirs).expect("a read holds nobody up");
    store.engine.commit_at(ours, moment).expect("what changed is not what was held");
}

/// Every kind under every hold, unchanged.
pub fn what_was_held_and_did_not_change_holds(factory: &Factory<'_>) {
    let store = Store::with(factory, samples().into_iter().map(|sample| sample.first).collect());
    for hold in [Hold::None, Hold::Guard, Hold::Lock] {
        let rows: Vec<Row> = samples().into_iter().map(|sample| sample.first).collect();
        let reads: Vec<Read> = rows.iter().map(|row| Read::Get(row.key())).collect();
        let expects = rows.into_iter().map(|row| Expect::Row(row, hold)).collect();
        store.read_and_commit(&reads, expects, mark()).unwrap_or_else(|error| panic!("{hold:?}: {error}"));
        store.write(vec![Write::Delete(node(777))]);
    }
}

/// Every kind, replaced or deleted by a rival while it was held to be written.
pub fn a_lock_notices_every_change(factory: &Factory<'_>) {
    for sample in samples() {
        let key = sample.first.key();
        let lock = Read::Get(key.clone());
        let was = Expect::Row(sample.first.clone(), Hold::Lock);
        let mut changes = vec![Write::Delete(key.clone())];
        if sample.first != sample.then {
            changes.push(Write::Put(sample.then));
        }
        for change in changes {
            let store = Store::with(factory, vec![sample.first.clone()]);
            let theirs = commit(vec![was.clone()], vec![change]);
            excluded(&store, std::slice::from_ref(&lock), &commit(vec![was.clone()], mark()), &theirs, &key);
        }
    }
}

fn guarded_changes() -> Vec<(&'static str, Attr)> {
    let was = dir_attr();
    vec![
        ("mode", Attr { mode: 0o700, ..was }),
        ("special mode bits", Attr { mode: 0o1755, ..was }),
        ("uid", Attr { uid: 9, ..was }),
        ("gid", Attr { gid: 9, ..was }),
        ("flags", Attr { flags: AttrFlags(AttrFlags::IMMUTABLE), ..was }),
        ("parent", Attr { parent: Ino(9), ..was }),
        ("access ACL", Attr { access_acl: 9, ..was }),
        ("default ACL", Attr { default_acl: 9, ..was }),
        ("tier", Attr { tier: 1, ..was }),
    ]
}

/// A guard notices type, mode, owner, group, flags, parent, ACLs and tier.
pub fn a_guard_notices_what_it_names(factory: &Factory<'_>) {
    let was = Row::Node(Ino(2), dir_attr());
    let guard = [Read::Get(node(2))];
    for (what, attr) in guarded_changes() {
        eprintln!("a guard and a change of {what}");
        let store = Store::with(factory, vec![was.clone()]);
        let theirs =
            commit(vec![Expect::Row(was.clone(), Hold::Lock)], vec![Write::Put(Row::Node(Ino(2), attr))]);
        let ours = commit(vec![Expect::Row(was.clone(), Hold::Guard)], mark());
        excluded(&store, &guard, &ours, &theirs, &node(2));
    }
}

/// A guard ignores times, nlink, length and rdev.
pub fn a_guard_ignores_the_rest(factory: &Factory<'_>) {
    let was = file_attr();
    let later = Time { sec: 1_800_000_000, nsec: 1 };
    for (what, attr) in [
        ("atime", Attr { atime: later, ..was }),
        ("mtime", Attr { mtime: later, ..was }),
        ("ctime", Attr { ctime: later, ..was }),
        ("nlink", Attr { nlink: 7, ..was }),
        ("length", Attr { length: 1 << 40, ..was }),
        ("rdev", Attr { rdev: 7, ..was }),
    ] {
        eprintln!("a guard and a change of {what}");
        let store = Store::with(factory, vec![file_row(2)]);
        let theirs =
            commit(vec![Expect::Row(file_row(2), Hold::Lock)], vec![Write::Put(Row::Node(Ino(2), attr))]);
        let ours = commit(vec![Expect::Row(file_row(2), Hold::Guard)], mark());
        compatible(&store, &[Read::Get(node(2))], &ours, &theirs);
        store.assert_row(&node(2), Some(&Row::Node(Ino(2), attr)));
    }
}

/// A guard notices that the node is gone.
pub fn a_guard_notices_a_removed_node(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let theirs = commit(vec![Expect::Row(dir_row(2), Hold::Lock)], vec![Write::Delete(node(2))]);
    let ours = commit(vec![Expect::Row(dir_row(2), Hold::Guard)], mark());
    excluded(&store, &[Read::Get(node(2))], &ours, &theirs, &node(2));
}

/// Two guards on one record do not meet.
pub fn many_guard_one_record(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let guard = vec![Read::Get(node(2))];
    let was = vec![Expect::Row(dir_row(2), Hold::Guard)];
    let theirs = commit(was.clone(), vec![Write::Put(file_row(778))]);
    compatible(&store, &guard, &commit(was, mark()), &theirs);
}

/// Creates in one directory guard and bump it: none waits for the other and none fails.
pub fn bumps_pass_a_guard(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let guard = vec![Read::Get(node(2))];
    let was = vec![Expect::Row(dir_row(2), Hold::Guard)];
    let time = Time { sec: 1_800_000_000, nsec: 3 };
    let bump = |row| vec![Write::Put(row), Write::Bump { ino: Ino(2), nlink: 1, time: Some(time) }];
    let theirs = commit(was.clone(), bump(file_row(778)));
    compatible(&store, &guard, &commit(was, bump(file_row(777))), &theirs);
    let now = Attr { nlink: 4, mtime: time, ctime: time, ..dir_attr() };
    store.assert_row(&node(2), Some(&Row::Node(Ino(2), now)));
}

/// A record that was not there and then is, with and without inserting it oneself.
pub fn absent_records_are_expected(factory: &Factory<'_>) {
    let member = |value: u8| Row::Extra(Extra::Member, 7, vec![value].into());
    for (row, other) in
        [(entry_row(2, &name("new"), 9), entry_row(2, &name("new"), 10)), (member(1), member(2))]
    {
        let key = row.key();
        let read = [Read::Get(key.clone())];
        let absent = vec![Expect::Absent(key.clone())];
        for insert in [true, false] {
            let mut writes = mark();
            writes.extend(insert.then(|| Write::Insert(row.clone())));
            let ours = commit(absent.clone(), writes);
            let store = Store::with(factory, vec![dir_row(2)]);
            let theirs = commit(vec![], vec![Write::Insert(other.clone())]);
            excluded(&store, &read, &ours, &theirs, &key);

            let store = Store::with(factory, vec![dir_row(2)]);
            store.read_and_commit(&read, ours.expects, ours.writes).expect("nobody made it");
            store.assert_row(&key, insert.then_some(&row));
        }
    }
}

/// An entry that was followed: renamed away, replaced, or its node changed.
pub fn a_followed_entry_is_held(factory: &Factory<'_>) {
    let called = name("file");
    let entry = entry_row(2, &called, 5);
    let key = entry.key();
    let changes = [
        (vec![Write::Delete(key.clone())], key.clone()),
        (vec![Write::Put(entry_row(2, &called, 6))], key.clone()),
        (vec![Write::Put(Row::Node(Ino(5), Attr { mode: 0, ..file_attr() }))], node(5)),
        (vec![Write::Delete(key.clone()), Write::Delete(node(5))], node(5)),
    ];
    for hold in [Hold::Guard, Hold::Lock] {
        let follow = [Read::Follow(Ino(2), called.clone())];
        let expects = vec![Expect::Row(entry.clone(), hold), Expect::Row(file_row(5), hold)];
        let ours = commit(expects.clone(), mark());
        for (change, touched) in &changes {
            let store = Store::with(factory, vec![dir_row(2), file_row(5), file_row(6), entry.clone()]);
            let theirs = commit(vec![], change.clone());
            excluded(&store, &follow, &ours, &theirs, touched);
        }
        let store = Store::with(factory, vec![dir_row(2), file_row(5), entry.clone()]);
        store.read_and_commit(&follow, ours.expects, ours.writes).expect("nobody changed it");
    }
}

/// The directory may hold what this very commit deletes, and nothing else.
pub fn empty_spares_what_the_commit_deletes(factory: &Factory<'_>) {
    let called = names("child", 3);
    let rows = || {
        let mut rows = vec![dir_row(2), dir_row(20), entry_row(20, &called[0], 99)];
        rows.extend(called.iter().map(|name| entry_row(2, name, 99)));
        rows
    };
    let reads = [Read::Get(node(2)), Read::Names { dir: Ino(2), limit: 4 }];
    let expects = || vec![Expect::Row(dir_row(2), Hold::Lock), Expect::Empty(Ino(2))];
    let deletes = |count: usize| {
        let mut writes: Vec<Write> =
            called[..count].iter().map(|name| Write::Delete(Key::Entry(Ino(2), name.clone()))).collect();
        writes.push(Write::Delete(node(2)));
        writes
    };
    let store = Store::with(factory, rows());
    for count in 0..3 {
        assert_conflict(&store.read_and_commit(&reads, expects(), deletes(count)), &node(2));
        store.assert_row(&node(2), Some(&dir_row(2)));
        store.assert_row(&Key::Entry(Ino(2), called[0].clone()), Some(&entry_row(2, &called[0], 99)));
    }
    store.read_and_commit(&reads, expects(), deletes(3)).expect("all children go with it");
    store.assert_row(&node(2), None);
    store.assert_row(&Key::Entry(Ino(20), called[0].clone()), Some(&entry_row(20, &called[0], 99)));
    let store = Store::with(factory, vec![dir_row(2)]);
    store.read_and_commit(&reads, expects(), deletes(0)).expect("it is empty");
}

/// rmdir against create: never both.
pub fn empty_and_a_guarded_create_exclude_each_other(factory: &Factory<'_>) {
    let create = || {
        let guard = vec![Read::Get(node(2))];
        let writes = vec![
            Write::Insert(entry_row(2, &name("new"), 9)),
            Write::Bump { ino: Ino(2), nlink: 0, time: Some(Time { sec: 1_800_000_000, nsec: 0 }) },
        ];
        (guard, commit(vec![Expect::Row(dir_row(2), Hold::Guard)], writes))
    };
    let rmdir = || {
        let reads = vec![Read::Get(node(2)), Read::Names { dir: Ino(2), limit: 1 }];
        let expects = vec![Expect::Row(dir_row(2), Hold::Lock), Expect::Empty(Ino(2))];
        (reads, commit(expects, vec![Write::Delete(node(2))]))
    };
    for (ours, theirs) in [(rmdir(), create()), (create(), rmdir())] {
        let store = Store::with(factory, vec![dir_row(2)]);
        let mut moment = Moment::default();
        store.engine.read_at(&ours.0, &mut moment).expect("read");
        let other = store.engine.commit(&theirs.1);
        let mine = store.engine.commit_at(&ours.1, moment);
        assert!(mine.is_ok() != other.is_ok(), "one of the two: ours {mine:?}, theirs {other:?}");
        let entry = store.get(&Key::Entry(Ino(2), name("new")));
        assert_eq!(store.get(&node(2)).is_some(), entry.is_some(), "an entry without its directory");
    }
}

/// Locks of a file that were read to be decided upon: none may come, go or change.
pub fn a_list_of_locks_is_held(factory: &Factory<'_>) {
    let owner = |sid| LockOwner { sid, owner: 7 };
    let flock = |sid, kind| Row::Flock(Ino(5), owner(sid), kind);
    let plock =
        |sid, end| Row::Plock(Ino(5), owner(sid), vec![PlockRange { write: false, pid: 1, start: 0, end }]);
    let cases = [
        (
            List::Flocks(Ino(5)),
            flock(1, FlockKind::Read),
            flock(1, FlockKind::Write),
            flock(2, FlockKind::Read),
        ),
        (List::Plocks(Ino(5)), plock(1, 5), plock(1, 6), plock(2, 5)),
    ];
    for (list, held, changed, another) in cases {
        let reads = vec![Read::Get(node(5)), Read::All(list)];
        let expects = vec![Expect::Row(file_row(5), Hold::Lock), Expect::Same(list, vec![held.clone()])];
        let ours = commit(expects.clone(), mark());
        for change in [Write::Put(changed), Write::Insert(another.clone()), Write::Delete(held.key())] {
            let store = Store::with(factory, vec![file_row(5), held.clone()]);
            let theirs = commit(expects.clone(), vec![change]);
            excluded(&store, &reads, &ours, &theirs, &node(5));
        }
        let store = Store::with(factory, vec![file_row(5), held.clone(), another.clone()]);
        for rows in [vec![held.clone(), another.clone()], vec![another.clone(), held.clone()]] {
            let expects = vec![Expect::Same(list, rows)];
            store.read_and_commit(&reads, expects, vec![]).expect("nothing changed, in any order");
        }
        for rows in [vec![], vec![held.clone()], vec![held.clone(), another.clone(), held.clone()]] {
            let answer = store.read_and_commit(&reads, vec![Expect::Same(list, rows)], mark());
            assert_conflict(&answer, &node(5));
        }
    }
}

/// What was read and never committed holds nothing.
pub fn a_read_holds_nothing(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2), entry_row(2, &name("a"), 9)]);
    let mut moments = Vec::new();
    for _ in 0..3 {
        let mut moment = Moment::default();
        let reads = [Read::Get(node(2)), Read::Follow(Ino(2), name("a"))];
        store.engine.read_at(&reads, &mut moment).expect("read");
        store.write(vec![Write::Put(dir_row(2))]);
        moments.push(moment);
    }
    store.write(vec![Write::Delete(node(2))]);
}

/// What was never read is compared too.
pub fn what_was_not_read_is_compared_too(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2), entry_row(2, &name("a"), 9)]);
    let stale = Row::Node(Ino(2), Attr { mode: 0o700, ..dir_attr() });
    let bumped = Row::Node(Ino(2), Attr { nlink: 9, mtime: Time::default(), ..dir_attr() });
    let cases = [
        (Expect::Row(dir_row(2), Hold::Lock), true),
        (Expect::Row(stale.clone(), Hold::Lock), false),
        (Expect::Row(stale.clone(), Hold::Guard), false),
        (Expect::Row(stale, Hold::None), true),
        (Expect::Row(bumped.clone(), Hold::Guard), true),
        (Expect::Row(bumped, Hold::Lock), false),
        (Expect::Row(dir_row(3), Hold::Guard), false),
        (Expect::Absent(node(3)), true),
        (Expect::Absent(node(2)), false),
        (Expect::Absent(Key::Entry(Ino(2), name("a"))), false),
        (Expect::Row(entry_row(2, &name("a"), 9), Hold::Guard), true),
        (Expect::Row(entry_row(2, &name("a"), 10), Hold::Guard), false),
        (Expect::Empty(Ino(2)), false),
        (Expect::Empty(Ino(3)), true),
    ];
    for (expect, holds) in cases {
        let shown = format!("{expect:?}");
        let key = expect.key();
        let answer = store.engine.commit(&commit(vec![expect], mark()));
        if holds {
            answer.unwrap_or_else(|error| panic!("{shown}: {error}"));
            store.write(vec![Write::Delete(node(777))]);
        } else {
            assert_conflict(&answer, &key);
            store.assert_row(&node(777), None);
        }
    }
    for sample in samples() {
        if sample.first == sample.then {
            continue;
        }
        let store = Store::with(factory, vec![sample.first.clone()]);
        let answer = store.engine.commit(&commit(vec![Expect::Row(sample.then.clone(), Hold::Lock)], mark()));
        assert_conflict(&answer, &sample.first.key());
        store.engine.commit(&commit(vec![Expect::Row(sample.first, Hold::Lock)], mark())).expect("unchanged");
    }
}

/// A commit may do nothing but check.
pub fn expectations_without_writes_are_checked(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let lock = [Read::Get(node(2))];
    store.read_and_commit(&lock, vec![Expect::Row(dir_row(2), Hold::Lock)], vec![]).expect("it holds");
    let reads = [Read::Get(node(2)), Read::Names { dir: Ino(2), limit: 1 }];
    store.write(vec![Write::Insert(entry_row(2, &name("a"), 9))]);
    let answer = store.read_and_commit(&reads, vec![Expect::Empty(Ino(2))], vec![]);
    assert_conflict(&answer, &node(2));
}
