//! Every kind of record survives the round trip, whichever write made it and whichever read asks
//! for it.

use bytes::Bytes;
use sluice_meta::{
    engine::{Expect, Found, Hold, List, Read, Write},
    schema::{Extra, FlockKind, Key, LockOwner, PlockRange, Row},
};
use sluice_types::{Attr, Ino, Slice};

use super::{
    Factory,
    sample::{self, dir_row, entry_row, file_row, is_bare, ordinal, samples},
    store::{Store, name, names, node, sorted},
};

/// A new kind of record needs a sample.
pub fn samples_cover_every_kind(_: &Factory<'_>) {
    let mut seen = [false; sample::KINDS];
    seen[ordinal(&Row::Parents(Ino(1), Ino(2), 1))] = true;
    for sample in samples() {
        seen[ordinal(&sample.first)] = true;
        assert!(sample.first != sample.then || is_bare(&sample.first.key()), "{:?}", sample.first);
    }
    assert!(seen.iter().all(|seen| *seen), "kinds without a sample: {seen:?}");
}

/// Insert, read, hold, replace, delete: each record by itself.
pub fn every_kind_is_inserted_read_replaced_and_deleted(factory: &Factory<'_>) {
    let store = Store::new(factory);
    for sample in samples() {
        let key = sample.first.key();
        store.assert_row(&key, None);
        store.write(vec![Write::Insert(sample.first.clone())]);
        store.assert_row(&key, Some(&sample.first));
        store
            .read_and_commit(
                &[Read::Get(key.clone())],
                vec![Expect::Row(sample.first.clone(), Hold::Lock)],
                vec![Write::Put(sample.then.clone())],
            )
            .unwrap_or_else(|error| panic!("replacing {key:?}: {error}"));
        store.assert_row(&key, Some(&sample.then));
        store
            .read_and_commit(
                &[Read::Get(key.clone())],
                vec![Expect::Row(sample.then.clone(), Hold::Lock)],
                vec![Write::Delete(key.clone())],
            )
            .unwrap_or_else(|error| panic!("deleting {key:?}: {error}"));
        store.assert_row(&key, None);
    }
}

/// A volume of every kind of record is removed, and another one may take its place.
pub fn a_removed_volume_leaves_nothing(factory: &Factory<'_>) {
    let store = Store::new(factory);
    for _ in 0..2 {
        let mut all: Vec<Row> = samples().into_iter().map(|sample| sample.first).collect();
        all.extend((0..700).map(|number| file_row(50_000 + number)));
        store.insert(all.clone());
        store.engine.remove_volume().expect("removed");
        store.engine.remove_volume().expect("there is nothing left to remove");
        store.engine.check_vacant().expect("nothing is left");
        store.engine.prepare().expect("prepare");
        for row in all {
            store.assert_row(&row.key(), None);
        }
    }
}

/// A Put makes what does not exist.
pub fn every_kind_is_made_by_put(factory: &Factory<'_>) {
    let store = Store::new(factory);
    store.write(samples().into_iter().map(|sample| Write::Put(sample.then)).collect());
    for sample in samples() {
        store.assert_row(&sample.then.key(), Some(&sample.then));
    }
    store.write(samples().into_iter().map(|sample| Write::Put(sample.first)).collect());
    for sample in samples() {
        store.assert_row(&sample.first.key(), Some(&sample.first));
    }
}

/// All kinds together in one store: deleting one leaves the others.
pub fn kinds_do_not_mix(factory: &Factory<'_>) {
    let store = Store::with(factory, samples().into_iter().map(|sample| sample.first).collect());
    let all = samples();
    for (at, gone) in all.iter().enumerate() {
        store.write(vec![Write::Delete(gone.first.key())]);
        let rest: Vec<Read> = all[at..].iter().map(|sample| Read::Get(sample.first.key())).collect();
        let found = store.read(&rest);
        assert_eq!(found[0], Found::Row(None), "{:?} was deleted", gone.first.key());
        for (sample, found) in all[at + 1..].iter().zip(&found[1..]) {
            assert_eq!(found, &Found::Row(Some(sample.first.clone())), "after {:?}", gone.first.key());
        }
    }
}

