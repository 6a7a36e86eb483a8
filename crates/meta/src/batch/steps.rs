//! The numbers of the commits of each lane.

use std::sync::{Arc, atomic::Ordering};

use sluice_types::{FsError, Ino};

use super::{Batcher, queued_op::AnyQueuedOp};
use crate::{
    engine::{Commit, Expect, Hold, Step, Write},
    record_cache::{RecordCache, Sent},
    schema::{Counter, Key, Row},
};

impl Batcher {
    /// Fails an operation that was asked for under locks that this client has lost since; whether
    /// it did.
    pub(super) fn comes_too_late(&self, op: &AnyQueuedOp) -> bool {
        let late = op.fences.is_some_and(|fences| fences < self.env.fences());
        if late {
            op.fail(FsError::LockLost);
        }
        late
    }

    /// Takes note of a commit, and when it was sent if that is known.
    pub(super) fn committed(&self, commit: &Commit, step: Step, sent: Option<Sent>) {
        self.reached(step.lane, step.to);
        match (&self.env.record_cache, sent) {
            (Some(record_cache), Some(sent)) => record_cache.committed(&commit.writes, sent),
            (Some(record_cache), None) => forget(record_cache, commit),
            (None, _) => {}
        }
        for write in &commit.writes {
            match write {
                Write::Count(Counter::UsedSpace, by) => self.env.counting().add(*by, 0),
                Write::Count(Counter::TotalInodes, by) => self.env.counting().add(0, *by),
                Write::Charge(key, space, inodes) => self.env.counting().charge(*key, *space, *inodes),
                Write::Insert(Row::Acl(id, rule)) => self.env.learn_acl(*id, Arc::new(rule.clone())),
                Write::Put(Row::Sustained(sid, ino)) if *sid == self.env.sid => self.env.sustains(*ino, true),
                Write::Delete(Key::Sustained(sid, ino)) if *sid == self.env.sid => {
                    self.env.sustains(*ino, false);
                }
                _ => {}
            }
        }
    }

    /// Takes note of where directories lie: as operations saw it, which the commit compared, or as
    /// the commit left it.
    pub(super) fn learn_places(&self, commit: &Commit, seen: Vec<(Ino, Ino)>) {
        let found = commit.expects.iter().find_map(|expect| match expect {
            Expect::Row(Row::Counter(Counter::DirMoves, moves), Hold::Lock) => Some(*moves),
            _ => None,
        });
        let left = commit.writes.iter().find_map(|write| match write {
            Write::Put(Row::Counter(Counter::DirMoves, moves)) => Some(*moves),
            _ => None,
        });
        let moved = commit.writes.iter().filter_map(|write| match write {
            Write::Put(Row::Node(dir, attr)) if attr.is_dir() => Some((*dir, attr.parent)),
            _ => None,
        });
        match (found, left) {
            (Some(from), Some(to)) => self.env.parents.moved((from, to), moved),
            // The root of a clone gets its place without a move: nobody else knows it yet.
            (Some(moves), None) => self.env.parents.learn(moves, seen.into_iter().chain(moved)),
            (None, _) => {}
        }
    }

    pub(super) fn next_step(&self, lane: u16) -> Step {
        let numbers = &self.numbers[usize::from(lane)];
        let from = numbers.reached.load(Ordering::Relaxed);
        let used = from.max(numbers.doubtful.load(Ordering::Relaxed));
        Step { writer: self.writer, lane, from, to: used + 1 }
    }

    pub(super) fn reached(&self, lane: u16, n: u64) {
        self.numbers[usize::from(lane)].reached.store(n, Ordering::Relaxed);
    }

    /// Whether the commit with this number happened, or will, is unknown.
    pub(super) fn doubt(&self, step: Step) {
        self.numbers[usize::from(step.lane)].doubtful.fetch_max(step.to, Ordering::Relaxed);
    }
}

/// Forgets what a commit changed, or may have.
pub(super) fn forget(record_cache: &RecordCache, commit: &Commit) {
    record_cache.forget(&commit.writes.iter().filter_map(Write::key).collect::<Vec<_>>());
}
