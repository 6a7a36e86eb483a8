//! Group commit: whatever waits when a commit returns goes out together.
//!
//! A caller that finds a lane of the engine free runs the batch itself, on its own thread, with whatever else waits; a
//! caller that finds none waits, and is woken either with its answer or to run the next batch. There are no timers and
//! no threads of our own. An operation that fails leaves no trace and fails alone.

mod attempt;
mod ticket;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sluice_types::{FsError, FsResult};

use attempt::Failed;
pub use ticket::Interrupt;
use ticket::{AnyTicket, Job, Ticket, Turn};

use crate::{
    engine::Engine,
    env::Env,
    op::{Lane, Op},
    schema::WriterId,
};

/// How long a dead engine is waited for.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Runs operations in batches.
pub struct Batcher {
    engine: Arc<dyn Engine>,
    env: Arc<Env>,
    writer: WriterId,
    /// Number of the last commit of each lane.
    steps: Box<[AtomicU64]>,
    batch: usize,
    patience: Duration,
    sched: Mutex<Sched>,
}

struct Sched {
    queue: VecDeque<Arc<AnyTicket>>,
    busy: FxHashSet<Lane>,
    free: Vec<u16>,
}

impl Batcher {
    /// A batcher that commits as `writer`, whose records must be registered (all at 0).
    pub(crate) fn new(engine: Arc<dyn Engine>, env: Arc<Env>, writer: WriterId, patience: Duration) -> Self {
        let limits = engine.limits();
        let lanes = limits.lanes.max(1) as u16;
        Self {
            engine,
            env,
            writer,
            steps: (0..lanes).map(|_| AtomicU64::new(0)).collect(),
            batch: limits.batch.max(1),
            patience,
            sched: Mutex::new(Sched {
                queue: VecDeque::new(),
                busy: FxHashSet::default(),
                free: (0..lanes).rev().collect(),
            }),
        }
    }

    /// Runs one operation.
    pub fn submit<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        let turn = Arc::new(Turn::new(1, interrupt.clone()));
        let ticket = Arc::new(Ticket::new(op, turn.clone()));
        self.drive(&turn, vec![ticket.clone()]);
        ticket.take()
    }

    /// Runs many operations, as many together as the engine takes. Answers in the order of the operations.
    pub fn submit_all<O: Op>(&self, ops: Vec<O>, interrupt: &Interrupt) -> Vec<FsResult<O::Out>> {
        let turn = Arc::new(Turn::new(ops.len(), interrupt.clone()));
        let tickets: Vec<Arc<Ticket<Job<O>>>> =
            ops.into_iter().map(|op| Arc::new(Ticket::new(op, turn.clone()))).collect();
        self.drive(&turn, tickets.iter().map(|ticket| ticket.clone() as Arc<AnyTicket>).collect());
        tickets.iter().map(|ticket| ticket.take()).collect()
    }

    /// Queues tickets of the calling thread and returns when all are answered.
    fn drive(&self, turn: &Arc<Turn>, tickets: Vec<Arc<AnyTicket>>) {
        {
            let mut sched = self.sched.lock();
            sched.queue.extend(tickets);
            if let Some(lane) = sched.free.pop() {
                turn.lead(lane);
            }
        }
        loop {
            if let Some(lane) = turn.take_lead() {
                self.lead(lane, turn);
            } else if turn.is_done() {
                return;
            } else if turn.wait() {
                self.withdraw(turn);
            }
        }
    }

    /// Answers the caller's tickets that no batch has taken yet with `Interrupted`.
    fn withdraw(&self, turn: &Arc<Turn>) {
        let mut mine = Vec::new();
        self.sched.lock().queue.retain(|ticket| {
            let keep = !Arc::ptr_eq(&ticket.turn, turn);
            if !keep {
                mine.push(ticket.clone());
            }
            keep
        });
        for ticket in mine {
            ticket.fail(FsError::Interrupted);
            ticket.turn.finish_one();
        }
    }

    /// Runs one batch in `lane`, then hands the lane on.
    fn lead(&self, lane: u16, own: &Arc<Turn>) {
        let (batch, lanes) = {
            let mut sched = self.sched.lock();
            let gathered = sched.gather(self.batch);
            if gathered.0.is_empty() {
                sched.free.push(lane);
                return;
            }
            gathered
        };
        self.run(lane, &batch, &own.interrupt);
        let next = {
            let mut sched = self.sched.lock();
            for lane in &lanes {
                sched.busy.remove(lane);
            }
            let next = sched.runnable();
            if next.is_none() {
                sched.free.push(lane);
            }
            next
        };
        if let Some(next) = next {
            next.lead(lane);
        }
        for ticket in &batch {
            ticket.turn.finish_one();
        }
    }

    /// Runs `batch` until each of its operations has an answer.
    fn run(&self, lane: u16, batch: &[Arc<AnyTicket>], interrupt: &Interrupt) {
        let mut patience = Patience { until: Instant::now() + self.patience, tries: 0, interrupt };
        let mut groups: Vec<Vec<Arc<AnyTicket>>> = vec![batch.to_vec()];
        while let Some(group) = groups.pop() {
            match self.attempt(lane, &group, &mut patience) {
                Ok(()) => patience.tries = 0,
                Err(Failed::Again { culprits }) => {
                    if !patience.back_off(true) {
                        fail(&group, &patience.end("others keep changing what the operation works on"));
                        continue;
                    }
                    // The innocent go first, together; each culprit then goes alone.
                    let (bad, good): (Vec<_>, Vec<_>) =
                        group.into_iter().enumerate().partition(|(at, _)| culprits.contains(at));
                    groups.extend(bad.into_iter().map(|(_, ticket)| vec![ticket]));
                    if !good.is_empty() {
                        groups.push(good.into_iter().map(|(_, ticket)| ticket).collect());
                    }
                }
                Err(Failed::Unavailable(error)) => {
                    if patience.back_off(false) {
                        groups.push(group);
                    } else {
                        fail(&group, &patience.end(error));
                    }
                }
                Err(Failed::Refused(error)) => {
                    // One operation that the engine cannot serve must not fail its neighbours.
                    if group.len() == 1 {
                        fail(&group, &FsError::io(error));
                    } else {
                        groups.extend(group.into_iter().map(|ticket| vec![ticket]));
                    }
                }
                Err(Failed::Unknown(error)) => fail(&group, &FsError::io(error)),
            }
        }
    }

    fn step(&self, lane: u16) -> &AtomicU64 {
        &self.steps[usize::from(lane)]
    }
}

