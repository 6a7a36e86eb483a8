//! Conflict keys exclude and order; nothing is forgotten in the queue.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use sluice_meta::{
    batch::Interrupt,
    engine::{Engine, Hold, Write},
};
use sluice_testkit::wrap::Hooked;
use sluice_types::{FsError, Ino, Rng};

use crate::fixture::{Append, Increment, appended, batcher, node, store, within};

#[test]
fn operations_that_share_a_lane_never_overlap() {
    let engine = store();
    let batcher = batcher(Arc::new(engine.clone()));
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let batcher = batcher.clone();
            thread::spawn(move || {
                for _ in 0..200 {
                    // Nothing but the conflict key protects this.
                    batcher.submit(Increment { ino: 4, hold: Hold::None }, &Interrupt::never()).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(node(&engine, 4).unwrap().nlink, 2 + 8 * 200);
}

#[test]
fn operations_of_a_lane_keep_their_order() {
    let engine = store();
    let batcher = batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).limited(4, 7)));
    let threads: Vec<_> = (0..8)
        .map(|thread| {
            let batcher = batcher.clone();
            thread::spawn(move || {
                for round in 0..20 {
                    let ids = (0..15).map(|at| 1 + thread * 10_000 + round * 15 + at);
                    let ops =
                        ids.map(|id| Append { ino: 800 + id % 3, id, also: vec![900 + id % 2] }).collect();
                    assert!(batcher.submit_all(ops, &Interrupt::never()).iter().all(Result::is_ok));
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    for ino in 800..803 {
        let ids = appended(&engine, ino);
        assert_eq!(ids.len(), 800);
        for thread in 0..8 {
            let mine: Vec<u64> = ids.iter().copied().filter(|id| (id - 1) / 10_000 == thread).collect();
            assert!(mine.is_sorted(), "#{ino}: {mine:?}");
        }
    }
}

/// A gate that commits wait at.
#[derive(Default)]
struct Gate {
    open: Mutex<bool>,
    bell: Condvar,
    waiting: AtomicU64,
}

impl Gate {
    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut open = self.open.lock();
        while !*open {
            self.bell.wait(&mut open);
        }
    }

    fn open(&self) {
        *self.open.lock() = true;
        self.bell.notify_all();
    }
}

#[test]
fn an_interrupt_withdraws_what_no_batch_took() {
    let engine = store();
    let gate = Arc::new(Gate::default());
    let hook = {
        let gate = gate.clone();
        move |commit: &sluice_meta::engine::Commit| {
            if commit.writes.iter().any(|write| matches!(write, Write::Append(Ino(50), ..))) {
                gate.pass();
            }
            Ok(())
        }
    };
    let batcher = batcher(Arc::new(Hooked::new(Arc::new(engine.clone())).before_commit(hook)));
    let first = {
        let batcher = batcher.clone();
        thread::spawn(move || batcher.submit(Append::new(50, 1), &Interrupt::never()))
    };
    while gate.waiting.load(Ordering::SeqCst) == 0 {
        thread::yield_now();
    }
    let interrupt = Interrupt::default();
    let second = {
        let (batcher, interrupt) = (batcher.clone(), interrupt.clone());
        thread::spawn(move || batcher.submit_all((2..5).map(|id| Append::new(50, id)).collect(), &interrupt))
    };
    let third = {
        let batcher = batcher.clone();
        thread::spawn(move || batcher.submit(Append::new(50, 9), &Interrupt::never()))
    };
    // Other operations go on meanwhile.
    let other = batcher.clone();
    within(Duration::from_mins(1), "another conflict key", move || {
        for id in 1..100 {
            other.submit(Append::new(51, id), &Interrupt::never()).unwrap();
        }
    });
    interrupt.set();
    let answers = within(Duration::from_mins(1), "the interrupted", move || second.join().unwrap());
    assert_eq!(answers, vec![Err(FsError::Interrupted); 3]);
    gate.open();
    let answers =
        within(Duration::from_mins(1), "the others", move || [first.join().unwrap(), third.join().unwrap()]);
    assert_eq!(answers, [Ok(()), Ok(())]);
    assert_eq!(appended(&engine, 50), [1, 9]);
}

#[test]
fn no_wakeup_is_lost() {
    for (lanes, batch) in [(1, 1), (2, 3), (4, 2), (4, 256)] {
        let engine = store();
        let limited = Hooked::new(Arc::new(engine.clone()) as Arc<dyn Engine>).limited(lanes, batch);
        let batcher = batcher(Arc::new(limited));
        let stop = Arc::new(AtomicBool::new(false));
        let done = Arc::new(AtomicU64::new(0));
        let crowd: Vec<_> = (0..24)
            .map(|thread| {
                let (batcher, stop, done) = (batcher.clone(), stop.clone(), done.clone());
                thread::spawn(move || {
                    let mut rng = Rng::seeded(thread);
                    while !stop.load(Ordering::Relaxed) {
                        let interrupt = Interrupt::default();
                        let op = |rng: &mut Rng| Append {
                            ino: 100 + rng.below(5),
                            id: 1,
                            also: vec![100 + rng.below(5)],
                        };
                        if rng.below(10) == 0 {
                            interrupt.set();
                        }
                        let count = 1 + rng.below(4);
                        let ops = (0..count).map(|_| op(&mut rng)).collect();
                        let answers = batcher.submit_all(ops, &interrupt);
                        done.fetch_add(
                            answers.iter().filter(|a| a.is_ok()).count() as u64,
                            Ordering::Relaxed,
                        );
                    }
                })
            })
            .collect();
        let until = Instant::now() + Duration::from_millis(1500);
        let (mut last, mut progress) = (0, Instant::now());
        while Instant::now() < until {
            let now = done.load(Ordering::Relaxed);
            if now != last {
                (last, progress) = (now, Instant::now());
            }
            assert!(progress.elapsed() < Duration::from_mins(1), "{lanes} lanes of {batch}: stuck");
            thread::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        within(Duration::from_mins(1), "the crowd", move || {
            for thread in crowd {
                thread.join().unwrap();
            }
        });
        let sum: usize = (100..105).map(|ino| appended(&engine, ino).len()).sum();
        assert_eq!(sum as u64, done.load(Ordering::Relaxed), "{lanes} lanes of {batch}");
    }
}
