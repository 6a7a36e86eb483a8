//! A thread that runs tasks.

use std::{collections::BTreeSet, sync::Arc, time::Instant};

use corosensei::stack::DefaultStack;
use rustc_hash::FxHashMap;
use sluice_types::wait;

use crate::{
    current::{Task, TaskScheduler},
    executor::{Bell, Executor, Job},
};

/// Bytes of the stack of a task. Only what was used takes memory.
const STACK: usize = 1 << 20;
/// Stacks of ended tasks that are kept for others.
const KEPT: usize = 64;

/// Runs tasks until the executor is closed and all of them have ended.
pub(crate) fn run(executor: Arc<Executor>, number: usize, most: usize) {
    wait::obey(Arc::new(TaskScheduler));
    let mut worker = Worker {
        executor,
        number,
        waiting: FxHashMap::default(),
        due: BTreeSet::new(),
        stacks: Vec::new(),
        last: 0,
        full: false,
    };
    loop {
        let due = worker.due.first().map(|(due, _)| *due);
        let tasks = worker.waiting.len();
        let more = if worker.full { 0 } else { most.saturating_sub(tasks) };
        let Some(next) = worker.executor.next(number, (tasks, more), due) else { return };
        for job in next.jobs {
            worker.begin(job);
        }
        for task in next.woken {
            worker.resume(task);
        }
        worker.resume_due();
    }
}

struct Worker {
    executor: Arc<Executor>,
    number: usize,
    /// Tasks that wait.
    waiting: FxHashMap<u64, Task>,
    /// Those that do not wait for ever, by the ends of their waits.
    due: BTreeSet<(Instant, u64)>,
    stacks: Vec<DefaultStack>,
    /// Number of the last task.
    last: u64,
    /// Whether there is no memory for another stack until a task ends.
    full: bool,
}

impl Worker {
    fn begin(&mut self, job: Job) {
        let stack = match self.stacks.pop().map_or_else(|| DefaultStack::new(STACK), Ok) {
            Ok(stack) => stack,
            Err(error) if self.waiting.is_empty() => {
                tracing::error!(%error, "there is no memory for the stack of a task, which is given up");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "there is no memory for the stack of another task now");
                self.executor.put_back(job);
                self.full = true;
                return;
            }
        };
        self.last += 1;
        let bell = Bell::new(Arc::clone(&self.executor), self.number, self.last);
        self.run(self.last, Task::new(stack, bell, job));
    }

    /// Resumes a task, unless it has ended.
    fn resume(&mut self, number: u64) {
        let Some(task) = self.waiting.remove(&number) else { return };
        if let Some(due) = task.due {
            self.due.remove(&(due, number));
        }
        self.run(number, task);
    }

    /// Resumes the tasks whose waits are over.
    fn resume_due(&mut self) {
        let now = Instant::now();
        while let Some(&(due, number)) = self.due.first()
            && due <= now
        {
            self.resume(number);
        }
    }

    fn run(&mut self, number: u64, task: Task) {
        match task.resume() {
            Ok(task) => {
                self.due.extend(task.due.map(|due| (due, number)));
                self.waiting.insert(number, task);
            }
            Err(stack) => {
                self.full = false;
                if self.stacks.len() < KEPT {
                    self.stacks.push(stack);
                }
            }
        }
    }
}
