//! A change of a file's attributes that joins the next commit of data that was written before it.
//! That saves a round trip.
//!
//! What must stay true: the change follows all of that data. Otherwise the commit of the data would
//! set the time at which it was written.

use parking_lot::Mutex;
use sluice_meta::{Interrupt, ops::setattr::SetAttr};
use sluice_types::{Attr, FsResult};

/// What the next commit of a file's data changes of its attributes.
#[derive(Default)]
pub(crate) struct NextCommit(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Nothing,
    /// A change, and the interrupt of the request for it.
    Change(Box<(SetAttr, Interrupt)>),
    /// A commit took the change. Either it is under way, or other data was committed after it.
    Taken,
    /// The last commit contained the change, and this is the result.
    Done(FsResult<Attr>),
}

/// A change that waits for the next commit, until this is dropped.
pub(crate) struct Joining<'a>(&'a NextCommit);

impl NextCommit {
    /// Makes a change part of the next commit. `None` if another one waits for that.
    pub(crate) fn join(&self, change: SetAttr, interrupt: Interrupt) -> Option<Joining<'_>> {
        let mut state = self.0.lock();
        if !matches!(*state, State::Nothing) {
            return None;
        }
        *state = State::Change(Box::new((change, interrupt)));
        Some(Joining(self))
    }

    /// The change that a commit has to contain. Each commit calls it.
    pub(crate) fn take(&self) -> Option<(SetAttr, Interrupt)> {
        let mut state = self.0.lock();
        if matches!(*state, State::Nothing) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Change(change) => Some(*change),
            _ => None,
        }
    }

    /// The commit that took the change ended, and this became of the change.
    pub(crate) fn done(&self, result: FsResult<Attr>) {
        let mut state = self.0.lock();
        if matches!(*state, State::Taken) {
            *state = State::Done(result);
        }
    }
}

impl Joining<'_> {
    /// What became of the change. `None` if no commit contained it, or not the last one.
    pub(crate) fn result(self) -> Option<FsResult<Attr>> {
        match std::mem::take(&mut *self.0.0.lock()) {
            State::Done(result) => Some(result),
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

    fn change() -> (SetAttr, Interrupt) {
        let caller = Caller::client();
        (SetAttr { ino: Ino(7), changes: Changes::default(), caller }, Interrupt::never())
    }

    fn join(next: &NextCommit) -> Option<Joining<'_>> {
        let (change, interrupt) = change();
        next.join(change, interrupt)
    }

    #[test]
    fn a_change_counts_only_if_the_last_commit_contained_it() {
        let (next, attr) =
            (NextCommit::default(), Attr::new(FileType::File, 0, 0, 0, Ino(1), Time::default()));
        assert!(next.take().is_none());
        let joining = join(&next).unwrap();
        assert!(join(&next).is_none(), "one at a time");
        assert!(joining.result().is_none(), "no commit");
        let joining = join(&next).unwrap();
        assert!(next.take().is_some());
        next.done(Ok(attr));
        assert_eq!(joining.result(), Some(Ok(attr)));
        let joining = join(&next).unwrap();
        assert!(next.take().is_some());
        next.done(Ok(attr));
        assert!(next.take().is_none(), "once");
        assert_eq!(joining.result(), None, "another commit set the time again");
    }

    #[test]
    fn nothing_waits_after_the_caller_went() {
        let next = NextCommit::default();
        drop(join(&next));
        assert!(next.take().is_none());
        let joining = join(&next).unwrap();
        assert!(next.take().is_some());
        drop(joining);
        next.done(Err(FsError::Perm));
        assert!(join(&next).unwrap().result().is_none());
    }
}
