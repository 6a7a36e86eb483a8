//! Group commit: all operations that wait when a commit returns go into the next commit.
//!
//! A caller that finds a lane of the engine free runs the batch on its own thread, with all other
//! operations that wait. A caller that finds no free lane sleeps. It is woken with its answer, or
//! to run the next batch. Before it runs that batch, it may wait for the threads that were answered
//! together with it (`commit_delay`). There are no timers and no extra threads. An operation that
//! fails has no effect, and does not make others fail.

mod attempt;
mod commit_delay;
mod failed;
mod log_effects;
mod queued_op;
mod resolve;
mod sched;
mod steps;

use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sluice_types::{FsError, FsResult, wait};

use commit_delay::CommitDelay;
use failed::Failed;
use queued_op::{AnyQueuedOp, Job, QueuedOp, Submitter};
use sched::Sched;
pub use sluice_types::Interrupt;

use crate::{
    engine::{Engine, EngineError, Notices},
    env::Env,
    op::{ConflictKey, Op},
    schema::WriterId,
    stats::MetaStats,
};

/// How long a batch waits for an engine that does not answer.
pub const TIMEOUT: Duration = Duration::from_mins(5);
/// Batches of reads under way at once.
const READ_LANES: u16 = 4;

/// Runs operations in batches.
pub struct Batcher {
    engine: Arc<dyn Engine>,
    env: Arc<Env>,
    writer: WriterId,
    /// Numbers of the commits of each lane.
    numbers: Box<[Numbers]>,
    batch: usize,
    notices: Notices,
    timeout: Duration,
    sched: Mutex<Sched>,
    /// Held while a lane finds out that others fenced this client, so that all lanes count
    /// that only once.
    fence: Mutex<()>,
    commit_delay: CommitDelay,
    batches: AtomicU64,
    ops: AtomicU64,
    wakes: Arc<AtomicU64>,
    counts: Arc<MetaStats>,
    /// Whether its operations only read.
    reads: bool,
}

/// Numbers of the commits of one lane. Only the thread that leads the lane changes them.
#[derive(Default)]
struct Numbers {
    /// The number of the last commit that happened.
    reached: AtomicU64,
    /// The highest number given to a commit whose outcome was unknown. No such number is given to
    /// another commit: if the engine has it, it must tell which commit happened.
    doubtful: AtomicU64,
    /// Whether the engine lost commits of this lane. Other clients may have seen them, and have not
    /// been told yet.
    lost: AtomicBool,
}

/// Counters of a batcher.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchStats {
    /// Batches run.
    pub batches: u64,
    /// Operations in them.
    pub ops: u64,
    /// Threads woken, to run a batch or with an answer.
    pub wakes: u64,
}

impl Batcher {
    /// A batcher that commits as `writer`, whose records must be registered (all at 0).
    pub fn new(engine: Arc<dyn Engine>, env: Arc<Env>, writer: WriterId, timeout: Duration) -> Self {
        let lanes = engine.limits().lanes.max(1) as u16;
        Self::with_lanes(engine, env, writer, timeout, lanes)
    }

    /// A batcher of operations that only read: those of many threads share round trips. It counts
    /// them where `other` counts its own.
    pub(crate) fn of_reads(other: &Self) -> Self {
        let (engine, env) = (other.engine.clone(), other.env.clone());
        let batcher = Self::with_lanes(engine, env, other.writer, other.timeout, READ_LANES);
        Self { reads: true, counts: other.counts.clone(), ..batcher }
    }

    fn with_lanes(
        engine: Arc<dyn Engine>,
        env: Arc<Env>,
        writer: WriterId,
        timeout: Duration,
        lanes: u16,
    ) -> Self {
        let limits = engine.limits();
        Self {
            engine,
            env,
            writer,
            numbers: (0..lanes).map(|_| Numbers::default()).collect(),
            batch: limits.batch.max(1),
            notices: limits.notices,
            timeout,
            sched: Mutex::new(Sched::new(lanes)),
            fence: Mutex::default(),
            commit_delay: CommitDelay::default(),
            batches: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            wakes: Arc::default(),
            counts: Arc::default(),
            reads: false,
        }
    }

    /// Lanes continue from these numbers.
    pub(crate) fn go_on(&self, reached: &[u64]) {
        for (lane, n) in self.numbers.iter().zip(reached) {
            lane.reached.store(*n, Ordering::Relaxed);
        }
    }

    /// The counters so far.
    pub fn stats(&self) -> BatchStats {
        BatchStats {
            batches: self.batches.load(Ordering::Relaxed),
            ops: self.ops.load(Ordering::Relaxed),
            wakes: self.wakes.load(Ordering::Relaxed),
        }
    }

    /// The counters of operations. Others may add to them.
    pub fn counts(&self) -> &Arc<MetaStats> {
        &self.counts
    }

    /// Operations that no batch has taken yet.
    pub fn queued(&self) -> usize {
        self.sched.lock().queued()
    }

