//! Collections too large for one answer.

use std::collections::BTreeSet;

use sluice_meta::{
    engine::{Engine, Scan, Write},
    schema::{Key, Row},
};
use sluice_types::{Ino, Slice};

use super::{
    Factory,
    sample::{dir_row, entry_row, file_row, samples},
    store::{Store, name, names, sorted},
};

/// Whether a record is one of a scan.
pub(super) fn belongs(scan: Scan, row: &Row) -> bool {
    matches!(
        (scan, row),
        (Scan::Nodes, Row::Node(..))
            | (Scan::AllEntries, Row::Entry(..))
            | (Scan::Chunks, Row::Chunk(..))
            | (Scan::Symlinks, Row::Symlink(..))
            | (Scan::Xattrs, Row::Xattr(..))
            | (Scan::SliceRefs, Row::SliceRef(..))
            | (Scan::DelFiles, Row::DelFile(..))
            | (Scan::DelSlices, Row::DelSlices(..))
            | (Scan::Sessions, Row::Session(..))
            | (Scan::Sustained, Row::Sustained(..))
            | (Scan::Detached, Row::Detached(..))
            | (Scan::Acls, Row::Acl(..))
            | (Scan::DirStats, Row::DirStat(..))
            | (Scan::Quotas, Row::Quota(..))
            | (Scan::Writers, Row::Writer(..))
    )
}

/// Every scan of an empty store and of one that holds every kind.
pub fn each_scan_returns_its_records_and_no_others(factory: &Factory<'_>) {
    let store = Store::new(factory);
    for scan in Scan::ALL {
        assert_eq!(store.scan(scan), [], "{scan:?} of nothing");
    }
    let all: Vec<Row> = samples().into_iter().map(|sample| sample.first).collect();
    store.insert(all.clone());
    for scan in Scan::ALL {
        let wanted = sorted(all.iter().filter(|row| belongs(scan, row)).cloned().collect());
        assert!(!wanted.is_empty(), "{scan:?} has no sample");
        assert_eq!(store.scan(scan), wanted, "{scan:?}");
        let small = store.scan_with(scan, 1, |_| {});
        assert_eq!(small.into_values().collect::<Vec<_>>(), wanted, "{scan:?} one by one");
    }
}

/// Everything about inodes in one scan, where the engine keeps it together.
pub fn a_mixed_scan_returns_all_about_inodes(factory: &Factory<'_>) {
    let store = Store::new(factory);
    if !store.engine.is_mixed() {
        return;
    }
    assert_eq!(store.scan(Scan::Inodes), []);
    let mut all: Vec<Row> = samples().into_iter().map(|sample| sample.first).collect();
    for (at, called) in names("long enough to leave small encodings behind ", 1200).iter().enumerate() {
        let n = at as u64;
        // Two directories of many, and many of one.
        let dir = if n % 3 < 2 { 2 + n % 3 } else { 50_000 + n };
        all.extend([file_row(1000 + n), entry_row(dir, called, 1000 + n)]);
        all.push(Row::Chunk(Ino(1000 + n), 0, vec![Slice::whole(0, n + 1, 9), Slice::whole(9, n + 5000, 9)]));
        all.push(Row::Xattr(Ino(1000 + n % 50), called.clone(), called.to_vec().into()));
        all.push(Row::Symlink(Ino(30_000 + n), called.to_vec().into()));
        all.push(Row::Parents(Ino(1000 + n % 70), Ino(40_000 + n), 2));
    }
    store.insert(all.clone());
    let is_about = |row: &&Row| {
        let kinds = [Scan::Nodes, Scan::AllEntries, Scan::Chunks, Scan::Symlinks, Scan::Xattrs];
        matches!(row, Row::Parents(..)) || kinds.into_iter().any(|scan| belongs(scan, row))
    };
    let wanted = sorted(all.iter().filter(is_about).cloned().collect());
    for limit in [50, 1000, 100_000] {
        let found: Vec<Row> = store.scan_with(Scan::Inodes, limit, |_| {}).into_values().collect();
        assert!(found == wanted, "by {limit}: {} of {} records", found.len(), wanted.len());
        let mut parts = sorted(in_parts(&*store.engine, limit));
        parts.dedup();
        assert!(parts == wanted, "in parts by {limit}: {} of {} records", parts.len(), wanted.len());
    }
}

/// Everything about inodes, in the parts into which the engine divides it.
fn in_parts(engine: &dyn Engine, limit: usize) -> Vec<Row> {
    let (mut rows, mut cursors) = (Vec::new(), vec![None]);
    while let Some(from) = cursors.pop() {
        let page = engine.scan(Scan::Inodes, from.as_ref(), limit).expect("scan").sound().expect("sound");
        rows.extend(page.rows);
        if let Some(next) = page.next {
            let (parts, rest) = engine.divide(next);
            cursors.extend(parts.into_iter().chain(rest).map(Some));
        }
    }
    rows
}

