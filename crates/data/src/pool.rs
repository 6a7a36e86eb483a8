//! A few threads for work that blocks on metadata: background commits and compactions.
//!
//! What must stay true: a job never waits for a request to the object store that needs another job
//! to finish: that would be a deadlock. A job that panics does not end its thread.

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// Threads that start when there is work and stay.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Shared>);

struct Shared {
    name: &'static str,
    /// What the log names who made it.
    span: tracing::Span,
    most: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
    ended: Condvar,
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
        let (arrived, ended) = (Condvar::new(), Condvar::new());
        let span = tracing::Span::current();
        Self(Arc::new(Shared { name, span, most, queue: Mutex::default(), arrived, ended }))
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
        let work = self.0.span.in_scope(|| sluice_types::job(self.0.name, move || shared.work()));
        let started = thread::Builder::new().name(self.0.name.into()).spawn(work);
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

    /// Closes it and waits at most `timeout` for the jobs that were given to it. Returns whether
    /// all of them ended.
    pub(crate) fn finish(&self, timeout: Duration) -> bool {
        self.close();
        let until = Instant::now() + timeout;
        let mut queue = self.0.queue.lock();
        while queue.threads > 0 {
            if self.0.ended.wait_until(&mut queue, until).timed_out() {
                return queue.threads == 0;
            }
        }
        true
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
                queue.threads -= 1;
                self.ended.notify_all();
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
        waiting.recv_timeout(Duration::from_mins(1)).unwrap();
    }

    #[test]
    fn the_end_waits_for_jobs_that_were_given() {
        let pool = Pool::new("test", 1);
        let (release, released) = mpsc::channel::<()>();
        let done = Arc::new(Mutex::new(0));
        pool.run(move || assert!(released.recv().is_err()));
        for _ in 0..2 {
            let done = Arc::clone(&done);
            pool.run(move || *done.lock() += 1);
        }
        assert!(!pool.finish(Duration::ZERO), "the first one still waits");
        drop(release);
        assert!(pool.finish(Duration::from_mins(1)));
        assert_eq!(*done.lock(), 2);
    }
}
