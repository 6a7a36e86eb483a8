//! The change notification of a commit. It lists the changed records that other clients may have
//! cached.
//!
//! What must stay true: the change notification is derived only from the writes, so no operation
//! can omit it.

use crate::{
    engine::{Commit, Notices, Write},
    schema::{Change, Key, RING, Row},
};

/// Adds the announcement to a numbered commit: messages, or a record if the engine has no messages.
/// If the engine `lost` commits before, it announces that anything may have changed.
pub(crate) fn announce(commit: &mut Commit, notices: Notices, lost: bool) {
    let Some(step) = commit.step else { return };
    let lost = lost.then_some(Change::Any);
    let changes: Vec<Change> = commit.writes.iter().filter_map(change).chain(lost).collect();
    if notices == Notices::Push {
        commit.writes.extend(changes.into_iter().map(Write::Notify));
    } else {
        let row = Row::Changes(step.writer, step.lane, slot(step.to), step.to, changes);
        commit.writes.push(Write::Put(row));
    }
}

/// Where the changes of the `n`-th commit of a lane are kept.
pub(crate) fn slot(n: u64) -> u16 {
    (n % RING) as u16
}

fn change(write: &Write) -> Option<Change> {
    Some(match write {
        Write::Insert(Row::Entry(dir, name, _))
        | Write::Put(Row::Entry(dir, name, _))
        | Write::Delete(Key::Entry(dir, name))
        | Write::Discard(Key::Entry(dir, name)) => Change::Entry(*dir, name.clone()),
        // No client has cached a new node, and its absence is not cached.
        Write::Put(Row::Node(ino, _))
        | Write::Delete(Key::Node(ino))
        | Write::Discard(Key::Node(ino))
        | Write::Bump { ino, .. } => Change::Node(*ino),
        _ => return None,
    })
}
