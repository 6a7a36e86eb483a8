//! Records that are loaded in bulk equal records that are committed one by one.

use std::collections::BTreeMap;

use sluice_meta::{
    engine::{EngineError, Read, Scan, Write},
    schema::{Key, Row},
};
use sluice_types::{Ino, Slice};

use super::{
    Factory,
    sample::{dir_row, entry_row, file_row, samples},
    scans::belongs,
    store::{Store, name, names, sorted},
};

/// What is loaded. Locks are not.
fn loadable() -> Vec<Row> {
    let is_lock = |row: &Row| matches!(row, Row::Flock(..) | Row::Plock(..));
    samples().into_iter().map(|sample| sample.first).filter(|row| !is_lock(row)).collect()
}

/// Every kind, by each way to read it.
pub fn what_is_loaded_is_read_back(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let rows = loadable();
    store.engine.load(&rows).expect("load");
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
    for scan in Scan::ALL {
        let wanted = sorted(rows.iter().filter(|row| belongs(scan, row)).cloned().collect());
        assert_eq!(store.scan(scan), wanted, "{scan:?}");
    }
    store.engine.load(&[]).expect("nothing");
    // Loaded records are like any others.
    store.write(rows.iter().map(|row| Write::Delete(row.key())).collect());
    for row in &rows {
        store.assert_row(&row.key(), None);
    }
}

/// A directory of many files, each with a chunk, as several threads load it.
pub fn many_are_loaded_by_several_at_once(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let count = 6000;
    let file = |(at, called): (usize, &sluice_types::Name)| {
        let ino = 100 + at as u64;
        let slices = [Slice::whole(0, ino, 9), Slice::whole(9, ino + 10_000, 7)];
        let slices = slices[..=at % 2].to_vec();
        let refs = slices.clone().into_iter().map(|slice| Row::SliceRef(slice.id, slice.size, 1));
        let rows = [file_row(ino), entry_row(2, called, ino), Row::Chunk(Ino(ino), 0, slices)];
        rows.into_iter().chain(refs).collect::<Vec<Row>>()
    };
    let called = names("a file with a name ", count);
    let mut rows: Vec<Row> = called.iter().enumerate().flat_map(file).collect();
    rows.extend([dir_row(2), Row::Symlink(Ino(3), "a'\\\"\n\0".into())]);
    std::thread::scope(|scope| {
        for part in rows.chunks(4000) {
            let engine = &store.engine;
            scope.spawn(move || engine.load(part).expect("load"));
        }
    });
    for scan in Scan::ALL {
        // A reference of one may be what no record says.
        let counts = |row: &&Row| belongs(scan, row) && !matches!(row, Row::SliceRef(..));
        let wanted = sorted(rows.iter().filter(counts).cloned().collect());
        let found = store.scan_with(scan, 1000, |_| {}).into_values();
        let found: Vec<Row> = found.filter(|row| counts(&row)).collect();
        assert!(found == wanted, "{scan:?}: {} of {} records", found.len(), wanted.len());
    }
    let reads: Vec<Read> = rows[..600].iter().map(|row| Read::Get(row.key())).collect();
    store.read(&reads);
    store.write(vec![Write::Refer(100, 9, 1), Write::Append(Ino(100), 0, vec![Slice::whole(0, 99_999, 1)])]);
    store.assert_row(&Key::SliceRef(100, 9), Some(&Row::SliceRef(100, 9, 2)));
    store.assert_row(
        &Key::Chunk(Ino(100), 0),
        Some(&Row::Chunk(Ino(100), 0, vec![Slice::whole(0, 100, 9), Slice::whole(0, 99_999, 1)])),
    );
}

/// More bytes than a server takes in one request.
pub fn large_values_are_loaded(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let value = |at: u8| vec![at; 60_000].into();
    let rows: Vec<Row> =
        (1..=150).map(|at| Row::Xattr(Ino(at.into()), name("user.large"), value(at))).collect();
    store.engine.load(&rows).expect("load");
    for row in &rows {
        store.assert_row(&row.key(), Some(row));
    }
}

/// A load that is repeated after its answer was lost changes nothing.
pub fn what_is_loaded_twice_is_there_once(factory: &Factory<'_>) {
    let store = Store::new(factory);
    let mut rows = loadable();
    let slices = vec![Slice::whole(0, 5, 9), Slice::whole(9, 6, 7)];
    rows.push(Row::Chunk(Ino(4000), 7, slices));
    rows.push(entry_row(2, &name("again"), 4000));
    store.engine.load(&rows).expect("load");
    match store.engine.load(&rows) {
        Ok(()) | Err(EngineError::Conflict(_)) => {}
        Err(error) => panic!("loaded again: {error}"),
    }
    let wanted: BTreeMap<Key, Row> = rows.iter().map(|row| (row.key(), row.clone())).collect();
    for (key, row) in wanted {
        store.assert_row(&key, Some(&row));
    }
}
