//! Group commit: whatever waits when a commit returns goes out together.
//!
//! A caller that finds a lane of the engine free runs the batch itself, on its own thread, with all
//! other operations that wait. A caller that finds no free lane sleeps. It is woken with its
//! answer, or to run the next batch. Before it runs that batch it may wait for the threads that
//! were answered with it (`commit_delay`). There are no timers and no threads of our own. An
//! operation that fails leaves no trace and fails alone.

mod attempt;
mod commit_delay;
mod failed;
mod notes;
mod resolve;
mod sched;
mod steps;
mod ticket;

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
use sched::Sched;
pub use sluice_types::Interrupt;
use ticket::{AnyTicket, Job, Ticket, Turn};

use crate::{
    engine::{Engine, EngineError, Notices},
    env::Env,
    op::{Lane, Op},
    schema::WriterId,
};

/// How long a dead engine is waited for.
pub const PATIENCE: Duration = Duration::from_mins(5);

/// Runs operations in batches.
pub struct Batcher {
    engine: Arc<dyn Engine>,
    env: Arc<Env>,
    writer: WriterId,
    /// Numbers of the commits of each lane.
    numbers: Box<[Numbers]>,
    batch: usize,
    notices: Notices,
    patience: Duration,
    sched: Mutex<Sched>,
    /// Held while a lane finds out that this client was taken for dead, so that all lanes count it
    /// once.
    fence: Mutex<()>,
    commit_delay: CommitDelay,
    batches: AtomicU64,
    ops: AtomicU64,
    wakes: Arc<AtomicU64>,
}

/// Numbers of the commits of one lane; whoever leads the lane changes them.
#[derive(Default)]
struct Numbers {
    /// Of the last commit that happened.
    reached: AtomicU64,
    /// The highest that a commit was given whose fate was unknown. None of these is given to
    /// another commit: found in the engine, it must say which of them happened.
    doubtful: AtomicU64,
    /// Whether the engine lost commits of this lane, which others may have seen and nobody has been
    /// told of yet.
    lost: AtomicBool,
}