fn fail(group: &[Arc<AnyTicket>], error: &FsError) {
    for ticket in group {
        ticket.fail(error.clone());
    }
}

impl Sched {
    /// Takes the operations that may run now, in order, and marks their lanes busy.
    fn gather(&mut self, limit: usize) -> (Vec<Arc<AnyTicket>>, Vec<Lane>) {
        let mut batch = Vec::new();
        let mut lanes = FxHashSet::default();
        let mut blocked: FxHashSet<Lane> = FxHashSet::default();
        let mut rest = VecDeque::new();
        while let Some(ticket) = self.queue.pop_front() {
            let clash = ticket.lanes.iter().any(|lane| self.busy.contains(lane) || blocked.contains(lane));
            if batch.len() == limit || clash {
                blocked.extend(ticket.lanes.iter().copied());
                rest.push_back(ticket);
                if batch.len() == limit {
                    break;
                }
            } else {
                lanes.extend(ticket.lanes.iter().copied());
                batch.push(ticket);
            }
        }
        rest.append(&mut self.queue);
        self.queue = rest;
        self.busy.extend(lanes.iter().copied());
        (batch, lanes.into_iter().collect())
    }

    /// Whose turn it is to run the next batch, if anything can run.
    fn runnable(&self) -> Option<Arc<Turn>> {
        let free = |ticket: &&Arc<AnyTicket>| !ticket.lanes.iter().any(|lane| self.busy.contains(lane));
        self.queue.iter().find(free).map(|ticket| ticket.turn.clone())
    }
}

/// How long to go on trying.
struct Patience<'i> {
    until: Instant,
    tries: u32,
    interrupt: &'i Interrupt,
}

impl Patience<'_> {
    /// Waits before the next try; false if patience has ended. The first conflicts are tried again at once.
    fn back_off(&mut self, conflict: bool) -> bool {
        self.tries += 1;
        if Instant::now() >= self.until || self.interrupt.is_set() {
            return false;
        }
        let pause = match (conflict, self.tries) {
            (true, 0..=3) => return true,
            (true, tries) => Duration::from_millis(u64::from(tries.min(30))),
            (false, tries) => Duration::from_millis(10 << tries.min(7)),
        };
        self.interrupt.sleep(pause);
        true
    }

    /// The error when patience has ended.
    fn end(&self, reason: impl std::fmt::Display) -> FsError {
        if self.interrupt.is_set() { FsError::Interrupted } else { FsError::io(reason) }
    }
}
