//! Tasks wait without a thread, and nothing is lost.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test panics when it fails")]

use std::{
    fs,
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use futures::{executor::block_on, future::join_all};
use parking_lot::Mutex;
use sluice_tasks::Tasks;
use sluice_types::{Condvar, Interrupt, wait};

/// No test waits for so long.
const LONG: Duration = Duration::from_mins(5);

/// Waits until a condition holds that others make true under the lock.
fn until<T>(condvar: &Condvar, state: &Mutex<T>, holds: impl Fn(&T) -> bool) {
    let end = Instant::now() + LONG;
    let mut state = state.lock();
    while !holds(&state) {
        assert!(Instant::now() < end, "it waits for ever");
        condvar.wait_for(&mut state, LONG);
    }
}

#[test]
fn thousands_wait_at_once_on_two_threads() {
    const TASKS: usize = 5_000;
    let tasks = Tasks::new(2, TASKS).unwrap();
    let all = Arc::new((Mutex::new(0), Condvar::default()));
    let calls: Vec<_> = (0..TASKS)
        .map(|number| {
            let all = Arc::clone(&all);
            tasks.run(move || {
                let begun = {
                    let mut begun = all.0.lock();
                    *begun += 1;
                    *begun
                };
                // Nobody goes on before everybody has begun.
                if begun == TASKS {
                    all.1.notify_all();
                }
                until(&all.1, &all.0, |begun| *begun == TASKS);
                number
            })
        })
        .collect();
    let threads = fs::read_dir("/proc/self/task").unwrap().count();
    let results = block_on(join_all(calls));
    assert!(results.into_iter().map(Result::unwrap).eq(0..TASKS));
    assert!(threads < 100, "{threads} threads");
}

#[test]
fn no_thread_has_more_tasks_than_it_may() {
    let tasks = Tasks::new(2, 3).unwrap();
    let (running, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let (running, most) = (Arc::clone(&running), Arc::clone(&most));
            tasks.run(move || {
                most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                (0..10).for_each(|_| wait::yield_now());
                running.fetch_sub(1, Ordering::SeqCst);
            })
        })
        .collect();
    block_on(join_all(calls)).into_iter().for_each(Result::unwrap);
    assert!((2..=6).contains(&most.load(Ordering::SeqCst)), "{most:?}");
}

#[test]
fn threads_and_tasks_wake_each_other() {
    let tasks = Tasks::new(1, 10).unwrap();
    let turn = Arc::new((Mutex::new(0), Condvar::default()));
    let play = |mine: u32| {
        let turn = Arc::clone(&turn);
        move || {
            for round in 0..200 {
                until(&turn.1, &turn.0, |turn| *turn == 3 * round + mine);
                *turn.0.lock() += 1;
                turn.1.notify_all();
            }
        }
    };
    let calls = [tasks.run(play(0)), tasks.run(play(1))];
    let thread = thread::spawn(play(2));
    block_on(join_all(calls)).into_iter().for_each(Result::unwrap);
    thread.join().unwrap();
    assert_eq!(*turn.0.lock(), 600);
}

#[test]
fn a_lock_that_a_waiting_task_holds_blocks_no_thread() {
    let tasks = Tasks::new(1, 100).unwrap();
    let total = Arc::new(Mutex::new(0));
    let calls: Vec<_> = (0..20)
        .map(|_| {
            let total = Arc::clone(&total);
            tasks.run(move || {
                let mut total = wait::lock(&total);
                let before = *total;
                (0..10).for_each(|_| wait::yield_now());
                *total = before + 1;
            })
        })
        .collect();
    block_on(join_all(calls)).into_iter().for_each(Result::unwrap);
    assert_eq!(*total.lock(), 20);
}

#[test]
fn a_wait_ends_in_time_and_by_an_interrupt() {
    let tasks = Tasks::new(1, 10).unwrap();
    let interrupt = Interrupt::default();
    let (own, begun) = (interrupt.clone(), Arc::new(AtomicBool::new(false)));
    let begins = Arc::clone(&begun);
    let interrupted = tasks.run(move || {
        begins.store(true, Ordering::SeqCst);
        own.attach();
        while !own.is_set() {
            wait::park_timeout(LONG);
        }
        own.detach();
    });
    let late = tasks.run(|| {
        let begun = Instant::now();
        wait::park_timeout(Duration::from_millis(20));
        begun.elapsed()
    });
    assert!(block_on(late).unwrap() >= Duration::from_millis(20));
    assert!(begun.load(Ordering::SeqCst));
    interrupt.set();
    block_on(interrupted).unwrap();
}

#[test]
fn a_panic_is_the_result_and_ends_nothing_else() {
    let tasks = Tasks::new(1, 10).unwrap();
    let panics = tasks.run(|| {
        wait::yield_now();
        panic_any(7);
    });
    let reason = block_on(panics).map(|()| "no panic").unwrap_err();
    assert_eq!(reason.downcast_ref(), Some(&7));
    assert_eq!(block_on(tasks.run(|| 8)).unwrap(), 8);
}

#[test]
fn what_has_begun_ends_and_what_has_not_is_given_up() {
    let tasks = Tasks::new(1, 1).unwrap();
    let gate = Arc::new((Mutex::new(0), Condvar::default()));
    let inside = Arc::clone(&gate);
    let begun = tasks.run(move || {
        *inside.0.lock() = 1;
        inside.1.notify_all();
        until(&inside.1, &inside.0, |state| *state == 2);
    });
    let waits = tasks.run(|| ());
    until(&gate.1, &gate.0, |state| *state == 1);
    drop(tasks);
    block_on(waits).unwrap_err();
    *gate.0.lock() = 2;
    gate.1.notify_all();
    block_on(begun).unwrap();
}
