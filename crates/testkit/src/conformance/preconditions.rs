//! The precondition of each write. If it does not hold, that is a conflict that names the key, and
//! nothing of the commit happens.

use bytes::Bytes;
use sluice_meta::{
    engine::{Commit, Expect, Scan, Write},
    schema::{Counter, DirStat, Key, Quota, QuotaKey, Row},
};
use sluice_types::{Attr, Ino, Slice, Time};

use super::{
    Factory,
    sample::{dir_attr, dir_row, entry_row, file_row, is_bare, samples},
    store::{Store, assert_conflict, name, names, node},
};

/// For every kind: the second Insert loses, and what stood beside it in the commit is not there.
pub fn insert_of_an_existing_record_conflicts(factory: &Factory<'_>) {
    let store = Store::with(factory, samples().into_iter().map(|sample| sample.first).collect());
    let beside = Row::Symlink(Ino(999), Bytes::from_static(b"beside"));
    for sample in samples() {
        let key = sample.first.key();
        for insert in [sample.then, sample.first.clone()] {
            for writes in [
                vec![Write::Insert(insert.clone()), Write::Insert(beside.clone())],
                vec![Write::Insert(beside.clone()), Write::Insert(insert.clone())],
            ] {
                assert_conflict(&store.commit(writes), &key);
                store.assert_row(&key, Some(&sample.first));
                store.assert_row(&beside.key(), None);
            }
        }
    }
}

/// For every kind: deleting what is not there is a conflict.
pub fn delete_of_a_missing_record_conflicts(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let beside = Row::Symlink(Ino(999), Bytes::from_static(b"beside"));
    for sample in samples() {
        let key = sample.first.key();
        let writes = vec![Write::Insert(beside.clone()), Write::Delete(key.clone())];
        assert_conflict(&store.commit(writes), &key);
        store.assert_row(&beside.key(), None);
        assert!(is_bare(&key) || sample.first != sample.then);
    }
}

/// Discarding removes what is there and minds nothing else.
pub fn discard_removes_what_is_there(factory: &Factory<'_>) {
    let store = Store::with(factory, samples().into_iter().map(|sample| sample.first).collect());
    let beside = Row::Symlink(Ino(999), Bytes::from_static(b"beside"));
    let discards = || samples().into_iter().map(|sample| Write::Discard(sample.first.key()));
    for discard in discards() {
        let Write::Discard(key) = &discard else { unreachable!() };
        store.write(vec![discard.clone()]);
        store.assert_row(key, None);
        store.write(vec![Write::Insert(beside.clone()), discard]);
        store.write(vec![Write::Delete(beside.key())]);
    }
    store.write(discards().collect());
}

/// A Bump never makes a node and is never dropped.
pub fn bump_of_a_missing_node_conflicts(factory: &Factory<'_>) {
    let store = Store::with(factory, vec![dir_row(2)]);
    let entry = entry_row(3, &name("child"), 9);
    for bump in [
        Write::Bump { ino: Ino(3), nlink: 1, time: Some(Time { sec: 9, nsec: 9 }) },
        Write::Bump { ino: Ino(3), nlink: 0, time: Some(Time { sec: 9, nsec: 9 }) },
        Write::Bump { ino: Ino(3), nlink: -1, time: None },
        Write::Bump { ino: Ino(3), nlink: 0, time: None },
    ] {
        assert_conflict(&store.commit(vec![Write::Insert(entry.clone()), bump]), &node(3));
        store.assert_row(&node(3), None);
        store.assert_row(&entry.key(), None);
    }
    // One that changes nothing meets its node all the same.
    for nlink in [0, 0, 1] {
        store.write(vec![Write::Bump { ino: Ino(2), nlink, time: Some(Time { sec: 1, nsec: 1 }) }]);
    }
    store.assert_row(&node(2), Some(&Row::Node(Ino(2), Attr { nlink: 3, ..dir_attr() })));
}

