//! Operations in directories that are reached by paths, with no trip of its own for the way.
//!
//! What must stay true: the operation runs only if each way leads, now, to the directory that it
//! works in. Otherwise nothing happens, and the caller has to follow the path first.

use sluice_types::{FsError, Ino};

use super::walk::Walk;
use crate::{
    effect_log::Effect,
    op::{ConflictKeys, Op},
    view::{Stop, View},
};

/// A way to a directory of an operation: to what its last guess says.
#[derive(Clone, Debug)]
pub struct Way(Walk);

impl Way {
    /// The way of a walk all names of which have a guess.
    pub fn new(walk: Walk) -> Option<Self> {
        (!walk.names.is_empty() && walk.guesses.len() == walk.names.len()).then_some(Self(walk))
    }

    /// Where it leads.
    pub fn end(&self) -> Ino {
        self.0.guesses.last().copied().unwrap_or(self.0.dir)
    }

    /// Fails unless it leads there.
    fn follow(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let walked = self.0.run(view)?;
        let found = walked.found.iter().map(|(ino, _)| ino);
        if found.eq(&self.0.guesses) { Ok(()) } else { Err(FsError::Again.into()) }
    }
}

/// An operation whose directories were not looked up before. What it reads and what its ways read
/// come by one trip.
#[derive(Clone, Debug)]
pub struct ByWays<O> {
    /// The ways to its directories, as far as they are not known to be there.
    pub ways: Vec<Way>,
    /// The operation.
    pub op: O,
}

impl<O: Op> Op for ByWays<O> {
    type Out = O::Out;
    const NAME: &'static str = O::NAME;

    fn conflict_keys(&self) -> ConflictKeys {
        self.op.conflict_keys()
    }

    fn fences(&self) -> Option<i64> {
        self.op.fences()
    }

    /// # Errors
    /// [`FsError::Again`] if a way leads elsewhere by now; those of [`Walk`], and those of the
    /// operation.
    fn run(&self, view: &mut View<'_>) -> Result<O::Out, Stop> {
        let mut missing = Vec::new();
        for way in &self.ways {
            match way.follow(view) {
                Ok(()) => {}
                Err(Stop::More(wants)) => missing.extend(wants),
                Err(failed) => return Err(failed),
            }
        }
        if missing.is_empty() {
            return self.op.run(view);
        }
        // Most ways lead where they led before. Whatever it decides on that is decided again.
        if let Err(Stop::More(wants)) = self.op.run(view) {
            missing.extend(wants);
        }
        Err(Stop::More(missing))
    }

    fn effect(&self, out: &O::Out) -> Option<Effect> {
        self.op.effect(out)
    }
}
