//! A snapshot shows one state, whatever is committed after it.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{Found, List, Read, Scan, Snapshot, Write},
    schema::{Counter, Key, Row},
};
use sluice_types::{Ino, Slice};

use super::{
    Factory,
    sample::{dir_row, entry_row, file_row},
    store::{Store, name, names, node},
};

const SCANS: [Scan; 4] =
    [Scan::Nodes, Scan::AllEntries, Scan::Chunks, Scan::Entries { dir: Ino(2), nodes: true }];

fn rows(snapshot: &dyn Snapshot, scan: Scan) -> BTreeMap<Key, Row> {
    let (mut rows, mut from) = (BTreeMap::new(), None);
    loop {
        let page = snapshot.scan(scan, from.as_ref(), 70).expect("scan");
        rows.extend(page.rows.into_iter().map(|row| (row.key(), row)));
        from = page.next;
        if from.is_none() {
            return rows;
        }
    }
}

/// What is inserted, replaced, moved, added to and removed after it is not seen, by several threads
/// and by reads and scans alike. An engine without snapshots says so.
pub fn what_is_committed_later_is_not_seen(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let called = names("a file with a name ", 300);
    let mut all = vec![dir_row(2), dir_row(3), Row::Counter(Counter::TotalInodes, 302)];
    for (at, name) in called.iter().enumerate() {
        let ino = 100 + at as u64;
        all.extend([file_row(ino), entry_row(2, name, ino)]);
        all.push(Row::Chunk(Ino(ino), 0, vec![Slice::whole(0, ino, 9)]));
    }
    store.insert(all);
    let Some(snapshot) = store.engine.snapshot(3).expect("a snapshot") else { return };
    let snapshot = &*snapshot;
    let reads = [
        Read::Get(node(100)),
        Read::Get(node(5000)),
        Read::Get(Key::Counter(Counter::TotalInodes)),
        Read::Follow(Ino(2), called[7].clone()),
        Read::Follow(Ino(3), called[0].clone()),
        Read::All(List::Chunks(Ino(107), 0, 9)),
    ];
    // Nothing was read of it before the first commit, too.
    store.write(vec![Write::Delete(node(399)), Write::Insert(file_row(5000))]);
    let first = snapshot.read(&reads).expect("read");
    assert_eq!(first[0], Found::Row(Some(file_row(100))));
    assert_eq!(first[1], Found::Row(None));
    assert_eq!(first[2], Found::Row(Some(Row::Counter(Counter::TotalInodes, 302))));
    assert_eq!(first[3], Found::Rows(vec![entry_row(2, &called[7], 107), file_row(107)]));
    assert_eq!(first[4], Found::Rows(Vec::new()));
    let seen = SCANS.map(|scan| rows(snapshot, scan));
    assert_eq!(seen.each_ref().map(BTreeMap::len), [302, 300, 300, 600]);
    // All move to the other directory, and what they hold goes.
    for (at, name) in called.iter().enumerate() {
        let ino = 100 + at as u64;
        store.write(vec![
            Write::Delete(Key::Entry(Ino(2), name.clone())),
            Write::Insert(entry_row(3, name, ino)),
            Write::Append(Ino(ino), 0, vec![Slice::whole(0, 9000 + ino, 9)]),
            Write::Bump { ino: Ino(2), nlink: 1, time: None },
            Write::Count(Counter::TotalInodes, 1),
        ]);
    }
    store.write(vec![Write::Insert(entry_row(2, &name("later"), 5000))]);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                assert!(SCANS.map(|scan| rows(snapshot, scan)) == seen, "a scan sees later commits");
                assert_eq!(snapshot.read(&reads).expect("read"), first);
            });
        }
    });
    // It is at no commit's way, and others see what is there.
    let now = store.engine.snapshot(1).expect("a snapshot").expect("again");
    assert_eq!(rows(&*now, SCANS[3]).len(), 2);
}
