//! A change of a file's attributes that the last commit of its data takes along. That saves a round
//! trip.
//!
//! What must stay true: the change is committed after all data that was written before it, and only
//! if that data was. Otherwise a file that is not complete would have a time that says it is, and a
//! later commit would set the time at which the data was written.

use parking_lot::Mutex;
use sluice_meta::{Interrupt, ops::setattr::SetAttr};
use sluice_types::{Attr, FsResult};

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

    /// The change that the commit has to contain that begins now, if it is the last one.
    pub(crate) fn take(&self) -> Option<Change> {
        let mut state = self.0.lock();
        match std::mem::take(&mut *state) {
            State::Waits(change) => {
                *state = State::Taken;
                Some(*change)
            }
            other => {
                *state = other;
                None
            }
        }
    }

    /// The commit that took `change` ended. `done` is what became of the change, or the error of
    /// the whole commit, after which the change waits for another one.
    pub(crate) fn ended(&self, change: Change, done: FsResult<FsResult<Attr>>) -> FsResult<()> {
        let mut state = self.0.lock();
        let (next, ended) = match done {
            Ok(result) => (State::Done(result), Ok(())),
            Err(error) => (State::Waits(Box::new(change)), Err(error)),
        };
        // Else nobody waits for it any more.
        if matches!(*state, State::Taken) {
            *state = next;
        }
        ended
    }
}

impl Joining<'_> {
    /// Whether a commit that contains it is under way.
    pub(crate) fn is_taken(&self) -> bool {
        matches!(*self.0.0.lock(), State::Taken)
    }

    /// What became of the change. `None` if no commit contained it.
    pub(crate) fn result(&self) -> Option<FsResult<Attr>> {
        match &*self.0.0.lock() {
            State::Done(result) => Some(result.clone()),
            _ => None,
        }
    }
}

impl Drop for Joining<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = State::Nothing;
    }
}

#[cfg(test)]
mod tests {
    use sluice_meta::ops::setattr::Changes;
    use sluice_types::{Caller, FileType, FsError, Ino, Time};

    use super::*;

    fn join(next: &NextCommit) -> Option<Joining<'_>> {
        let caller = Caller::client();
        next.join(SetAttr { ino: Ino(7), changes: Changes::default(), caller }, &Interrupt::never())
    }

    #[test]
    fn a_change_is_taken_once_and_again_after_a_commit_that_failed() {
        let (next, attr) =
            (NextCommit::default(), Attr::new(FileType::File, 0, 0, 0, Ino(1), Time::default()));
        assert!(next.take().is_none());
        let joining = join(&next).unwrap();
        assert!(join(&next).is_none(), "one at a time");
        assert!(joining.result().is_none() && !joining.is_taken());
        let change = next.take().unwrap();
        assert!(joining.is_taken() && next.take().is_none());
        assert_eq!(next.ended(change, Err(FsError::TooBig)), Err(FsError::TooBig));
        let change = next.take().unwrap();
        assert_eq!(next.ended(change, Ok(Ok(attr))), Ok(()));
        assert!(next.take().is_none());
        assert_eq!(joining.result(), Some(Ok(attr)));
    }

    #[test]
    fn nothing_waits_after_the_caller_went() {
        let next = NextCommit::default();
        drop(join(&next));
        assert!(next.take().is_none());
        let joining = join(&next).unwrap();
        let change = next.take().unwrap();
        drop(joining);
        assert_eq!(next.ended(change, Ok(Err(FsError::Perm))), Ok(()));
        assert!(join(&next).unwrap().result().is_none());
    }
}
