//! Many ranges read at once: the waits for the object store overlap.
//!
//! What must stay true: the number of threads has a limit, whatever is asked for.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};

use parking_lot::Mutex;

/// Most threads that one call uses.
const THREADS: usize = 16;

/// Runs `work` for the numbers below `count`, several at once; the results in order.
pub(crate) fn each<T: Send>(count: usize, work: impl Fn(usize) -> T + Sync) -> Vec<T> {
    if count <= 1 {
        return (0..count).map(work).collect();
    }
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let run = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let result = work(number);
            done.lock().push((number, result));
        }
    };
    thread::scope(|scope| {
        for _ in 1..count.min(THREADS) {
            // A machine that has no room for another thread does with those that there are.
            if thread::Builder::new().name("sluice-ranges".into()).spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    let mut done = done.into_inner();
    done.sort_unstable_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}
