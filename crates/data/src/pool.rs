//! A few threads for work that blocks on metadata: background commits and compactions.
//!
//! What must stay true: a job never waits for an object store that itself waits for a job. A job
//! that panics does not end its thread.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
};

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that start when there is work and stay.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    name: &'static str,
    most: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    closed: bool,
}

impl Pool {
    pub(crate) fn new(name: &'static str, most: usize) -> Self {
        Self(Arc::new(Shared { name, most, queue: Mutex::default(), arrived: Condvar::new() }))
    }

    /// Runs `job` on one of the threads. After [`Self::close`] it is dropped.
    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.0.queue.lock();
        if queue.closed {
            return;
        }
        queue.jobs.push_back(Box::new(job));
        if queue.idle >= queue.jobs.len() || queue.threads == self.0.most {
            self.0.arrived.notify_one();
            return;
        }
        let shared = Arc::clone(&self.0);
        let started = thread::Builder::new().name(self.0.name.into()).spawn(move || shared.work());
        match started {
            Ok(_) => queue.threads += 1,
            Err(error) => tracing::warn!(%error, "no thread for background work; those there are will do it"),
        }
    }

    /// Makes the threads end when the queue is empty.
    pub(crate) fn close(&self) {
        self.0.queue.lock().closed = true;
        self.0.arrived.notify_all();
    }
}

impl Shared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                drop(queue);
                if catch_unwind(AssertUnwindSafe(job)).is_err() {
                    tracing::error!(pool = self.name, "work in the background panicked");
                }
                queue = self.queue.lock();
            } else if queue.closed {
                return;
            } else {
                queue.idle += 1;
                self.arrived.wait(&mut queue);
                queue.idle -= 1;
            }
        }
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Pool({})", self.0.name)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn a_job_that_panics_takes_no_thread_with_it() {
        let pool = Pool::new("test", 1);
        for _ in 0..3 {
            pool.run(|| panic!("told to"));
        }
        let (done, waiting) = mpsc::channel();
        pool.run(move || done.send(()).unwrap());
        waiting.recv_timeout(std::time::Duration::from_mins(1)).unwrap();
    }
}