/// Hundreds of writes of all sorts and one that fails, at the beginning, in the middle or at the
/// end.
pub fn one_failing_write_undoes_hundreds(factory: &Factory<'_>) {
    let store = Store::with(
        factory,
        vec![
            dir_row(2),
            Row::Counter(Counter::TotalInodes, 50),
            Row::DirStat(Ino(2), DirStat::default()),
            Row::Chunk(Ino(7), 0, vec![Slice::whole(0, 1, 2)]),
            Row::Symlink(Ino(8), Bytes::from_static(b"stays")),
            Row::SliceRef(5, 6, 2),
        ],
    );
    let before: Vec<Row> =
        [node(2), Key::Counter(Counter::TotalInodes), Key::DirStat(Ino(2)), Key::Chunk(Ino(7), 0)]
            .iter()
            .chain(&[Key::Symlink(Ino(8)), Key::SliceRef(5, 6)])
            .map(|key| store.get(key).expect("inserted"))
            .collect();
    let mut good: Vec<Write> = Vec::new();
    for (at, called) in names("file", 300).iter().enumerate() {
        good.push(Write::Insert(file_row(1000 + at as u64)));
        good.push(Write::Insert(entry_row(2, called, 1000 + at as u64)));
    }
    good.extend([
        Write::Put(file_row(5000)),
        Write::Delete(Key::Symlink(Ino(8))),
        Write::Bump { ino: Ino(2), nlink: 4, time: Some(Time { sec: 1_800_000_000, nsec: 0 }) },
        Write::Count(Counter::TotalInodes, 300),
        Write::Use(Ino(2), DirStat { length: 1, space: 4096, inodes: 300 }),
        Write::Append(Ino(7), 0, vec![Slice::whole(0, 9, 9)]),
        Write::Refer(5, 6, 1),
    ]);
    let bad = [
        (Write::Insert(dir_row(2)), node(2)),
        (Write::Delete(node(404)), node(404)),
        (Write::Bump { ino: Ino(404), nlink: 1, time: None }, node(404)),
    ];
    for (write, key) in bad {
        for at in [0, good.len() / 2, good.len()] {
            let mut writes = good.clone();
            if key == node(2) {
                writes.retain(|write| !matches!(write, Write::Bump { .. }));
            }
            writes.insert(at.min(writes.len()), write.clone());
            assert_conflict(&store.commit(writes), &key);
            for row in &before {
                store.assert_row(&row.key(), Some(row));
            }
            for at in [0, 150, 299] {
                store.assert_row(&node(1000 + at), None);
            }
            store.assert_row(&node(5000), None);
        }
    }
    store.write(good);
    store.assert_row(&node(1299), Some(&file_row(1299)));
    store.assert_row(&Key::Counter(Counter::TotalInodes), Some(&Row::Counter(Counter::TotalInodes, 350)));
}

/// Counters at 0, references at 1, chunks empty.
pub fn adding_writes_start_where_the_contract_says(factory: &Factory<'_>) {
    let store = Store::new(factory);
    for counter in [Counter::UsedSpace, Counter::TotalInodes, Counter::NextSession, Counter::NextTrash] {
        store.write(vec![Write::Count(counter, 5)]);
        store.write(vec![Write::Count(counter, -7)]);
        store.assert_row(&Key::Counter(counter), Some(&Row::Counter(counter, -2)));
    }
    store.write(vec![Write::Append(Ino(3), 4, vec![Slice::whole(1, 2, 3)])]);
    store.write(vec![Write::Append(Ino(3), 4, vec![Slice::hole(4, 5), Slice::whole(6, 7, 8)])]);
    let records = vec![Slice::whole(1, 2, 3), Slice::hole(4, 5), Slice::whole(6, 7, 8)];
    store.assert_row(&Key::Chunk(Ino(3), 4), Some(&Row::Chunk(Ino(3), 4, records)));
    store.write(vec![Write::Refer(5, 6, 2)]);
    store.assert_row(&Key::SliceRef(5, 6), Some(&Row::SliceRef(5, 6, 3)));
    store.write(vec![Write::Refer(5, 6, -1)]);
    store.assert_row(&Key::SliceRef(5, 6), Some(&Row::SliceRef(5, 6, 2)));
    store.assert_row(&Key::SliceRef(5, 7), None);
}

/// Use and Charge add where there is a record. Without one a directory stays without; a user or
/// group gets one that limits nothing, by each way a record can be read.
pub fn usage_without_a_record_is_kept_of_owners_only(factory: &Factory<'_>) {
    let stat = DirStat { length: 10, space: 4096, inodes: 1 };
    let quota = Quota { max_space: 1 << 30, max_inodes: 100, used_space: 7, used_inodes: -1 };
    let keys = [QuotaKey::Dir(Ino(3)), QuotaKey::User(3), QuotaKey::Group(3)];
    let store = Store::with(factory, vec![Row::DirStat(Ino(3), stat)]);
    store.write(vec![Write::Use(Ino(3), stat), Write::Use(Ino(4), stat)]);
    store.write(keys.iter().map(|key| Write::Charge(*key, 5, 5)).collect());
    store.assert_row(&Key::DirStat(Ino(3)), Some(&Row::DirStat(Ino(3), stat.plus(stat))));
    store.assert_row(&Key::DirStat(Ino(4)), None);
    let scanned = store.scan(Scan::Quotas);
    for (key, n) in keys.into_iter().zip(1..) {
        let made = key.kept().map(|fresh| Row::Quota(key, Quota { used_space: 5, used_inodes: 5, ..fresh }));
        store.assert_row(&Key::Quota(key), made.as_ref());
        assert_eq!(scanned.iter().find(|row| row.key() == Key::Quota(key)), made.as_ref());
        store.write(vec![Write::Charge(key, -9, -9)]);
        let below =
            key.kept().map(|fresh| Row::Quota(key, Quota { used_space: -4, used_inodes: -4, ..fresh }));
        store.assert_row(&Key::Quota(key), below.as_ref());
        store.write(vec![Write::Put(Row::Quota(key, quota))]);
        store.write(vec![Write::Charge(key, 100 * n, n)]);
        store.write(vec![Write::Charge(key, -1, -2)]);
        let then = Quota { used_space: 6 + 100 * n, used_inodes: n - 3, ..quota };
        store.assert_row(&Key::Quota(key), Some(&Row::Quota(key, then)));
    }
}

