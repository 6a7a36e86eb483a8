//! The scheduler of batches: the queue, the conflict keys of running operations and the free lanes
//! of the engine.
//!
//! At any time, a lane of the engine is free, used by one thread, or assigned to a thread whose
//! operations still wait. Lanes are assigned only under the lock, so none is lost.

use std::{collections::VecDeque, sync::Arc};

use rustc_hash::FxHashSet;

use super::queued_op::{AnyQueuedOp, Submitter};
use crate::op::ConflictKey;

pub(super) struct Sched {
    queue: VecDeque<Arc<AnyQueuedOp>>,
    busy: FxHashSet<ConflictKey>,
    free: Vec<u16>,
    lanes: u16,
    /// The thread that was told to run the next batch and has not begun yet.
    next: Option<Arc<Submitter>>,
}

/// A batch and the conflict keys of its operations.
pub(super) struct Gathered {
    pub(super) queued: Vec<Arc<AnyQueuedOp>>,
    pub(super) conflict_keys: Vec<ConflictKey>,
}

impl Sched {
    pub(super) fn new(lanes: u16) -> Self {
        Self {
            queue: VecDeque::new(),
            busy: FxHashSet::default(),
            free: (0..lanes).rev().collect(),
            lanes,
            next: None,
        }
    }

    /// Queues operations of `own`; the lane in which it is to run a batch at once, if one is free.
    pub(super) fn queue(&mut self, own: &Submitter, queued: Vec<Arc<AnyQueuedOp>>) -> Option<u16> {
        self.queue.extend(queued);
        let lane = self.free.pop();
        own.set_leading(lane.is_some());
        lane
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Operations that wait, for a thread that holds a lane and may wait for more; `None` if a
    /// batch is running in another: then those that wait now are those that it left, and the others
    /// do not come before it ends.
    pub(super) fn company(&self) -> Option<usize> {
        (self.free.len() + 1 >= usize::from(self.lanes)).then_some(self.queue.len())
    }

    /// Takes the operations of a thread that no batch has taken yet out of the queue.
    pub(super) fn withdraw(&mut self, submitter: &Arc<Submitter>) -> Vec<Arc<AnyQueuedOp>> {
        let (mine, others) = self.queue.drain(..).partition(|op| Arc::ptr_eq(&op.submitter, submitter));
        self.queue = others;
        mine.into()
    }

    /// Takes the operations that may run now, in order, and marks their conflict keys busy; `own`
    /// then leads in `lane`. If there are none, the lane is free again.
    pub(super) fn gather(&mut self, lane: u16, own: &Arc<Submitter>, limit: usize) -> Option<Gathered> {
        if self.next.as_ref().is_some_and(|submitter| Arc::ptr_eq(submitter, own)) {
            self.next = None;
        }
        let mut queued = Vec::new();
        let mut conflict_keys = FxHashSet::default();
        let mut blocked = FxHashSet::default();
        let mut rest = VecDeque::new();
        while let Some(op) = self.queue.pop_front() {
            if self.waits(&op, &mut blocked) {
                rest.push_back(op);
            } else {
                conflict_keys.extend(op.conflict_keys.iter().copied());
                queued.push(op);
                if queued.len() == limit {
                    break;
                }
            }
        }
        rest.append(&mut self.queue);
        self.queue = rest;
        if queued.is_empty() {
            own.set_leading(false);
            self.free.push(lane);
            return None;
        }
        self.busy.extend(conflict_keys.iter().copied());
        own.set_leading(true);
        self.hand_out();
        Some(Gathered { queued, conflict_keys: conflict_keys.into_iter().collect() })
    }

    /// Whether an operation must wait: for a batch that is running, or for an operation before it
    /// that waits.
    fn waits(&self, op: &AnyQueuedOp, blocked: &mut FxHashSet<ConflictKey>) -> bool {
        let waits = op.conflict_keys.iter().any(|key| self.busy.contains(key) || blocked.contains(key));
        if waits {
            blocked.extend(op.conflict_keys.iter().copied());
        }
        waits
    }

    /// Takes back the conflict keys of a batch, queues what it left undone and hands the engine's
    /// lane on.
    pub(super) fn release(
        &mut self,
        lane: u16,
        own: &Submitter,
        keys: &[ConflictKey],
        left: &[Arc<AnyQueuedOp>],
    ) {
        own.set_leading(false);
        for key in keys {
            self.busy.remove(key);
        }
        for op in left.iter().rev() {
            self.queue.push_front(op.clone());
        }
        self.free.push(lane);
        self.hand_out();
    }

    /// Tells the thread of the first operation that may run to run a batch. One at a time: it takes
    /// everything that may run, and sees itself to what does not fit.
    fn hand_out(&mut self) {
        if self.next.is_some() || self.free.is_empty() {
            return;
        }
        let mut blocked = FxHashSet::default();
        // A thread that runs a batch looks for more of its own when it ends.
        let runnable = |op: &&Arc<AnyQueuedOp>| !self.waits(op, &mut blocked) && !op.submitter.is_leading();
        let Some(submitter) = self.queue.iter().find(runnable).map(|op| op.submitter.clone()) else { return };
        if let Some(lane) = self.free.pop() {
            submitter.lead(lane);
            self.next = Some(submitter);
        }
    }
}

#[cfg(test)]
mod tests;
