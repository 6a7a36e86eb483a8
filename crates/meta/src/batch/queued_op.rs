//! A waiting operation, the thread that waits for it, and what can wake that thread.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::Instant,
};

use parking_lot::Mutex;
use sluice_types::{
    FsError, FsResult, Interrupt,
    wait::{self, Waiter},
};

use crate::{
    effect_log::Effect,
    op::{ConflictKeys, Op},
    view::{Stop, View},
};

/// A waiting thread: how many of its operations are open, and whether it is to run a batch.
pub(super) struct Submitter {
    waiter: Waiter,
    open: AtomicUsize,
    /// Lane + 1 of the batch it is to run, 0 for none.
    lead: AtomicU32,
    /// Whether it is running a batch.
    leading: AtomicBool,
    pub(super) interrupt: Interrupt,
    /// When it queued its operations.
    pub(super) since: Instant,
    /// When it times out.
    pub(super) until: Instant,
    withdrawn: AtomicBool,
    /// Threads woken so far.
    wakes: Arc<AtomicU64>,
}

impl Submitter {
    /// The calling thread as a submitter, which its interrupt wakes until [`Interrupt::detach`].
    pub(super) fn new(
        queued: usize,
        interrupt: Interrupt,
        (since, until): (Instant, Instant),
        wakes: Arc<AtomicU64>,
    ) -> Self {
        interrupt.attach();
        Self {
            waiter: wait::current(),
            open: AtomicUsize::new(queued),
            lead: AtomicU32::new(0),
            leading: AtomicBool::new(false),
            interrupt,
            since,
            until,
            withdrawn: AtomicBool::new(false),
            wakes,
        }
    }

    /// Tells the thread to run a batch in `lane`. Only while one of its operations waits in the
    /// queue, and under the lock of the queue.
    pub(super) fn lead(&self, lane: u16) {
        self.lead.store(u32::from(lane) + 1, Ordering::Release);
        self.wake();
    }

    pub(super) fn take_lead(&self) -> Option<u16> {
        self.lead.swap(0, Ordering::AcqRel).checked_sub(1).map(|lane| lane as u16)
    }

    /// Notes whether the thread runs a batch. Only under the lock of the queue.
    pub(super) fn set_leading(&self, leading: bool) {
        self.leading.store(leading, Ordering::Relaxed);
    }

    pub(super) fn is_leading(&self) -> bool {
        self.leading.load(Ordering::Relaxed)
    }

    pub(super) fn is_done(&self) -> bool {
        self.open.load(Ordering::Acquire) == 0
    }

    /// One operation has its answer.
    fn finish_one(&self) {
        if self.open.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.wake();
        }
    }

    /// Sleeps until something may have changed; true if the wait was interrupted for the first
    /// time.
    pub(super) fn wait(&self) -> bool {
        if self.interrupt.is_set() && !self.withdrawn.swap(true, Ordering::Relaxed) {
            return true;
        }
        wait::park();
        false
    }

    fn wake(&self) {
        if !self.waiter.is_caller() {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.waiter.unpark();
        }
    }
}

/// What a batch knows of an operation.
pub(super) trait Run: Send {
    /// Runs it. Its answer, good or bad, is kept until the caller takes it.
    fn run(&mut self, view: &mut View<'_>) -> Ran;
    /// Answers it with an error.
    fn fail(&mut self, error: FsError);
    /// The error that it has as its answer so far.
    fn error(&self) -> Option<FsError>;
    /// What it did, if it ran well.
    fn effect(&self) -> Option<Effect>;
}

/// How a run ended.
pub(super) enum Ran {
    /// With an answer, to be committed.
    Done,
    /// With an error: nothing to commit.
    Failed,
    /// It needs to see more.
    More(Vec<crate::want::Want>),
}

/// An operation and its answer.
pub(super) struct Job<O: Op> {
    op: O,
    answer: Option<FsResult<O::Out>>,
}

impl<O: Op> Run for Job<O> {
    fn run(&mut self, view: &mut View<'_>) -> Ran {
        let (answer, ran) = match self.op.run(view) {
            Ok(out) => (Ok(out), Ran::Done),
            Err(Stop::Fail(error)) => (Err(error), Ran::Failed),
            Err(Stop::More(wants)) => return Ran::More(wants),
        };
        self.answer = Some(answer);
        ran
    }

    fn fail(&mut self, error: FsError) {
        tracing::debug!(op = O::NAME, %error, "failed");
        self.answer = Some(Err(error));
    }

    fn error(&self) -> Option<FsError> {
        self.answer.as_ref()?.as_ref().err().cloned()
    }

    fn effect(&self) -> Option<Effect> {
        self.answer.as_ref()?.as_ref().ok().and_then(|out| self.op.effect(out))
    }
}

/// An operation in the queue.
pub(super) struct QueuedOp<J: ?Sized> {
    /// [`Op::NAME`].
    pub(super) name: &'static str,
    pub(super) submitter: Arc<Submitter>,
    pub(super) conflict_keys: ConflictKeys,
    /// [`Op::fences`].
    pub(super) fences: Option<i64>,
    /// An operation without whose success it fails, too.
    after: Option<Arc<AnyQueuedOp>>,
    finished: AtomicBool,
    job: Mutex<J>,
}

/// A queued operation of any kind.
pub(super) type AnyQueuedOp = QueuedOp<dyn Run>;

impl<O: Op> QueuedOp<Job<O>> {
    pub(super) fn new(op: O, submitter: Arc<Submitter>) -> Self {
        let (conflict_keys, fences) = (op.conflict_keys(), op.fences());
        let job = Mutex::new(Job { op, answer: None });
        let (after, finished) = (None, AtomicBool::new(false));
        Self { name: O::NAME, submitter, conflict_keys, fences, after, finished, job }
    }

    /// Makes it fail with the error of `first` if that fails. Both share a conflict key, and
    /// `first` is queued before it.
    pub(super) fn after(self, first: Arc<AnyQueuedOp>) -> Self {
        Self { after: Some(first), ..self }
    }

    /// The answer, once.
    pub(super) fn take(&self) -> FsResult<O::Out> {
        let answer = self.job.lock().answer.take();
        answer.unwrap_or_else(|| Err(FsError::io("the operation got no answer; this is a fault in sluice")))
    }
}

impl AnyQueuedOp {
    pub(super) fn run(&self, view: &mut View<'_>) -> Ran {
        if let Some(error) = self.after.as_ref().and_then(|first| first.job.lock().error()) {
            self.fail(error);
            return Ran::Failed;
        }
        self.job.lock().run(view)
    }

    pub(super) fn fail(&self, error: FsError) {
        self.job.lock().fail(error);
    }

    /// Which request it is for and what that has got done, if it ran well and has a number.
    pub(super) fn effect(&self) -> Option<(u64, Effect)> {
        let asked = self.submitter.interrupt.asked()?;
        Some((asked.unique, self.job.lock().effect()?))
    }

    /// Lets the caller have the answer. Only the first call counts.
    pub(super) fn finish(&self) {
        if !self.finished.swap(true, Ordering::AcqRel) {
            self.submitter.finish_one();
        }
    }
}