/// The small collections: members, neighbours, and removal of the whole.
pub fn collections_are_read_and_cleared(factory: &Factory<'_>) {
    let xattr =
        |ino, n: usize| Row::Xattr(Ino(ino), names("user.", n + 1).remove(n), Bytes::from(vec![n as u8]));
    let owner = |sid, owner| LockOwner { sid, owner };
    let flock = |ino, sid| Row::Flock(Ino(ino), owner(sid, sid + 1), FlockKind::Write);
    let range = PlockRange { write: true, pid: 3, start: 4, end: 5 };
    let plock = |ino, sid| Row::Plock(Ino(ino), owner(sid, sid + 1), vec![range]);
    let chunk = |ino, index| Row::Chunk(Ino(ino), index, vec![Slice::whole(0, 5, 6)]);
    let sustained = |sid, ino| Row::Sustained(sid, Ino(ino));
    let extra = |kind, number: u64| Row::Extra(kind, number, number.to_string().into_bytes().into());
    let cases: Vec<(List, Vec<Row>, Vec<Row>)> = vec![
        (
            List::Xattrs(Ino(12)),
            (0..300).map(|n| xattr(12, n)).collect(),
            vec![xattr(1, 0), xattr(121, 0), xattr(13, 1)],
        ),
        (
            List::Flocks(Ino(12)),
            vec![flock(12, 1), flock(12, 2), flock(12, 30)],
            vec![flock(121, 1), flock(1, 1)],
        ),
        (
            List::Plocks(Ino(12)),
            vec![plock(12, 1), plock(12, 2), plock(12, 30)],
            vec![plock(121, 1), plock(1, 1)],
        ),
        (
            List::Chunks(Ino(12), 0, 20),
            vec![chunk(12, 0), chunk(12, 7), chunk(12, 19)],
            vec![chunk(12, 20), chunk(121, 0), chunk(1, 2)],
        ),
        (
            List::Lanes(12),
            (0..5).map(|lane| Row::Writer(12, lane, 9)).collect(),
            vec![Row::Writer(121, 0, 1)],
        ),
    ];
    let read_only: Vec<(List, Vec<Row>, Vec<Row>)> = vec![
        (
            List::Sustained(12),
            vec![sustained(12, 1), sustained(12, (1 << 53) + 1)],
            vec![sustained(1, 1), sustained(121, 2)],
        ),
        (
            List::LocksOf(12),
            vec![flock(50, 12), flock(51, 12), plock(50, 12), plock(52, 12)],
            vec![flock(50, 1), plock(50, 121)],
        ),
        (
            List::Extras(Extra::Member),
            [0, 1, 12, (1 << 53) + 1, u64::MAX].map(|number| extra(Extra::Member, number)).to_vec(),
            [Extra::GroupVersion, Extra::GroupKeys, Extra::Report].map(|kind| extra(kind, 12)).to_vec(),
        ),
        (List::Extras(Extra::Report), vec![extra(Extra::Report, 2)], vec![extra(Extra::Member, 2)]),
    ];
    for (list, members, neighbours) in &cases {
        let store = Store::new(factory);
        assert_eq!(store.all(*list), [], "{list:?} of nothing");
        store.insert(members.iter().chain(neighbours).cloned().collect());
        assert_eq!(store.all(*list), sorted(members.clone()), "{list:?}");
        store.write(vec![Write::Clear(*list)]);
        assert_eq!(store.all(*list), [], "{list:?} after it was cleared");
        for row in neighbours {
            store.assert_row(&row.key(), Some(row));
        }
        store.write(vec![Write::Clear(*list)]);
        store.insert(members.clone());
        assert_eq!(store.all(*list), sorted(members.clone()), "{list:?} filled again");
        store.write(vec![Write::Delete(members[0].key())]);
        assert_eq!(store.all(*list), sorted(members[1..].to_vec()), "{list:?} without its first");
    }
    for (list, members, neighbours) in &read_only {
        let store = Store::new(factory);
        assert_eq!(store.all(*list), [], "{list:?} of nothing");
        store.insert(members.iter().chain(neighbours).cloned().collect());
        assert_eq!(store.all(*list), sorted(members.clone()), "{list:?}");
        store.write(vec![Write::Delete(members[0].key())]);
        assert_eq!(store.all(*list), sorted(members[1..].to_vec()), "{list:?} without its first");
    }
}

