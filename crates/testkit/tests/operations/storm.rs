//! Many threads in two clients change one small tree over an engine that fails: whatever happens, it stays a tree.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    thread,
};

use sluice_meta::{
    Interrupt, Meta, Options,
    mem::MemEngine,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        unlink::Unlink,
    },
    schema::{Counter, Key, Row},
};
use sluice_testkit::wrap::{Chances, Faulty};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Rng};

use crate::{at, create, volume};

/// Directories that are there from the beginning, and may move or go.
const DIRS: u64 = 6;

fn step(rng: &mut Rng, meta: &Meta, ino: u64) -> FsResult<()> {
    let never = Interrupt::never();
    let caller = Caller::client();
    let mut dir = || if rng.below(4) == 0 { 1 } else { 10 + rng.below(DIRS) };
    let (from, to) = (dir(), dir());
    let mut name = || format!("n{}", rng.below(6));
    let (old, new) = (name(), name());
    match rng.below(10) {
        0..4 => {
            let kind = if rng.below(3) == 0 { FileType::Dir } else { FileType::File };
            meta.run(create(from, &old, ino, kind), &never).map(drop)
        }
        4 => meta
            .run(Link { ino: Ino(ino.saturating_sub(rng.below(50))), at: at(to, &new), caller }, &never)
            .map(drop),
        5 => meta.run(Unlink { at: at(from, &old), skip_trash: false, caller }, &never).map(drop),
        6 => meta.run(Rmdir { at: at(from, &old), hint: None, skip_trash: false, caller }, &never).map(drop),
        other => {
            let mode = if other == 9 { RenameMode::Exchange } else { RenameMode::Replace };
            // The first directories move among each other too: that is where cycles would come from.
            let first = |dir: u64| format!("d{dir}");
            let (old, new) = if rng.below(2) == 0 { (first(10 + rng.below(DIRS)), new) } else { (old, new) };
            meta.run(Rename { from: at(from, &old), to: at(to, &new), mode, caller }, &never).map(drop)
        }
    }
}

/// Every node is reached from the root exactly as often as its links say, and parents and counters agree.
fn assert_tree(engine: &MemEngine, story: &str) {
    let records = engine.records();
    let mut names: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
    let mut children: BTreeMap<Ino, Vec<Ino>> = BTreeMap::new();
    for row in records.values() {
        if let Row::Entry(dir, _, entry) = row {
            names.entry(entry.ino).or_default().push(*dir);
            children.entry(*dir).or_default().push(entry.ino);
        }
    }
    let (mut reached, mut queue) = (BTreeSet::new(), vec![Ino::ROOT]);
    while let Some(ino) = queue.pop() {
        if reached.insert(ino) {
            queue.extend(children.get(&ino).into_iter().flatten());
        }
    }
    let mut nodes = 0;
    for row in records.values() {
        let Row::Node(ino, attr) = row else { continue };
        nodes += 1;
        assert!(reached.contains(ino), "{ino} is not in the tree: {story}");
        let parents = names.get(ino).cloned().unwrap_or_default();
        if attr.is_dir() {
            let is_dir =
                |ino: &&Ino| matches!(records.get(&Key::Node(**ino)), Some(Row::Node(_, a)) if a.is_dir());
            let below = children.get(ino).into_iter().flatten().filter(is_dir).count();
            assert_eq!(attr.nlink as usize, 2 + below, "nlink of directory {ino}: {story}");
            assert!(*ino == Ino::ROOT || parents == [attr.parent], "parent of directory {ino}: {story}");
        } else {
            assert_eq!(attr.nlink as usize, parents.len(), "nlink of {ino}: {story}");
            let single = parents == [attr.parent];
            assert!(single || attr.parent == Ino::NONE, "parent of {ino}: {story}");
            if attr.parent == Ino::NONE {
                for dir in &parents {
                    let count = parents.iter().filter(|other| *other == dir).count() as i64;
                    let stored = records.get(&Key::Parents(*ino, *dir));
                    assert_eq!(stored, Some(&Row::Parents(*ino, *dir, count)), "parents of {ino}: {story}");
                }
            }
        }
    }
    assert_eq!(nodes, reached.len(), "entries without nodes: {story}");
    let total = match records.get(&Key::Counter(Counter::TotalInodes)) {
        Some(Row::Counter(_, n)) => *n,
        _ => 0,
    };
    assert_eq!(total, nodes as i64 - 1, "totalInodes: {story}");
}

fn storm(seed: u64) {
    let engine = MemEngine::new();
    let quiet = volume(Arc::new(engine.clone()));
    for ino in 10..10 + DIRS {
        quiet.run(create(1, &format!("d{ino}"), ino, FileType::Dir), &Interrupt::never()).unwrap();
    }
    let chances = Chances { read: 5, unavailable: 5, conflict: 50, lost_applied: 20, lost: 20, late: 20 };
    let faulty = Faulty::new(Arc::new(engine.clone()), seed, Chances::default());
    let clients: Vec<Arc<Meta>> =
        (0..2).map(|_| Meta::open(Arc::new(faulty.clone()), Options::default()).expect("open")).collect();
    faulty.set(chances);
    let threads: Vec<_> = (0..6)
        .map(|thread| {
            let meta = clients[thread as usize % clients.len()].clone();
            thread::spawn(move || {
                let mut rng = Rng::seeded(seed * 100 + thread);
                let mut done = 0;
                for op in 0..200 {
                    match step(&mut rng, &meta, 1000 * (thread + 1) + op) {
                        Ok(()) => done += 1,
                        Err(FsError::Io(story)) => panic!("seed {seed}: {story}"),
                        Err(_) => {}
                    }
                }
                done
            })
        })
        .collect();
    let done: u64 = threads.into_iter().map(|thread| thread.join().unwrap()).sum();
    assert!(done > 50, "seed {seed}: only {done} operations succeeded");
    assert_tree(&engine, &format!("seed {seed}, {:?}", faulty.injected()));
}

#[test]
fn a_storm_over_a_failing_engine_leaves_a_tree() {
    for seed in 0..30 {
        storm(seed);
    }
}
