//! Merging preserves the result: the writes of a batch as separate commits, and their merge as one
//! commit, produce the same records.

use std::collections::BTreeMap;

use bytes::Bytes;
use sluice_types::{Attr, FileType, Ino, Name, Rng, Slice, Time};

use super::Overlay;
use crate::{
    engine::{Commit, Engine, Found, List, Read, Write},
    mem::MemEngine,
    schema::{Counter, DirStat, Entry, FlockKind, Key, LockOwner, PlockRange, Quota, QuotaKey, Row},
};

const INOS: u64 = 3;

fn name(n: u64) -> Name {
    Name::stored(format!("n{n}").as_bytes())
}

/// A random record, or key if one looks at nothing else.
fn row(rng: &mut Rng) -> Row {
    let ino = Ino(1 + rng.below(INOS));
    let value = rng.below(1000);
    let owner = LockOwner { sid: 1 + rng.below(2), owner: rng.below(2) };
    match rng.below(14) {
        0 | 1 => Row::Node(ino, Attr { nlink: 50 + value as u32, ..attr(value) }),
        2 | 3 => Row::Entry(ino, name(rng.below(3)), Entry { kind: FileType::File, ino: Ino(value) }),
        4 => Row::Chunk(ino, rng.below(3) as u32, vec![slice(rng)]),
        5 => Row::Xattr(ino, name(rng.below(3)), Bytes::from(vec![value as u8])),
        6 => Row::Counter(counter(rng), value as i64),
        7 => Row::SliceRef(1 + rng.below(2), 1, value as i64 + 2),
        8 => Row::DirStat(ino, stat(rng)),
        9 => Row::Quota(quota(rng, ino), Quota { used_space: value as i64, ..Quota::default() }),
        10 => Row::Flock(ino, owner, FlockKind::Read),
        11 => Row::Plock(ino, owner, vec![PlockRange { write: true, pid: value as u32, start: 0, end: 9 }]),
        12 => Row::Parents(ino, Ino(1 + rng.below(INOS)), 1 + value as i64),
        _ => Row::Sustained(1 + rng.below(2), ino),
    }
}

fn attr(value: u64) -> Attr {
    Attr::new(FileType::Dir, 0o755, value as u32, 0, Ino(1), Time { sec: value as i64, nsec: 0 })
}

fn slice(rng: &mut Rng) -> Slice {
    Slice::whole(0, 1 + rng.below(1000), 1)
}

fn stat(rng: &mut Rng) -> DirStat {
    DirStat { length: rng.below(9) as i64 - 4, space: rng.below(9) as i64, inodes: rng.below(3) as i64 - 1 }
}

fn quota(rng: &mut Rng, ino: Ino) -> QuotaKey {
    if rng.below(2) == 0 { QuotaKey::Dir(ino) } else { QuotaKey::User(ino.0 as u32) }
}

fn counter(rng: &mut Rng) -> Counter {
    [Counter::UsedSpace, Counter::TotalInodes][rng.below(2) as usize]
}

fn list(rng: &mut Rng) -> List {
    let ino = Ino(1 + rng.below(INOS));
    match rng.below(5) {
        0 => List::Xattrs(ino),
        1 => List::Parents(ino),
        2 => List::Flocks(ino),
        3 => List::Plocks(ino),
        _ => List::Chunks(ino, rng.below(2) as u32, 1 + rng.below(3) as u32),
    }
}

/// A random write that succeeds on `engine`.
fn write(rng: &mut Rng, engine: &MemEngine) -> Write {
    let by = rng.below(9) as i64 - 4;
    let ino = Ino(1 + rng.below(INOS));
    match rng.below(16) {
        0..5 => {
            let row = row(rng);
            if get(engine, &row.key()).is_some() { Write::Put(row) } else { Write::Insert(row) }
        }
        5 => Write::Put(row(rng)),
        6..9 => {
            let key = row(rng).key();
            if get(engine, &key).is_some() { Write::Delete(key) } else { Write::Discard(key) }
        }
        9 => Write::Clear(list(rng)),
        10 if get(engine, &Key::Node(ino)).is_some() => {
            let time = (by > 0).then(|| Time { sec: rng.below(1000) as i64, nsec: rng.below(3) as u32 });
            Write::Bump { ino, nlink: by as i32, time }
        }
        10 | 11 => Write::Append(ino, rng.below(3) as u32, vec![slice(rng), slice(rng)]),
        12 => Write::Count(counter(rng), by),
        13 => Write::Refer(1 + rng.below(2), 1, by),
        14 => Write::Link(ino, Ino(1 + rng.below(INOS)), by),
        _ if by > 0 => Write::Use(ino, stat(rng)),
        _ => Write::Charge(quota(rng, ino), by, -by),
    }
}

fn get(engine: &MemEngine, key: &Key) -> Option<Row> {
    match engine.read(&[Read::Get(key.clone())]).unwrap().remove(0) {
        Found::Row(row) => row,
        other => panic!("{other:?}"),
    }
}

fn commit(engine: &MemEngine, writes: Vec<Write>) -> Result<(), crate::engine::EngineError> {
    engine.commit(&Commit { writes, ..Commit::default() })
}

/// All records, but for those that say no more than their absence does.
fn records(engine: &MemEngine) -> BTreeMap<Key, Row> {
    let mut rows = engine.records();
    rows.retain(|_, row| !matches!(row, Row::Parents(_, _, 0) | Row::Counter(_, 0) | Row::SliceRef(_, _, 1)));
    rows.retain(|_, row| !matches!(row, Row::Quota(QuotaKey::User(_), Quota::UNLIMITED)));
    rows
}

fn check(seed: u64) {
    let rng = &mut Rng::seeded(seed);
    let (single, folded) = (MemEngine::new(), MemEngine::new());
    for _ in 0..rng.below(20) {
        let row = row(rng);
        commit(&single, vec![Write::Put(row.clone())]).unwrap();
        commit(&folded, vec![Write::Put(row)]).unwrap();
    }
    let before = records(&folded);
    let mut overlay = Overlay::default();
    let mut log = Vec::new();
    for _ in 0..=rng.below(12) {
        let write = write(rng, &single);
        log.push(write.clone());
        commit(&single, vec![write.clone()]).unwrap();
        overlay.apply(write, |key| before.contains_key(key));
    }
    let fold = overlay.into_writes();
    let lines = |rows: &[Write]| rows.iter().map(|row| format!("  {row:?}")).collect::<Vec<_>>().join("\n");
    let context = || {
        let touched = before.values().map(|row| format!("  {row:?}")).collect::<Vec<_>>().join("\n");
        format!("seed {seed}\nbefore\n{touched}writes\n{}fold\n{}", lines(&log), lines(&fold))
    };
    if let Err(error) = commit(&folded, fold.clone()) {
        panic!("the fold fails: {error}\n{}", context());
    }
    let (single, folded) = (records(&single), records(&folded));
    for key in single.keys().chain(folded.keys()) {
        let (one, other) = (single.get(key), folded.get(key));
        assert!(one == other, "one by one {one:?}\nfolded {other:?}\n{}", context());
    }
}

#[test]
fn a_fold_leaves_what_its_writes_leave() {
    for seed in 0..20_000 {
        check(seed);
    }
}
