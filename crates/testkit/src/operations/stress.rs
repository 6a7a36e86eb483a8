//! Many threads in two clients change one small tree, also over an engine that fails: the result is
//! always a tree.

use std::{sync::Arc, thread};

use sluice_meta::{
    Interrupt, Meta,
    engine::Engine,
    ops::{
        link::Link,
        rename::{Rename, RenameMode},
        rmdir::Rmdir,
        truncate::Truncate,
        unlink::Unlink,
        write::Write,
    },
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Rng, Slice};

use super::{
    clients::{Factory, NOW, at, create, options, seeds},
    state::State,
};
use crate::wrap::{Chances, Faulty};

/// Directories that are there from the beginning, and may move or go.
const DIRS: u64 = 6;
const THREADS: u64 = 6;
const OPS: u64 = 150;

const CHANCES: Chances =
    Chances { read: 5, unavailable: 5, conflict: 50, lost_applied: 20, lost: 20, late: 20 };

fn step(rng: &mut Rng, meta: &Meta, ino: u64) -> FsResult<()> {
    let never = Interrupt::never();
    let caller = Caller::client();
    let mut dir = || if rng.below(4) == 0 { 1 } else { 10 + rng.below(DIRS) };
    let (from, to) = (dir(), dir());
    let mut name = || format!("n{}", rng.below(6));
    let (old, new) = (name(), name());
    let recent = Ino(ino.saturating_sub(rng.below(50)));
    match rng.below(13) {
        0..4 => {
            let kind = if rng.below(3) == 0 { FileType::Dir } else { FileType::File };
            meta.run(create(from, &old, ino, kind), &never).map(drop)
        }
        4 => meta.run(Link { ino: recent, at: at(to, &new), caller }, &never).map(drop),
        5 => meta.run(Unlink { at: at(from, &old), only: None, skip_trash: false, caller }, &never).map(drop),
        6 => meta.run(Rmdir { at: at(from, &old), hint: None, skip_trash: false, caller }, &never).map(drop),
        7 | 8 => {
            let slices = vec![Slice::whole(rng.below(10_000) as u32, ino, 1 + rng.below(10_000) as u32)];
            meta.run(Write { ino: recent, index: 0, slices, mtime: NOW }, &never).map(drop)
        }
        9 => {
            let length = rng.below(10_000);
            let op = Truncate { ino: recent, length, opened: true, kill_suid: false, caller };
            meta.run(op, &never).map(drop)
        }
        other => {
            let mode = if other == 12 { RenameMode::Exchange } else { RenameMode::Replace };
            // The first directories move among each other too: that is where cycles would come
            // from.
            let first = |dir: u64| format!("d{dir}");
            let (old, new) = if rng.below(2) == 0 { (first(10 + rng.below(DIRS)), new) } else { (old, new) };
            meta.run(Rename { from: at(from, &old), to: at(to, &new), mode, caller }, &never).map(drop)
        }
    }
}

fn run_clients(factory: &Factory<'_>, seed: u64, chances: Chances) {
    let store = factory();
    let trash_days = (seed % 2) as i64;
    let quiet = if seed % 4 < 2 { store.format_with_owners(trash_days) } else { store.format(trash_days) };
    for ino in 10..10 + DIRS {
        quiet.run(create(1, &format!("d{ino}"), ino, FileType::Dir), &Interrupt::never()).unwrap();
    }
    let faulty: Vec<Faulty> =
        (0..2).map(|client| Faulty::new(store.open(), seed * 2 + client, Chances::default())).collect();
    let clients: Vec<Arc<Meta>> = faulty
        .iter()
        .map(|faulty| Meta::open(Arc::new(faulty.clone()) as Arc<dyn Engine>, options()).expect("open"))
        .collect();
    for faulty in &faulty {
        faulty.set(chances);
    }
    let done: u64 = thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let meta = &clients[thread as usize % clients.len()];
                scope.spawn(move || {
                    let mut rng = Rng::seeded(seed * 100 + thread);
                    let mut done = 0;
                    for op in 0..OPS {
                        match step(&mut rng, meta, 1000 * (thread + 1) + op) {
                            Ok(()) => done += 1,
                            Err(FsError::Io(context)) => panic!("seed {seed}: {context}"),
                            Err(_) => {}
                        }
                    }
                    done
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let injected: Vec<_> = faulty.iter().map(Faulty::injected).collect();
    let context = format!("seed {seed}, {injected:?}");
    assert!(done > 50, "only {done} operations succeeded: {context}");
    let state = State::of(store.open().as_ref());
    state.assert_tree(&context);
    state.assert_slices(&context);
}

/// On the engine as it is.
pub fn stress_leaves_a_tree(factory: &Factory<'_>) {
    for seed in seeds(5) {
        run_clients(factory, seed, Chances::default());
    }
}

/// With commits that fail, whose answers are lost, or that come late.
pub fn stress_over_a_failing_engine_leaves_a_tree(factory: &Factory<'_>) {
    for seed in seeds(10) {
        run_clients(factory, seed, CHANCES);
    }
}