/// Only the chunks in the range go, even if they are thousands.
pub fn a_range_of_chunks_is_cleared(factory: &Factory<'_>) {
    let chunk = |index| Row::Chunk(Ino(9), index, vec![Slice::whole(0, 5, 6)]);
    let store = Store::with(factory, (0..2500).map(chunk).collect());
    store.write(vec![Write::Clear(List::Chunks(Ino(9), 3, 2498))]);
    let left: Vec<Row> = [0, 1, 2, 2498, 2499].into_iter().map(chunk).collect();
    assert_eq!(store.all(List::Chunks(Ino(9), 0, 3000)), left);
    assert_eq!(store.all(List::Chunks(Ino(9), 2, 2499)), [chunk(2), chunk(2498)]);
    store.write(vec![Write::Clear(List::Chunks(Ino(9), 5, 5))]);
    assert_eq!(store.all(List::Chunks(Ino(9), 0, 3000)), left, "an empty range clears nothing");
}

/// Entries and links change together, as operations do it: then stored and derived parents agree.
pub fn parents_follow_the_entries(factory: &Factory<'_>) {
    let (child, first, second) = (Ino(9), Ino(2), Ino(3));
    let shared = Row::Node(child, Attr { parent: Ino::NONE, nlink: 3, ..sample::file_attr() });
    let store = Store::with(factory, vec![dir_row(2), dir_row(3), shared, file_row(10)]);
    let parents = |store: &Store| {
        let rows = store.all(List::Parents(child)).into_iter();
        rows.filter(|row| !matches!(row, Row::Parents(_, _, 0))).collect::<Vec<_>>()
    };
    assert_eq!(parents(&store), []);
    store.write(vec![
        Write::Insert(entry_row(2, &name("a"), 9)),
        Write::Insert(entry_row(2, &name("b"), 9)),
        Write::Insert(entry_row(3, &name("c"), 9)),
        Write::Insert(entry_row(3, &name("d"), 10)),
        Write::Link(child, first, 2),
        Write::Link(child, second, 1),
    ]);
    let both = [Row::Parents(child, first, 2), Row::Parents(child, second, 1)];
    assert_eq!(parents(&store), both);
    store.assert_row(&Key::Parents(child, first), Some(&both[0]));
    store.write(vec![
        Write::Delete(Key::Entry(first, name("a"))),
        Write::Delete(Key::Entry(second, name("c"))),
        Write::Link(child, first, -1),
        Write::Link(child, second, -1),
    ]);
    assert_eq!(parents(&store), [Row::Parents(child, first, 1)]);
    store.write(vec![
        Write::Delete(Key::Entry(first, name("b"))),
        Write::Delete(node(9)),
        Write::Clear(List::Parents(child)),
    ]);
    assert_eq!(parents(&store), []);
    // Cleared and linked by one commit: only the new link counts.
    store.write(vec![
        Write::Insert(entry_row(2, &name("a"), 9)),
        Write::Insert(entry_row(3, &name("c"), 9)),
        Write::Link(child, first, 1),
        Write::Link(child, second, 1),
    ]);
    store.write(vec![
        Write::Clear(List::Parents(child)),
        Write::Delete(Key::Entry(first, name("a"))),
        Write::Delete(Key::Entry(second, name("c"))),
        Write::Insert(entry_row(3, &name("e"), 9)),
        Write::Link(child, second, 1),
    ]);
    assert_eq!(parents(&store), [Row::Parents(child, second, 1)]);
}
