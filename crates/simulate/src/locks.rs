//! Locks of files: compares the locks that an owner believes it holds with the lock records.
//!
//! A file counts as five parts: four ranges of record locks, and the whole for `flock(2)`.

use std::collections::BTreeMap;

use sluice_meta::{
    Stop, View,
    engine::{Hold, List},
    op::{ConflictKeys, Op},
    ops::{flock::Flock, plock::SetPlock},
    schema::{FlockKind, Key, LockOwner, PlockRange, Row},
};
use sluice_types::{FsError, FsResult, Ino};

/// Ranges of record locks of a file.
const RANGES: u64 = 4;
/// Bytes of one range.
const RANGE: u64 = 10;

/// A part of a file, and who holds a lock of it.
type Part = (Ino, LockOwner, u64);

/// A lock that is to be taken or released.
#[derive(Clone, Debug)]
pub(crate) enum LockRequest {
    /// Of the whole file.
    Flock(Flock),
    /// Of some ranges.
    Plock(SetPlock),
}

impl LockRequest {
    /// What `below` draws; it answers with a number below its bound.
    pub(crate) fn drawn(ino: Ino, owner: LockOwner, below: impl Fn(u64) -> u64) -> Self {
        let (unlock, write) = (below(3) == 0, below(2) == 0);
        if below(2) == 0 {
            let kind = if write { FlockKind::Write } else { FlockKind::Read };
            return Self::Flock(Flock { ino, owner, kind: (!unlock).then_some(kind) });
        }
        let first = below(RANGES);
        let after = first + 1 + below(RANGES - first);
        let range = PlockRange { write, pid: 1, start: first * RANGE, end: after * RANGE - 1 };
        Self::Plock(SetPlock { ino, owner, range, unlock })
    }

    pub(crate) fn conflict_keys(&self) -> ConflictKeys {
        match self {
            Self::Flock(op) => op.conflict_keys(),
            Self::Plock(op) => op.conflict_keys(),
        }
    }

    /// Whether anything changes.
    pub(crate) fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        let list = match self {
            Self::Flock(op) => {
                op.run(view)?;
                List::Flocks(op.ino)
            }
            Self::Plock(op) => {
                op.run(view)?;
                List::Plocks(op.ino)
            }
        };
        let before = on_record(view.all(list, Hold::Lock)?.iter());
        Ok(self.parts().iter().any(|part| before.get(part).copied() != self.held()))
    }

    /// The parts that it is about.
    fn parts(&self) -> Vec<Part> {
        match self {
            Self::Flock(op) => vec![(op.ino, op.owner, RANGES)],
            Self::Plock(op) => ranges(&op.range).map(|at| (op.ino, op.owner, at)).collect(),
        }
    }

    /// Whether they are exclusively held after it, `None` if they are not held.
    fn held(&self) -> Option<bool> {
        match self {
            Self::Flock(op) => op.kind.map(|kind| kind == FlockKind::Write),
            Self::Plock(op) => (!op.unlock).then_some(op.range.write),
        }
    }
}

fn ranges(range: &PlockRange) -> impl Iterator<Item = u64> {
    range.start / RANGE..=(range.end / RANGE).min(RANGES - 1)
}

/// The parts that are locked on record, and whether exclusively.
pub(crate) fn on_record<'r>(rows: impl Iterator<Item = &'r Row>) -> BTreeMap<Part, bool> {
    let mut held = BTreeMap::new();
    for row in rows {
        match row {
            Row::Flock(ino, owner, kind) => {
                held.insert((*ino, *owner, RANGES), *kind == FlockKind::Write);
            }
            Row::Plock(ino, owner, locked) => {
                for range in locked {
                    held.extend(ranges(range).map(|at| ((*ino, *owner, at), range.write)));
                }
            }
            _ => {}
        }
    }
    held
}

/// Two owners who must not hold their locks at once, if there are any.
pub(crate) fn clash(held: &BTreeMap<Part, bool>) -> Option<(Part, Part)> {
    let exclusive = held.iter().filter(|(_, exclusive)| **exclusive);
    exclusive.map(|(part, _)| part).find_map(|part| {
        let other = held.keys().find(|other| other.0 == part.0 && other.2 == part.2 && other.1 != part.1);
        other.map(|other| (*part, *other))
    })
}

/// Who holds the lock that a key stands for.
pub(crate) fn owner(key: &Key) -> Option<LockOwner> {
    match key {
        Key::Flock(_, owner) | Key::Plock(_, owner) => Some(*owner),
        _ => None,
    }
}

/// What the owners in one client believe.
#[derive(Default)]
pub(crate) struct Beliefs(BTreeMap<Part, Belief>);

struct Belief {
    /// Whether anybody knows whether it is held.
    known: bool,
    /// Whether it is held exclusively, `None` if it is not held.
    held: Option<bool>,
    /// How often the client had been fenced when it was asked for.
    fences: u64,
}

impl Beliefs {
    /// Takes in the answer to a request.
    pub(crate) fn heard<T>(&mut self, request: &LockRequest, answer: &FsResult<T>, fences: u64) {
        let known = match answer {
            Ok(_) => true,
            Err(FsError::Io(_) | FsError::Interrupted) => false,
            Err(_) => return,
        };
        let held = request.held();
        self.0.extend(request.parts().into_iter().map(|part| (part, Belief { known, held, fences })));
    }

    /// What is wrong, or not on record as it should be. Locks of before the client was taken for
    /// dead are lost.
    pub(crate) fn wrong(&self, record: &BTreeMap<Part, bool>, fences: u64) -> Vec<String> {
        let known = self.0.iter().filter(|(_, belief)| belief.known && belief.fences == fences);
        let wrong = known.filter(|(part, belief)| record.get(part).copied() != belief.held);
        wrong
            .map(|(part, belief)| format!("{part:?} {:?}, not {:?}", belief.held, record.get(part)))
            .collect()
    }
}
