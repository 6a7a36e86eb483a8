//! The task that runs on a thread, and its waits.

#![allow(unsafe_code)]

use std::{
    cell::{Cell, RefCell},
    ptr,
    rc::Rc,
    sync::Arc,
    task::Waker,
    thread,
    time::{Duration, Instant},
};

use corosensei::{Coroutine, CoroutineResult, Yielder, stack::DefaultStack};
use sluice_types::wait::Scheduler;

use crate::executor::{Bell, Job};

thread_local!(static CURRENT: RefCell<Option<Rc<Current>>> = const { RefCell::new(None) });

/// Until when a task waits at most.
pub(crate) type Until = Option<Instant>;

/// A task that has begun.
pub(crate) struct Task {
    coroutine: Coroutine<(), Until, ()>,
    current: Rc<Current>,
    /// Until when it waits, if it waits and not for ever.
    pub(crate) due: Until,
}

struct Current {
    bell: Arc<Bell>,
    waker: Waker,
    /// What leaves the stack of the task; null before the task runs.
    yielder: Cell<*const Yielder<(), Until>>,
}

impl Task {
    /// A task that runs `job` on a stack when it is resumed.
    pub(crate) fn new(stack: DefaultStack, bell: Bell, job: Job) -> Self {
        let bell = Arc::new(bell);
        let waker = Waker::from(Arc::clone(&bell));
        let current = Rc::new(Current { bell, waker, yielder: Cell::new(ptr::null()) });
        let own = Rc::clone(&current);
        let coroutine = Coroutine::with_stack(stack, move |yielder, ()| {
            own.yielder.set(yielder);
            job();
        });
        Self { coroutine, current, due: None }
    }

    /// Runs it until it waits or ends. Returns its stack if it has ended.
    pub(crate) fn resume(mut self) -> Result<Self, DefaultStack> {
        CURRENT.set(Some(Rc::clone(&self.current)));
        let waits = self.coroutine.resume(());
        CURRENT.set(None);
        match waits {
            CoroutineResult::Yield(due) => Ok(Self { due, ..self }),
            CoroutineResult::Return(()) => Err(self.coroutine.into_stack()),
        }
    }
}

impl Current {
    /// Lets other tasks run until this one is resumed.
    fn leave(&self, due: Until) {
        let yielder = self.yielder.get();
        // SAFETY: the function that set it has not returned, and the yielder lives as long: a task
        // is the current one of a thread only while it runs there.
        unsafe { &*yielder }.suspend(due);
    }
}

/// Schedules the tasks of the threads.
pub(crate) struct TaskScheduler;

fn current() -> Option<Rc<Current>> {
    CURRENT.with_borrow(Clone::clone)
}

impl Scheduler for TaskScheduler {
    fn park(&self, timeout: Option<Duration>) {
        let Some(current) = current() else {
            return timeout.map_or_else(thread::park, thread::park_timeout);
        };
        if !current.bell.take() {
            current.leave(timeout.map(|timeout| Instant::now() + timeout));
            current.bell.take();
        }
    }

    fn yield_now(&self) {
        let Some(current) = current() else { return thread::yield_now() };
        // A wake-up meanwhile must not be lost, so the next wait may end early.
        current.bell.ring();
        current.leave(None);
    }

    fn waker(&self) -> Option<Waker> {
        current().map(|current| current.waker.clone())
    }
}