    /// Runs one operation.
    pub fn submit<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        let submitter = self.submitter(1, interrupt);
        let op = Arc::new(QueuedOp::new(op, submitter.clone()));
        self.drive(&submitter, vec![op.clone()]);
        op.take()
    }

    /// Runs two operations that share a conflict key, in one batch if the engine takes both. The
    /// second follows the first, and runs only if the first succeeds.
    pub fn submit_then<A: Op, B: Op>(
        &self,
        first: A,
        second: B,
        interrupt: &Interrupt,
    ) -> FsResult<(A::Out, FsResult<B::Out>)> {
        let submitter = self.submitter(2, interrupt);
        let first = Arc::new(QueuedOp::new(first, submitter.clone()));
        let second = Arc::new(QueuedOp::new(second, submitter.clone()).after(first.clone()));
        self.drive(&submitter, vec![first.clone(), second.clone()]);
        Ok((first.take()?, second.take()))
    }

    /// Runs many operations, as many together as the engine takes. Answers in the order of the
    /// operations.
    pub fn submit_all<O: Op>(&self, ops: Vec<O>, interrupt: &Interrupt) -> Vec<FsResult<O::Out>> {
        let submitter = self.submitter(ops.len(), interrupt);
        let queued: Vec<Arc<QueuedOp<Job<O>>>> =
            ops.into_iter().map(|op| Arc::new(QueuedOp::new(op, submitter.clone()))).collect();
        self.drive(&submitter, queued.iter().map(|op| op.clone() as Arc<AnyQueuedOp>).collect());
        queued.iter().map(|op| op.take()).collect()
    }

    fn submitter(&self, queued: usize, interrupt: &Interrupt) -> Arc<Submitter> {
        let now = wait::now();
        let span = (now, now + self.timeout);
        Arc::new(Submitter::new(queued, interrupt.clone(), span, self.wakes.clone()))
    }

    /// Queues operations of the calling thread and returns when all are answered.
    fn drive(&self, submitter: &Arc<Submitter>, queued: Vec<Arc<AnyQueuedOp>>) {
        self.lead_or_wait(submitter, queued);
        submitter.interrupt.detach();
    }

    fn lead_or_wait(&self, submitter: &Arc<Submitter>, queued: Vec<Arc<AnyQueuedOp>>) {
        let mut lane = self.sched.lock().queue(submitter, queued);
        loop {
            if let Some(lane) = lane.take().or_else(|| submitter.take_lead()) {
                self.lead(lane, submitter);
            } else if submitter.is_done() {
                // Another thread may have handed a lane to this one before a third one answered its
                // last operation.
                lane = submitter.take_lead();
                if lane.is_none() {
                    return;
                }
            } else if submitter.wait() {
                self.withdraw(submitter);
            }
        }
    }

    /// Answers the caller's operations that no batch has taken yet with `Interrupted`.
    fn withdraw(&self, submitter: &Arc<Submitter>) {
        let mine = self.sched.lock().withdraw(submitter);
        for op in mine {
            op.fail(FsError::Interrupted);
            op.finish();
        }
    }

    /// Runs one batch in `lane`, then hands the lane on.
    fn lead(&self, lane: u16, own: &Arc<Submitter>) {
        // Tasks of this thread may have operations for this batch. They cannot run during its trip.
        wait::yield_to_scheduler();
        self.commit_delay.wait(|| self.sched.lock().company());
        let Some(gathered) = self.sched.lock().gather(lane, own, self.batch) else { return };
        let begun = wait::now();
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.ops.fetch_add(gathered.queued.len() as u64, Ordering::Relaxed);
        let left = self.run(lane, &gathered.queued, own);
        let ended = wait::now();
        self.commit_delay.answered(&gathered.queued, ended.saturating_duration_since(begun));
        self.sched.lock().release(lane, own, &gathered.conflict_keys, &left);
        for op in gathered.queued.iter().filter(|op| !is_among(op, &left)) {
            self.counts.batched(op.name, op.submitter.since, (begun, ended));
            op.finish();
        }
        let took = ended.saturating_duration_since(begun);
        if self.reads {
            self.counts.reads.observe(took);
        } else {
            self.counts.commits.observe(took);
            self.counts.batched.add(gathered.queued.len() as u64);
        }
    }

    /// Runs `batch` until each of its operations has an answer. If this caller gave up, returns the
    /// operations of others that have no answer yet, for another thread.
    fn run(&self, lane: u16, batch: &[Arc<AnyQueuedOp>], own: &Submitter) -> Vec<Arc<AnyQueuedOp>> {
        let mut tries = 0;
        let mut groups = VecDeque::from([batch.to_vec()]);
        while let Some(group) = groups.pop_front() {
            // If a panic kept the lane, its waiters would wait for ever.
            let attempt = AssertUnwindSafe(|| self.attempt(lane, &group, tries > 0));
            let outcome = catch_unwind(attempt).unwrap_or_else(|_| Err(self.panicked(lane)));
            let (reason, conflict) = match outcome {
                Ok(()) => {
                    tries = 0;
                    continue;
                }
                Err(Failed::Again { culprits }) => {
                    self.count_conflict(&group, &culprits);
                    for part in split(group, &culprits).into_iter().rev() {
                        groups.push_front(part);
                    }
                    (FsError::io("others keep changing what the operation works on"), true)
                }
                Err(Failed::Unavailable(error)) => {
                    self.counts.retries.unavailable.add(1);
                    groups.push_front(group);
                    (FsError::io(error), false)
                }
                Err(Failed::Refused(error)) => {
                    self.counts.retries.refused.add(u64::from(group.len() > 1));
                    refuse(group, &error, &mut groups);
                    continue;
                }
                Err(Failed::Unknown(error)) => {
                    let error = FsError::io(error);
                    for op in &group {
                        // An interrupted caller expects that the operation may have happened.
                        let interrupted = op.submitter.interrupt.is_set();
                        op.fail(if interrupted { FsError::Interrupted } else { error.clone() });
                    }
                    continue;
                }
            };
            give_up(&mut groups, &reason);
            if own.interrupt.is_set() {
                return groups.into_iter().flatten().collect();
            }
            tries += 1;
            back_off(tries, conflict, &own.interrupt);
        }
        Vec::new()
    }

    /// Counts a conflict, and the operations that run again because of it: the culprits, if they
    /// are known.
    fn count_conflict(&self, group: &[Arc<AnyQueuedOp>], culprits: &FxHashSet<usize>) {
        self.counts.retries.conflict.add(1);
        for (at, op) in group.iter().enumerate() {
            if culprits.is_empty() || culprits.contains(&at) {
                self.counts.restarts.add(op.name);
            }
        }
    }
}

