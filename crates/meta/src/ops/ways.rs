//! Operations in directories that are reached by paths, with no trip of its own for the way.
//!
//! What must stay true: the operation runs only if each way leads, now, to the directory that it
//! works in. Otherwise nothing happens, and the caller has to follow the path first.

use sluice_types::{Access, Caller, FsError, Ino, Name};

use super::rules;
use crate::{
    effect_log::Effect,
    engine::Hold,
    op::{ConflictKeys, Op},
    schema::Key,
    view::{Stop, View},
    want::Want,
};

/// A way to a directory of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where it begins.
    pub dir: Ino,
    /// The names that lead on, each with the directory that it probably stands for.
    pub steps: Vec<(Name, Ino)>,
    /// Who goes.
    pub caller: Caller,
}

impl Way {
    /// Where it probably leads.
    pub fn end(&self) -> Ino {
        self.steps.last().map_or(self.dir, |(_, end)| *end)
    }

    /// All that is read. The guesses spare the engine to look up which node an entry names.
    fn wants(&self) -> Vec<Want> {
        let mut wants = Vec::with_capacity(2 * self.steps.len() + 1);
        wants.push(Want::node(self.dir, Hold::None));
        let mut at = self.dir;
        for (number, (name, next)) in self.steps.iter().enumerate() {
            wants.push(Want::get(Key::Entry(at, name.clone()), Hold::None));
            // As the operation asks for the directory that it changes: so it is read once.
            let last = number + 1 == self.steps.len();
            wants.push(Want::node(*next, if last { Hold::Guard } else { Hold::None }));
            at = *next;
        }
        wants
    }

    /// Fails unless it leads where it should.
    fn follow(&self, view: &mut View<'_>) -> Result<(), Stop> {
        let mut attr = rules::existing(view, self.dir, Hold::None)?;
        let mut at = self.dir;
        for (name, next) in &self.steps {
            rules::require(attr.is_dir(), FsError::Again)?;
            rules::check(view, &self.caller, &attr, Access::EXEC)?;
            let entry = view.entry(at, name, Hold::None)?;
            rules::require(entry.is_some_and(|entry| entry.ino == *next), FsError::Again)?;
            attr = view.node(*next, Hold::None)?.ok_or(FsError::Again)?;
            at = *next;
        }
        Ok(())
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
    /// [`FsError::Again`] if a way leads elsewhere by now, [`FsError::Access`] if the caller may
    /// not search a directory on it; those of the operation.
    fn run(&self, view: &mut View<'_>) -> Result<O::Out, Stop> {
        let mut missing = Vec::new();
        for way in &self.ways {
            match way.follow(view) {
                Ok(()) => {}
                Err(Stop::More(next)) => match view.want(&way.wants()) {
                    Err(Stop::More(wants)) => missing.extend(wants),
                    _ => missing.extend(next),
                },
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
