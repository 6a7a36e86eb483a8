//! Allocate: reserves ids for this client.

use smallvec::smallvec;

use super::rules;
use crate::{
    change_log::Line,
    op::{ConflictKey, ConflictKeys, Op},
    schema::{Counter, Row},
    view::{Stop, View},
};

/// Raises a counter by `count` and answers its value before. Two trips.
#[derive(Clone, Debug)]
pub struct Allocate {
    /// The counter.
    pub counter: Counter,
    /// How many numbers.
    pub count: u64,
}

impl Op for Allocate {
    type Out = u64;
    const NAME: &'static str = "allocate";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume(self.counter.name())]
    }

    fn run(&self, view: &mut View<'_>) -> Result<u64, Stop> {
        let before = rules::counter(view, self.counter)?;
        view.put(Row::Counter(self.counter, before + self.count as i64));
        view.log(|| Line::Count(self.counter, self.count as i64));
        Ok(before as u64)
    }
}

/// Takes a turn at a periodic job: succeeds if the job's last turn was before `due`. Two trips.
#[derive(Clone, Debug)]
pub struct TakeTurn {
    /// The job's counter.
    pub job: Counter,
    /// Unix seconds; a turn at or after this is too recent.
    pub due: i64,
    /// Unix seconds of this turn.
    pub now: i64,
}

impl Op for TakeTurn {
    type Out = bool;
    const NAME: &'static str = "take_turn";

    fn conflict_keys(&self) -> ConflictKeys {
        smallvec![ConflictKey::Volume(self.job.name())]
    }

    fn run(&self, view: &mut View<'_>) -> Result<bool, Stop> {
        if rules::counter(view, self.job)? > self.due {
            return Ok(false);
        }
        view.put(Row::Counter(self.job, self.now));
        view.log(|| Line::Set(self.job, self.now));
        Ok(true)
    }
}