/// The groups for the next try: the innocent operations together, then each culprit alone. An
/// operation runs after those before it with which it shares a conflict key.
fn split(group: Vec<Arc<AnyQueuedOp>>, culprits: &FxHashSet<usize>) -> Vec<Vec<Arc<AnyQueuedOp>>> {
    let mut innocent = Vec::new();
    let mut parts: Vec<Vec<Arc<AnyQueuedOp>>> = Vec::new();
    let mut behind: FxHashSet<ConflictKey> = FxHashSet::default();
    let mut open = false;
    for (at, op) in group.into_iter().enumerate() {
        if culprits.contains(&at) {
            behind.extend(op.conflict_keys.iter().copied());
            parts.push(vec![op]);
            open = false;
        } else if op.conflict_keys.iter().any(|key| behind.contains(key)) {
            behind.extend(op.conflict_keys.iter().copied());
            match parts.last_mut() {
                Some(part) if open => part.push(op),
                _ => parts.push(vec![op]),
            }
            open = true;
        } else {
            innocent.push(op);
        }
    }
    if !innocent.is_empty() {
        parts.insert(0, innocent);
    }
    parts
}

/// One operation that the engine cannot serve must not make the others fail.
fn refuse(group: Vec<Arc<AnyQueuedOp>>, error: &EngineError, groups: &mut VecDeque<Vec<Arc<AnyQueuedOp>>>) {
    if group.len() == 1 {
        // The caller can make room and try again.
        let full = matches!(error, EngineError::Full(_));
        fail(&group, &if full { FsError::TooBig } else { FsError::io(error) });
    } else {
        for op in group.into_iter().rev() {
            groups.push_front(vec![op]);
        }
    }
}

/// Answers the operations whose callers no longer wait, or have waited too long. The rest of the
/// batch may continue to wait.
fn give_up(groups: &mut VecDeque<Vec<Arc<AnyQueuedOp>>>, reason: &FsError) {
    let now = wait::now();
    for group in groups.iter_mut() {
        group.retain(|op| {
            let interrupted = op.submitter.interrupt.is_set();
            if interrupted || now >= op.submitter.until {
                op.fail(if interrupted { FsError::Interrupted } else { reason.clone() });
                op.finish();
                return false;
            }
            true
        });
    }
    groups.retain(|group| !group.is_empty());
}

fn fail(group: &[Arc<AnyQueuedOp>], error: &FsError) {
    for op in group {
        op.fail(error.clone());
    }
}

fn is_among(op: &Arc<AnyQueuedOp>, queued: &[Arc<AnyQueuedOp>]) -> bool {
    queued.iter().any(|other| Arc::ptr_eq(op, other))
}

/// Waits before the next try. The first conflicts are tried again at once.
fn back_off(tries: u32, conflict: bool, interrupt: &Interrupt) {
    let pause = match (conflict, tries) {
        (true, 0..=3) => return,
        (true, tries) => Duration::from_millis(u64::from(tries.min(30))),
        (false, tries) => Duration::from_millis(10 << tries.min(7)),
    };
    interrupt.sleep(pause);
}
