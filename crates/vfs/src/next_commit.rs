//! A change of a file's attributes that the last commit of its data takes along. That saves a round
//! trip.
//!
//! What must stay true: the change is committed after all data that was written before it, and only
//! if that data was. Otherwise a file that is not complete would have a time that says it is, and a
//! later commit would set the time at which the data was written.

use parking_lot::Mutex;
use sluice_meta::{Interrupt, ops::setattr::SetAttr};
use sluice_types::{Attr, FsError, FsResult};

/// A change, and an interrupt that is never set. It says to which request the change belongs.
type Change = (SetAttr, Interrupt);

/// The change that waits for the last commit of a file's data.
#[derive(Default)]
pub(crate) struct NextCommit(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    /// It waits.
    Waits(Box<Change>),
    /// A commit that contains it is under way.
    Taken,
    /// A commit contained it, and this is the result.
    Done(FsResult<Attr>),
}

/// A change that waits or is committed, until this is dropped.
pub(crate) struct Joining<'a>(&'a NextCommit);

/// A change in a commit that is under way.
pub(crate) struct Taken<'a> {
    next: &'a NextCommit,
    pub(crate) change: Box<Change>,
}

/// What became of a change.
pub(crate) enum Joined<'a> {
    /// It does not wait any more. It is not known that a commit contained it.
    No,
    /// A commit that contains it is under way.
    Taken(Joining<'a>),
    /// A commit contained it, and this is the result.
    Done(FsResult<Attr>),
}

impl NextCommit {
    /// Makes the last commit contain a change. `None` if another change waits. The commit also
    /// contains data, so the interrupt of the request does not end it.
    pub(crate) fn join(&self, change: SetAttr, interrupt: &Interrupt) -> Option<Joining<'_>> {
        let mut state = self.0.lock();
        if !matches!(*state, State::Nothing) {
            return None;
        }
        let request = interrupt.asked().map_or_else(Interrupt::never, Interrupt::of_request);
        *state = State::Waits(Box::new((change, request)));
        Some(Joining(self))
    }

    /// The change that the commit has to contain that begins now. `is_last` returns whether it is
    /// the last one. It is asked after the change began to wait, so it counts all data that was
    /// written before the change.
    pub(crate) fn take(&self, is_last: impl FnOnce() -> bool) -> Option<Taken<'_>> {
        let mut state = self.0.lock();
        if !matches!(*state, State::Waits(_)) || !is_last() {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Waits(change) => Some(Taken { next: self, change }),
            _ => None,
        }
    }

    /// Sets the state after the commit that took the change, if somebody still waits for it.
    fn leave_taken(&self, next: State) {
        let mut state = self.0.lock();
        if matches!(*state, State::Taken) {
            *state = next;
        }
    }
}

impl Taken<'_> {
    /// The commit ended: with this result of the change, or with an error, after which the change
    /// waits for another commit.
    pub(crate) fn ended(self, done: FsResult<FsResult<Attr>>) -> FsResult<()> {
        let (next, ended) = match done {
            Ok(result) => (State::Done(result), Ok(())),
            Err(error) => (State::Waits(self.change.clone()), Err(error)),
        };
        self.next.leave_taken(next);
        ended
    }
}

impl Drop for Taken<'_> {
    /// Does something only after a panic.
    fn drop(&mut self) {
        let error = FsError::io("a commit panicked; this is a fault in sluice");
        self.next.leave_taken(State::Done(Err(error)));
    }
}

impl<'a> Joining<'a> {
    /// What became of the change. It waits no longer, unless a commit that contains it is under
    /// way.
    pub(crate) fn outcome(self) -> Joined<'a> {
        let mut state = self.0.0.lock();
        let joined = match std::mem::take(&mut *state) {
            State::Taken => {
                *state = State::Taken;
                drop(state);
                return Joined::Taken(self);
            }
            State::Done(result) => Joined::Done(result),
            State::Nothing | State::Waits(_) => Joined::No,
        };
        drop(state);
        // Another change may wait from now on.
        std::mem::forget(self);
        joined
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = State::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use sluice_meta::ops::setattr::Changes;
    use sluice_types::{Caller, FileType, Ino, Time};

    use super::*;

    fn join(next: &NextCommit) -> Option<Joining<'_>> {
        let caller = Caller::client();
        next.join(SetAttr { ino: Ino(7), changes: Changes::default(), caller }, &Interrupt::never())
    }

    #[test]
    fn a_change_is_taken_once_and_again_after_a_commit_that_failed() {
        let (next, attr) =
            (NextCommit::default(), Attr::new(FileType::File, 0, 0, 0, Ino(1), Time::default()));
        assert!(next.take(|| true).is_none());
        let joining = join(&next).unwrap();
        assert!(join(&next).is_none(), "one at a time");
        assert!(next.take(|| false).is_none(), "other data waits");
        let taken = next.take(|| true).unwrap();
        let Joined::Taken(joining) = joining.outcome() else { panic!("it is in a commit") };
        assert!(next.take(|| true).is_none());
        assert_eq!(taken.ended(Err(FsError::TooBig)), Err(FsError::TooBig));
        let taken = next.take(|| true).unwrap();
        assert_eq!(taken.ended(Ok(Ok(attr))), Ok(()));
        assert!(next.take(|| true).is_none() && join(&next).is_none());
        assert!(matches!(joining.outcome(), Joined::Done(Ok(found)) if found == attr));
        assert!(join(&next).is_some(), "the next one");
    }

    #[test]
    fn nothing_waits_after_the_caller_went_or_stopped_waiting() {
        let next = NextCommit::default();
        drop(join(&next));
        assert!(next.take(|| true).is_none());
        let joining = join(&next).unwrap();
        let taken = next.take(|| true).unwrap();
        drop(joining);
        assert_eq!(taken.ended(Ok(Err(FsError::Perm))), Ok(()));
        let joining = join(&next).unwrap();
        assert!(matches!(joining.outcome(), Joined::No));
        assert!(next.take(|| true).is_none());
    }

    #[test]
    fn a_commit_that_panics_is_not_waited_for() {
        let next = NextCommit::default();
        let joining = join(&next).unwrap();
        let commit = || {
            let _taken = next.take(|| true).unwrap();
            panic!("told to panic");
        };
        assert!(catch_unwind(AssertUnwindSafe(commit)).is_err());
        assert!(matches!(joining.outcome(), Joined::Done(Err(FsError::Io(_)))));
    }
}