/// Room is looked for in the record as it is at the commit, before it is charged, and only of what
/// is asked: a quota that is full admits what takes nothing.
pub fn a_quota_admits_as_much_as_its_limits(factory: &Factory<'_>) {
    for key in [QuotaKey::Dir(Ino(3)), QuotaKey::User(3), QuotaKey::Group(3)] {
        let quota = Quota { max_space: 1 << 40, max_inodes: 10, used_space: (1 << 40) - 9, used_inodes: 8 };
        let store = Store::with(factory, vec![Row::Quota(key, quota)]);
        let take = |room: (i64, i64), by: (i64, i64)| {
            let expects = vec![Expect::QuotaAllows(key, room.0, room.1)];
            let writes = vec![Write::Charge(key, by.0, by.1)];
            store.engine.commit(&Commit { expects, writes, ..Commit::default() })
        };
        let record = Key::Quota(key);
        for refused in [(10, 0), (0, 3), (10, 1), (1, 3), (i64::MAX / 2, 1)] {
            assert_conflict(&take(refused, refused), &record);
            // What is charged to others in the same commit does not count.
            assert_conflict(&take(refused, (-5, -5)), &record);
        }
        store.assert_row(&record, Some(&Row::Quota(key, quota)));
        for (room, by) in [((9, 0), (9, 0)), ((0, 2), (0, 1)), ((0, 1), (100, 7)), ((0, 0), (1, 1))] {
            take(room, by).unwrap_or_else(|error| panic!("{key:?}, {room:?}: {error}"));
        }
        let full = Quota { used_space: quota.used_space + 110, used_inodes: 17, ..quota };
        store.assert_row(&record, Some(&Row::Quota(key, full)));
        assert_conflict(&take((0, 1), (0, 1)), &record);
        // Nothing limits it, by either way to say so.
        for none in [0, -1] {
            store.write(vec![Write::Put(Row::Quota(
                key,
                Quota { max_space: none, max_inodes: none, ..full },
            ))]);
            take((1 << 50, 1 << 50), (1, 1)).expect("no limit");
        }
        store.write(vec![Write::Delete(record.clone())]);
        take((5, 5), (5, 5)).expect("no record");
        assert_eq!(store.get(&record).is_some(), key.kept().is_some());
    }
}

/// mtime and ctime go up to the given time, each by itself, and never down; atime stays; nlink
/// follows its sign.
pub fn bump_raises_times_and_never_lowers_them(factory: &Factory<'_>) {
    let at = |sec, nsec| Time { sec, nsec };
    let start = Attr { nlink: 5, atime: at(100, 0), mtime: at(200, 500), ctime: at(300, 500), ..dir_attr() };
    let store = Store::with(factory, vec![Row::Node(Ino(2), start)]);
    let mut now = start;
    for (nlink, time) in [
        (1, None),
        (0, Some(at(50, 999_999_999))),
        (0, Some(at(200, 499))),
        (-2, Some(at(200, 501))),
        (0, Some(at(250, 0))),
        (3, Some(at(300, 499))),
        (0, Some(at(300, 999_999_999))),
        (0, Some(at(301, 0))),
        (0, Some(at(300, 999_999_999))),
        (0, Some(at(4_102_444_800, 123_456_789))),
    ] {
        store.write(vec![Write::Bump { ino: Ino(2), nlink, time }]);
        now.nlink = now.nlink.saturating_add_signed(nlink);
        now.mtime = now.mtime.max(time.unwrap_or_default());
        now.ctime = now.ctime.max(time.unwrap_or_default());
        assert_eq!(store.get(&node(2)), Some(Row::Node(Ino(2), now)), "after {nlink} and {time:?}");
    }
}
