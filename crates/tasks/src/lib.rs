//! Runs blocking calls as tasks: thousands of calls that wait need only a few threads.
//!
//! A task runs on a stack of its own. When it waits by [`sluice_types::wait`], its thread goes on
//! with other tasks, and the waker that the wait knows resumes it. So do the waits of a call of a
//! volume for the batch that commits it, for the object store, for memory, for locks and for time.
//! System calls block the thread and its other tasks: a read of a local file, and a round trip to
//! the metadata server, of the task that runs a batch or reads alone. So the number of threads is
//! that of round trips at once. Work on a whole tree takes a thread of its own while it runs.
//!
//! What must stay true: a task stays on the thread on which it began, because what it holds while
//! it waits may belong to that thread.

mod current;
mod executor;
mod worker;

use std::{
    fmt,
    future::Future,
    io, mem,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    thread,
};

use futures::channel::oneshot;

use executor::Executor;

/// Threads that run tasks. When it is dropped, tasks that have not begun are given up. The others
/// go on to their ends.
pub struct Tasks(Arc<Executor>);

/// The result of a call that a task runs. The call runs even if this is dropped.
#[derive(Debug)]
#[must_use = "a call may fail"]
pub struct Call<T>(oneshot::Receiver<thread::Result<T>>);

impl Tasks {
    /// Starts `threads` threads, at least one. Each of them runs at most `each` tasks at once, at
    /// least one; other tasks begin later. A task that waits takes the memory of its stack: some
    /// 10 KiB, at most 1 MiB.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn new(threads: usize, each: usize) -> io::Result<Self> {
        // Ends those that were started if one cannot be.
        let tasks = Self(Arc::new(Executor::new(threads.max(1))));
        for number in 0..threads.max(1) {
            let executor = Arc::clone(&tasks.0);
            let run = sluice_types::job("task", move || worker::run(executor, number, each.max(1)));
            thread::Builder::new().name(format!("tasks-{number}")).spawn(run)?;
        }
        Ok(tasks)
    }

    /// Runs a call in a task. The result is an error if the call panics, as that of
    /// [`thread::JoinHandle::join`]. If the [`Call`] is dropped, so is the result, by whoever has
    /// it: close files in the call that opened them, or in another one.
    pub fn run<T: Send + 'static>(&self, call: impl FnOnce() -> T + Send + 'static) -> Call<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.begin(Box::new(move || {
            let done = catch_unwind(AssertUnwindSafe(call));
            // Whoever asked may be gone, and the drop of the result may panic.
            if let Err(reason) = catch_unwind(AssertUnwindSafe(|| drop(sender.send(done)))) {
                mem::forget(reason);
            }
        }));
        Call(receiver)
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl fmt::Debug for Tasks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tasks")
    }
}

impl<T> Future for Call<T> {
    type Output = thread::Result<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let result = ready!(Pin::new(&mut self.0).poll(context));
        Poll::Ready(result.unwrap_or_else(|_| Err(Box::new("the task was given up before it began"))))
    }
}