/// What a batcher did so far.
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
    pub fn new(engine: Arc<dyn Engine>, env: Arc<Env>, writer: WriterId, patience: Duration) -> Self {
        let limits = engine.limits();
        let lanes = limits.lanes.max(1) as u16;
        Self {
            engine,
            env,
            writer,
            numbers: (0..lanes).map(|_| Numbers::default()).collect(),
            batch: limits.batch.max(1),
            notices: limits.notices,
            patience,
            sched: Mutex::new(Sched::new(lanes)),
            fence: Mutex::default(),
            commit_delay: CommitDelay::default(),
            batches: AtomicU64::new(0),
            ops: AtomicU64::new(0),
            wakes: Arc::default(),
        }
    }

    /// Lanes go on from these numbers.
    pub(crate) fn go_on(&self, reached: &[u64]) {
        for (lane, n) in self.numbers.iter().zip(reached) {
            lane.reached.store(*n, Ordering::Relaxed);
        }
    }

    /// What it did so far.
    pub fn stats(&self) -> BatchStats {
        BatchStats {
            batches: self.batches.load(Ordering::Relaxed),
            ops: self.ops.load(Ordering::Relaxed),
            wakes: self.wakes.load(Ordering::Relaxed),
        }
    }

    /// Operations that no batch has taken yet.
    pub fn queued(&self) -> usize {
        self.sched.lock().queued()
    }

    /// Runs one operation.
    pub fn submit<O: Op>(&self, op: O, interrupt: &Interrupt) -> FsResult<O::Out> {
        let turn = self.turn(1, interrupt);
        let ticket = Arc::new(Ticket::new(op, turn.clone()));
        self.drive(&turn, vec![ticket.clone()]);
        ticket.take()
    }

    /// Runs many operations, as many together as the engine takes. Answers in the order of the
    /// operations.
    pub fn submit_all<O: Op>(&self, ops: Vec<O>, interrupt: &Interrupt) -> Vec<FsResult<O::Out>> {
        let turn = self.turn(ops.len(), interrupt);
        let tickets: Vec<Arc<Ticket<Job<O>>>> =
            ops.into_iter().map(|op| Arc::new(Ticket::new(op, turn.clone()))).collect();
        self.drive(&turn, tickets.iter().map(|ticket| ticket.clone() as Arc<AnyTicket>).collect());
        tickets.iter().map(|ticket| ticket.take()).collect()
    }

    fn turn(&self, tickets: usize, interrupt: &Interrupt) -> Arc<Turn> {
        let until = wait::now() + self.patience;
        Arc::new(Turn::new(tickets, interrupt.clone(), until, self.wakes.clone()))
    }

    /// Queues tickets of the calling thread and returns when all are answered.
    fn drive(&self, turn: &Arc<Turn>, tickets: Vec<Arc<AnyTicket>>) {
        self.lead_or_wait(turn, tickets);
        turn.interrupt.detach();
    }

    fn lead_or_wait(&self, turn: &Arc<Turn>, tickets: Vec<Arc<AnyTicket>>) {
        let mut lane = self.sched.lock().queue(turn, tickets);
        loop {
            if let Some(lane) = lane.take().or_else(|| turn.take_lead()) {
                self.lead(lane, turn);
            } else if turn.is_done() {
                // Somebody may have handed a lane to this thread before somebody else answered its
                // last operation.
                lane = turn.take_lead();
                if lane.is_none() {
                    return;
                }
            } else if turn.wait() {
                self.withdraw(turn);
            }
        }
    }

    /// Answers the caller's tickets that no batch has taken yet with `Interrupted`.
    fn withdraw(&self, turn: &Arc<Turn>) {
        let mine = self.sched.lock().withdraw(turn);
        for ticket in mine {
            ticket.fail(FsError::Interrupted);
            ticket.finish();
        }
    }

    /// Runs one batch in `lane`, then hands the lane on.
    fn lead(&self, lane: u16, own: &Arc<Turn>) {
        self.commit_delay.wait(|| self.sched.lock().company());
        let Some(gathered) = self.sched.lock().gather(lane, own, self.batch) else { return };
        let begun = wait::now();
        self.batches.fetch_add(1, Ordering::Relaxed);
        self.ops.fetch_add(gathered.tickets.len() as u64, Ordering::Relaxed);
        let left = self.run(lane, &gathered.tickets, own);
        self.commit_delay.answered(&gathered.tickets, wait::now().saturating_duration_since(begun));
        self.sched.lock().release(lane, own, &gathered.lanes, &left);
        for ticket in gathered.tickets.iter().filter(|ticket| !is_among(ticket, &left)) {
            ticket.finish();
        }
    }

    /// Runs `batch` until each of its operations has an answer. Where the caller gave up waiting
    /// itself, those of others that have none yet are left for another thread.
    fn run(&self, lane: u16, batch: &[Arc<AnyTicket>], own: &Turn) -> Vec<Arc<AnyTicket>> {
        let mut tries = 0;
        let mut groups = VecDeque::from([batch.to_vec()]);
        while let Some(group) = groups.pop_front() {
            // Whoever waits for the lane would wait for ever if a panic took it along.
            let attempt = AssertUnwindSafe(|| self.attempt(lane, &group, tries > 0));
            let outcome = catch_unwind(attempt).unwrap_or_else(|_| Err(self.panicked(lane)));
            let (reason, conflict) = match outcome {
                Ok(()) => {
                    tries = 0;
                    continue;
                }
                Err(Failed::Again { culprits }) => {
                    for part in split(group, &culprits).into_iter().rev() {
                        groups.push_front(part);
                    }
                    (FsError::io("others keep changing what the operation works on"), true)
                }
                Err(Failed::Unavailable(error)) => {
                    groups.push_front(group);
                    (FsError::io(error), false)
                }
                Err(Failed::Refused(error)) => {
                    refuse(group, &error, &mut groups);
                    continue;
                }
                Err(Failed::Unknown(error)) => {
                    let error = FsError::io(error);
                    for ticket in &group {
                        // Who was interrupted expects that it may have happened.
                        let interrupted = ticket.turn.interrupt.is_set();
                        ticket.fail(if interrupted { FsError::Interrupted } else { error.clone() });
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
}

/// The parts in which to try again: the innocent together, then each culprit alone, each operation
/// after those before it that share a lane with it.
fn split(group: Vec<Arc<AnyTicket>>, culprits: &FxHashSet<usize>) -> Vec<Vec<Arc<AnyTicket>>> {
    let mut innocent = Vec::new();
    let mut parts: Vec<Vec<Arc<AnyTicket>>> = Vec::new();
    let mut behind: FxHashSet<Lane> = FxHashSet::default();
    let mut open = false;
    for (at, ticket) in group.into_iter().enumerate() {
        if culprits.contains(&at) {
            behind.extend(ticket.lanes.iter().copied());
            parts.push(vec![ticket]);
            open = false;
        } else if ticket.lanes.iter().any(|lane| behind.contains(lane)) {
            behind.extend(ticket.lanes.iter().copied());
            match parts.last_mut() {
                Some(part) if open => part.push(ticket),
                _ => parts.push(vec![ticket]),
            }
            open = true;
        } else {
            innocent.push(ticket);
        }
    }
    if !innocent.is_empty() {
        parts.insert(0, innocent);
    }
    parts
}

/// One operation that the engine cannot serve must not fail its neighbours.
fn refuse(group: Vec<Arc<AnyTicket>>, error: &EngineError, groups: &mut VecDeque<Vec<Arc<AnyTicket>>>) {
    if group.len() == 1 {
        // The caller can make room and try again.
        let full = matches!(error, EngineError::Full(_));
        fail(&group, &if full { FsError::TooBig } else { FsError::io(error) });
    } else {
        for ticket in group.into_iter().rev() {
            groups.push_front(vec![ticket]);
        }
    }
}

/// Answers the operations whose callers wait no longer, or have waited too long, at once: the batch
/// may go on waiting.
fn give_up(groups: &mut VecDeque<Vec<Arc<AnyTicket>>>, reason: &FsError) {
    let now = wait::now();
    for group in groups.iter_mut() {
        group.retain(|ticket| {
            let interrupted = ticket.turn.interrupt.is_set();
            if interrupted || now >= ticket.turn.until {
                ticket.fail(if interrupted { FsError::Interrupted } else { reason.clone() });
                ticket.finish();
                return false;
            }
            true
        });
    }
    groups.retain(|group| !group.is_empty());
}

fn fail(group: &[Arc<AnyTicket>], error: &FsError) {
    for ticket in group {
        ticket.fail(error.clone());
    }
}

fn is_among(ticket: &Arc<AnyTicket>, tickets: &[Arc<AnyTicket>]) -> bool {
    tickets.iter().any(|other| Arc::ptr_eq(ticket, other))
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
