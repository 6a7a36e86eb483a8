//! Clients that make files without pause while something happens to the servers.
//!
//! What must stay true: every call has to succeed, however long it takes; nothing is excused.

use std::{
    collections::BTreeSet,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use sluice_meta::{Interrupt, Meta, schema::Key};
use sluice_meta_redis::RedisEngine;
use sluice_testkit::operations::{SharedStore, create, state::State};
use sluice_types::{FileType, Ino, Name};

/// Threads of each of the two clients.
const THREADS: u64 = 3;
/// Files that each thread makes before and after what happens.
const FILES: usize = 30;
/// Longer than any test takes.
const LONG: Duration = Duration::from_mins(3);

/// Volumes on the servers at `url`.
pub(crate) fn store(url: &str) -> SharedStore {
    let url = url.to_owned();
    SharedStore::new(move || {
        let engine = RedisEngine::open(&url).expect("a valid URL");
        Arc::new(engine)
    })
}

/// Two clients with a directory for each of their threads.
pub(crate) fn clients(store: &SharedStore) -> Vec<Arc<Meta>> {
    let clients = vec![store.format(0), store.client()];
    for dir in 0..2 * THREADS {
        let made =
            clients[0].run(create(1, &format!("d{dir}"), 100 + dir, FileType::Dir), &Interrupt::never());
        made.expect("made");
    }
    clients
}

/// Lets the clients make files before, while and after `happens`. Answers how many each thread
/// made.
pub(crate) fn during(clients: &[Arc<Meta>], happens: impl FnOnce()) -> Vec<usize> {
    let (over, made) =
        (AtomicBool::new(false), (0..2 * THREADS).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
    thread::scope(|scope| {
        for (thread, made) in made.iter().enumerate() {
            let (client, over) = (&clients[thread / THREADS as usize], &over);
            scope.spawn(move || {
                let (dir, mut left) = (100 + thread as u64, FILES);
                for file in 0.. {
                    let op = create(dir, &format!("f{file}"), ino(dir, file), FileType::File);
                    client.run(op, &Interrupt::never()).expect("it takes its time, but happens");
                    made.store(file + 1, Ordering::SeqCst);
                    if over.load(Ordering::SeqCst) {
                        left -= 1;
                        if left == 0 {
                            break;
                        }
                    }
                }
            });
        }
        let _end = End(&over);
        let until = Instant::now() + LONG;
        while made.iter().any(|made| made.load(Ordering::SeqCst) < FILES) {
            assert!(Instant::now() < until, "nothing is made");
            thread::yield_now();
        }
        happens();
    });
    made.into_iter().map(AtomicUsize::into_inner).collect()
}

/// Ends the load, also when a test fails.
struct End<'o>(&'o AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

fn ino(dir: u64, file: usize) -> u64 {
    dir * 1_000_000 + file as u64
}

/// Checks what the store holds. Answers, for each thread, the files that it was told were made and
/// that are not there.
pub(crate) fn lost(store: &SharedStore, made: &[usize]) -> Vec<Range<usize>> {
    let engine = store.open();
    let state = State::of(engine.as_ref());
    state.assert_tree("after the failover");
    let there: BTreeSet<(Ino, Name)> = state
        .rows
        .keys()
        .filter_map(|key| if let Key::Entry(dir, name) = key { Some((*dir, name.clone())) } else { None })
        .collect();
    assert!(there.len() <= made.iter().sum::<usize>() + made.len(), "more than was ever made");
    let is_there = |dir: u64, file: usize| {
        there.contains(&(Ino(dir), Name::new(format!("f{file}").as_bytes()).expect("valid")))
    };
    made.iter()
        .zip(100..)
        .map(|(made, dir)| {
            let missing: Vec<usize> = (0..*made).filter(|file| !is_there(dir, *file)).collect();
            let (first, last) = (missing.first().copied(), missing.last().copied());
            let range = first.zip(last).map_or(0..0, |(first, last)| first..last + 1);
            assert_eq!(
                range.len(),
                missing.len(),
                "lost are the last before the failover, none before: {missing:?}"
            );
            assert!(range.end + FILES <= *made || range.is_empty(), "lost after the failover: {missing:?}");
            range
        })
        .collect()
}