/// Two thousand records of each larger kind, in pages of several sizes.
pub fn pages_join_without_a_gap(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let count = 2000;
    let mut all: Vec<Row> = Vec::new();
    for (at, called) in names("long enough to leave small encodings behind ", count).iter().enumerate() {
        let n = at as u64;
        all.push(file_row(100 + n));
        all.push(entry_row(2 + n % 3, called, 100 + n));
        all.push(Row::Chunk(Ino(100 + n % 50), (n / 50) as u32, vec![Slice::whole(0, n + 1, 9)]));
        all.push(Row::Symlink(Ino(30_000 + n), called.to_vec().into()));
        all.push(Row::Xattr(Ino(100 + n % 50), called.clone(), called.to_vec().into()));
        all.push(Row::SliceRef(n + 1, 9, 2));
        all.push(Row::DelFile(Ino(9000 + n), n, 1_700_000_000 + n as i64));
        all.push(Row::Sustained(n % 4, Ino(20_000 + n)));
    }
    store.insert(all.clone());
    for scan in Scan::ALL {
        let wanted = sorted(all.iter().filter(|row| belongs(scan, row)).cloned().collect());
        for limit in [77, 1000, 100_000] {
            let found: Vec<Row> = store.scan_with(scan, limit, |_| {}).into_values().collect();
            assert!(found == wanted, "{scan:?} by {limit}: {} of {} records", found.len(), wanted.len());
        }
    }
    for dir in 2..5 {
        let scan = Scan::Entries { dir: Ino(dir), nodes: false };
        let inside = |row: &&Row| matches!(row, Row::Entry(of, ..) if *of == Ino(dir));
        let wanted = sorted(all.iter().filter(inside).cloned().collect());
        for limit in [1, 77, 1000] {
            let found: Vec<Row> = store.scan_with(scan, limit, |_| {}).into_values().collect();
            assert!(found == wanted, "#{dir} by {limit}: {} of {} entries", found.len(), wanted.len());
        }
    }
}

/// Each entry is followed by its node, if there is one.
pub fn entries_with_nodes(factory: &Factory<'_>) {
    let called = names("f", 700);
    let mut rows = vec![dir_row(2), dir_row(3), entry_row(3, &name("elsewhere"), 100)];
    for (at, name) in called.iter().enumerate() {
        let ino = 100 + at as u64;
        rows.push(entry_row(2, name, ino));
        if at % 10 != 0 {
            rows.push(file_row(ino));
        }
    }
    let store = Store::with(factory, rows);
    let scan = Scan::Entries { dir: Ino(2), nodes: true };
    let mut cursor = None;
    let mut seen = Vec::new();
    loop {
        let page = store.engine.scan(scan, cursor.as_ref(), 50).expect("scan");
        let mut rows = page.rows.into_iter().peekable();
        while let Some(row) = rows.next() {
            let Row::Entry(dir, name, entry) = row else { panic!("wanted an entry, got {row:?}") };
            assert_eq!(dir, Ino(2));
            let node = rows.next_if(|row| matches!(row, Row::Node(..)));
            let wanted = (entry.ino.0 % 10 != 0).then(|| file_row(entry.ino.0));
            assert_eq!(node, wanted, "the node of {name:?}");
            seen.push(name);
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if store.engine.sorts_names() {
        assert!(seen.is_sorted(), "names are not sorted");
    }
    assert_eq!(BTreeSet::from_iter(seen), called.into_iter().collect());
    let nothing = store.engine.scan(Scan::Entries { dir: Ino(404), nodes: true }, None, 50).expect("scan");
    assert!(nothing.rows.is_empty());
}

/// Between the pages others unlink what was and what was not yet seen, and create more.
pub fn entries_that_stay_appear_while_others_come_and_go(factory: &Factory<'_>) {
    let staying = names("stays with a name that is not short ", 1500);
    let leaving = names("leaves with a name that is not short ", 1500);
    let rows = staying.iter().chain(&leaving).map(|name| entry_row(2, name, 9)).collect();
    for nodes in [false, true] {
        let store = Store::with(factory, Vec::clone(&rows));
        let mut gone = leaving.iter();
        let found = store.scan_with(Scan::Entries { dir: Ino(2), nodes }, 100, |page| {
            let mut writes: Vec<Write> =
                gone.by_ref().take(60).map(|name| Write::Delete(Key::Entry(Ino(2), name.clone()))).collect();
            if page < 60 {
                let fresh = names(&format!("comes {page} with a name that is not short "), 70);
                writes.extend(fresh.iter().map(|name| Write::Insert(entry_row(2, name, 9))));
            }
            store.write(writes);
        });
        let missing: Vec<_> =
            staying.iter().filter(|name| !found.contains_key(&Key::Entry(Ino(2), (*name).clone()))).collect();
        assert!(missing.is_empty(), "{} entries that were always there: {missing:.200?}", missing.len());
    }
}

/// A large directory comes in pages of bounded size.
pub fn a_directory_of_a_hundred_thousand(factory: &Factory<'_>) {
    let count = 100_000;
    let called = names("file number ", count);
    let store = Store::new(factory);
    for part in called.chunks(2000) {
        store.write(part.iter().map(|name| Write::Insert(entry_row(2, name, 9))).collect());
    }
    let scan = Scan::Entries { dir: Ino(2), nodes: false };
    let mut cursor = None;
    let mut seen = BTreeSet::new();
    let mut largest = 0;
    loop {
        let page = store.engine.scan(scan, cursor.as_ref(), 1000).expect("scan");
        largest = largest.max(page.rows.len());
        seen.extend(page.rows.iter().map(Row::key));
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(seen.len(), count);
    assert!(largest <= 10_000, "a page of about 1000 has {largest} records");
}
