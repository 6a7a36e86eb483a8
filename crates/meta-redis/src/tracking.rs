//! Changes by clients that send no change notifications (JuiceFS). The server reports them: client
//! tracking in broadcast mode.
//!
//! The server reports every key that any client changed in one turn of its event loop, in a message
//! after all other messages of that turn. At that time, this module knows the changes of other
//! Sluice clients from their change notifications, and also the changes of this process. What must
//! stay true: a key that this process changed is not reported as changed by others. Otherwise the
//! kernel would drop pages that are being written.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_meta::{
    engine::{Commit, Write},
    schema::{Change, Key, Notice, WriterId},
};

/// Most own changes that are kept until their messages come. Beyond this, own changes look like
/// changes by others.
const MAX_CHANGES: usize = 1 << 16;

/// The identity of a commit: writer, lane, number.
type Number = (WriterId, u16, u64);

/// The changes of this process's commits, until the message of each has come.
#[derive(Default)]
pub(crate) struct OwnChanges {
    on: AtomicBool,
    awaited: Mutex<Awaited>,
}

#[derive(Default)]
struct Awaited {
    commits: FxHashMap<Number, Vec<Change>>,
    /// The number of changes of all commits.
    changes: usize,
}

impl OwnChanges {
    /// Starts or stops to keep them.
    pub(crate) fn switch(&self, on: bool) {
        self.on.store(on, Ordering::SeqCst);
        *self.awaited.lock() = Awaited::default();
    }

    /// Notes what a commit is about to change.
    pub(crate) fn note(&self, commit: &Commit) {
        let Some(step) = commit.step.filter(|_| self.on.load(Ordering::SeqCst)) else { return };
        let changes: Vec<Change> = commit.writes.iter().flat_map(changed).collect();
        let mut awaited = self.awaited.lock();
        if awaited.changes + changes.len() > MAX_CHANGES {
            *awaited = Awaited::default();
        }
        awaited.changes += changes.len();
        // The number of a commit that did not happen is used by the next one.
        let before = awaited.commits.insert((step.writer, step.lane, step.to), changes);
        awaited.changes -= before.map_or(0, |changes| changes.len());
    }

    /// The changes of the commit that `notice` announces, if it is one of this process.
    fn take(&self, notice: &Notice) -> Vec<Change> {
        let mut awaited = self.awaited.lock();
        let changes = awaited.commits.remove(&(notice.writer, notice.lane, notice.n)).unwrap_or_default();
        awaited.changes -= changes.len();
        changes
    }
}

/// The changes of a write to the tracked keys: nodes, and directories as a whole.
fn changed(write: &Write) -> Vec<Change> {
    match write.key() {
        // With the node goes the directory.
        Some(Key::Node(ino)) if matches!(write, Write::Delete(_) | Write::Discard(_)) => {
            vec![Change::Node(ino), Change::Names(ino)]
        }
        Some(Key::Node(ino)) => vec![Change::Node(ino)],
        Some(Key::Entry(dir, _)) => vec![Change::Names(dir)],
        _ => Vec::new(),
    }
}

/// The keys of this turn whose changes were announced.
#[derive(Default)]
pub(crate) struct Expected(FxHashSet<Change>);

impl Expected {
    /// A message of a client came.
    pub(crate) fn notice(&mut self, notice: &Notice, own: &OwnChanges) {
        self.0.extend(own.take(notice));
        self.0.extend(notice.changes.iter().filter_map(|change| match change {
            Change::Entry(dir, _) => Some(Change::Names(*dir)),
            Change::Node(_) | Change::Names(_) => Some(change.clone()),
            Change::Lock(_) | Change::Any => None,
        }));
    }

    /// Of the keys that changed in this turn, all with the same prefix, those whose changes were
    /// not announced.
    pub(crate) fn unannounced(&mut self, mut keys: Vec<Change>) -> Vec<Change> {
        let kinds: FxHashSet<_> = keys.iter().map(std::mem::discriminant).collect();
        keys.retain(|key| !self.0.contains(key));
        self.0.retain(|key| !kinds.contains(&std::mem::discriminant(key)));
        keys
    }
}

#[cfg(test)]
mod tests {
    use sluice_meta::{engine::Step, schema::Row};
    use sluice_types::{Attr, FileType, Ino, Name, Time};

    use super::*;

    const NODE: fn(u64) -> Change = |ino| Change::Node(Ino(ino));
    const NAMES: fn(u64) -> Change = |ino| Change::Names(Ino(ino));

    fn commit(n: u64) -> (Commit, Notice) {
        let attr = Attr::new(FileType::File, 0o644, 0, 0, Ino(1), Time::default());
        let entry = sluice_meta::schema::Entry { kind: FileType::File, ino: Ino(7) };
        let writes = vec![
            Write::Insert(Row::Entry(Ino(1), Name::new(b"a").expect("a name"), entry)),
            Write::Insert(Row::Node(Ino(7), attr)),
            Write::Bump { ino: Ino(1), nlink: 0, time: None },
        ];
        let step = Some(Step { writer: 3, lane: 0, from: n - 1, to: n });
        (
            Commit { writes, step, ..Commit::default() },
            Notice { writer: 3, lane: 0, n, changes: vec![NAMES(1)] },
        )
    }

    #[test]
    fn own_changes_are_not_those_of_others() {
        let (own, mut expected) = (OwnChanges::default(), Expected::default());
        own.switch(true);
        let (first, notice) = commit(1);
        own.note(&first);
        expected.notice(&notice, &own);
        assert_eq!(expected.unannounced(vec![NAMES(1), NAMES(2)]), [NAMES(2)]);
        assert_eq!(expected.unannounced(vec![NODE(1), NODE(7), NODE(8)]), [NODE(8)]);
        assert_eq!(expected.unannounced(vec![NODE(7)]), [NODE(7)], "in the next turn it is another's");
    }

    #[test]
    fn what_is_not_watched_is_not_kept() {
        let (own, mut expected) = (OwnChanges::default(), Expected::default());
        let (first, notice) = commit(1);
        own.note(&first);
        expected.notice(&notice, &own);
        assert_eq!(expected.unannounced(vec![NODE(7)]), [NODE(7)]);
        own.switch(true);
        for n in 2..MAX_CHANGES as u64 {
            own.note(&commit(n).0);
        }
        own.note(&commit(MAX_CHANGES as u64 - 1).0);
        let awaited = own.awaited.lock();
        assert!(awaited.changes <= MAX_CHANGES);
        assert_eq!(awaited.commits.values().map(Vec::len).sum::<usize>(), awaited.changes);
    }
}
