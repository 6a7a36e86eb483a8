//! Work that adds more work, such as a walk through a tree, on several threads.
//!
//! What must stay true: the work that was added last is done first. So the waiting work is bounded
//! by the depth of the tree and the size of one directory, and a deep tree does not overflow a
//! thread's stack.

use std::thread::{self, Builder, Scope};

use parking_lot::{Condvar, Mutex};
use sluice_types::{FsError, FsResult};

/// Does `first`, and all work that it adds, on up to `threads` threads, including the caller's.
/// Returns when nothing is left.
///
/// # Errors
/// The first that `each` returns. Nothing is begun after it.
pub(crate) fn work_off<T: Send>(
    first: Vec<T>,
    threads: usize,
    each: impl Fn(T, &mut Vec<T>) -> FsResult<()> + Sync,
) -> FsResult<()> {
    let state = State { left: first, threads: 1, busy: 0, ended: None };
    let work = Work { state: Mutex::new(state), changed: Condvar::new(), most: threads, each };
    thread::scope(|scope| work.run(scope));
    work.state.into_inner().ended.map_or(Ok(()), Err)
}

struct Work<T, F> {
    state: Mutex<State<T>>,
    changed: Condvar,
    most: usize,
    each: F,
}

struct State<T> {
    left: Vec<T>,
    /// Running threads, and those of them that may still add work.
    threads: usize,
    busy: usize,
    ended: Option<FsError>,
}

/// Work in progress. Another thread may wait for what it adds, so it also ends after a panic.
struct Busy<'w, T, F>(&'w Work<T, F>);

impl<T: Send, F: Fn(T, &mut Vec<T>) -> FsResult<()> + Sync> Work<T, F> {
    fn run<'scope, 'env>(&'env self, scope: &'scope Scope<'scope, 'env>) {
        let mut more = Vec::new();
        while let Some(item) = self.next() {
            let busy = Busy(self);
            let done = (self.each)(item, &mut more);
            for _ in 0..self.add(done, &mut more) {
                // Without another thread it takes longer.
                if Builder::new().name("sluice-walk".into()).spawn_scoped(scope, || self.run(scope)).is_err()
                {
                    self.state.lock().threads -= 1;
                }
            }
            drop(busy);
        }
    }

    /// What to do next; `None` at the end.
    fn next(&self) -> Option<T> {
        let mut state = self.state.lock();
        loop {
            if state.ended.is_some() {
                return None;
            }
            if let Some(item) = state.left.pop() {
                state.busy += 1;
                return Some(item);
            }
            if state.busy == 0 {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }

    /// Adds what was found. Returns how many more threads are needed.
    fn add(&self, done: FsResult<()>, more: &mut Vec<T>) -> usize {
        let mut state = self.state.lock();
        if let Err(error) = done {
            state.ended.get_or_insert(error);
        }
        state.left.append(more);
        if state.ended.is_some() {
            return 0;
        }
        let idle = state.threads - state.busy;
        // This thread goes on with one of them.
        let wanted = state.left.len().saturating_sub(idle + 1).min(self.most.saturating_sub(state.threads));
        state.threads += wanted;
        wanted
    }
}

impl<T, F> Drop for Busy<'_, T, F> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.busy -= 1;
        if thread::panicking() {
            state.ended.get_or_insert(FsError::io("a thread panicked"));
        }
        drop(state);
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Barrier,
        atomic::{AtomicUsize, Ordering},
    };

    use super::*;

    #[test]
    fn all_that_is_found_is_done_once() {
        let done = AtomicUsize::new(0);
        let each = |levels: u32, more: &mut Vec<u32>| {
            done.fetch_add(1, Ordering::Relaxed);
            more.extend((levels > 0).then(|| [levels - 1; 4]).into_iter().flatten());
            Ok(())
        };
        for threads in [1, 8] {
            done.store(0, Ordering::Relaxed);
            assert_eq!(work_off(vec![5, 0], threads, each), Ok(()));
            assert_eq!(done.load(Ordering::Relaxed), (4_usize.pow(6) - 1) / 3 + 1);
        }
        assert_eq!(work_off(Vec::new(), 3, each), Ok(()));
    }

    #[test]
    fn as_many_threads_as_allowed_work_at_once() {
        let together = Barrier::new(4);
        let each = |first: bool, more: &mut Vec<bool>| {
            if first {
                more.extend([false; 4]);
            } else {
                together.wait();
            }
            Ok(())
        };
        assert_eq!(work_off(vec![true], 4, each), Ok(()));
    }

    #[test]
    fn what_waits_is_no_more_than_a_path_of_directories() {
        let most = AtomicUsize::new(0);
        let waiting = AtomicUsize::new(1);
        let each = |levels: usize, more: &mut Vec<usize>| {
            waiting.fetch_sub(1, Ordering::Relaxed);
            more.extend(vec![levels.saturating_sub(1); if levels > 0 { 10 } else { 0 }]);
            most.fetch_max(waiting.fetch_add(more.len(), Ordering::Relaxed) + more.len(), Ordering::Relaxed);
            Ok(())
        };
        work_off(vec![4], 1, each).unwrap();
        assert!(most.into_inner() <= 4 * 10);
    }

    #[test]
    fn an_error_ends_all() {
        let each = |item: u32, more: &mut Vec<u32>| {
            more.push(item + 1);
            if item == 100 { Err(FsError::NoSpace) } else { Ok(()) }
        };
        assert_eq!(work_off(vec![0], 4, each), Err(FsError::NoSpace));
    }

    #[test]
    fn a_panic_leaves_nobody_waiting() {
        let each = |item: u32, more: &mut Vec<u32>| {
            assert!(item < 3, "stop here");
            more.extend([item + 1; 3]);
            Ok(())
        };
        assert!(std::panic::catch_unwind(|| work_off(vec![0], 4, each)).is_err());
    }
}
