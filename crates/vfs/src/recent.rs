//! Attributes of directories that this client just changed, and directories it just looked up.
//!
//! What must stay true: two changes of one directory whose order is unknown leave nothing behind,
//! be the other one of this client or of another; and a hint is never taken for an answer.

use std::{
    collections::VecDeque,
    hash::{Hash, Hasher},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use sluice_types::{Attr, Ino, Name, Time};

/// Directories kept.
const MOST_DIRS: usize = 4096;
/// Places for hints.
const HINTS: usize = 4096;

/// Nodes without a name and without content of ours that are remembered.
const MOST_GONE: usize = 4096;

/// Directories, pipes, devices and sockets that were removed here. The kernel serves those that are
/// still open without asking, but for their attributes.
#[derive(Default)]
pub(crate) struct Gone(Mutex<VecDeque<(Ino, Attr)>>);

impl Gone {
    /// A node was removed; these are its last attributes.
    pub(crate) fn put(&self, ino: Ino, attr: Attr) {
        let mut gone = self.0.lock();
        if gone.len() >= MOST_GONE {
            gone.pop_front();
        }
        gone.push_back((ino, attr));
    }

    /// The last attributes of a node that was removed lately.
    pub(crate) fn get(&self, ino: Ino) -> Option<Attr> {
        self.0.lock().iter().rev().find(|(gone, _)| *gone == ino).map(|(_, attr)| *attr)
    }
}

/// Attributes of directories as this client's changes left them. The kernel asks for them after
/// each change.
#[derive(Default)]
pub(crate) struct RecentDirs(Mutex<FxHashMap<Ino, Recent>>);

struct Recent {
    /// `None` if it is not known which of two changes came last.
    attr: Option<Attr>,
    ctime: Time,
    at: Instant,
    /// Changes of others that had been heard of when the change was begun, by
    /// [`crate::given::Given::moment`].
    asked: u64,
}

impl RecentDirs {
    /// A change of `dir` that was begun at `asked` answered `attr`.
    pub(crate) fn put(&self, dir: Ino, attr: &Attr, asked: u64) {
        let mut dirs = self.0.lock();
        if dirs.len() >= MOST_DIRS {
            dirs.clear();
        }
        let fresh = Recent { attr: Some(*attr), ctime: attr.ctime, at: Instant::now(), asked };
        match dirs.get_mut(&dir) {
            Some(known) if known.ctime > attr.ctime => {}
            Some(known) if known.ctime == attr.ctime && known.attr != Some(*attr) => known.attr = None,
            _ => drop(dirs.insert(dir, fresh)),
        }
    }

    /// Attributes no older than `ttl`, and how long they still hold. `good` says whether no change
    /// of another client was heard of since a moment.
    pub(crate) fn get(
        &self,
        dir: Ino,
        ttl: Duration,
        good: impl FnOnce(u64) -> bool,
    ) -> Option<(Attr, Duration)> {
        let mut dirs = self.0.lock();
        let known = dirs.get(&dir)?;
        let left = ttl.checked_sub(known.at.elapsed()).filter(|left| !left.is_zero() && good(known.asked));
        let Some(left) = left else {
            dirs.remove(&dir);
            return None;
        };
        known.attr.map(|attr| (attr, left))
    }

    /// Any may have changed.
    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// It was removed, or changed in a way that answers no attributes.
    pub(crate) fn drop(&self, dir: Ino) {
        self.0.lock().remove(&dir);
    }
}

/// Directories by where they were looked up, and the other way round: the newest in each of a few
/// thousand places.
pub(crate) struct Hints(Mutex<Places>);

struct Places {
    children: Box<[(u64, Ino)]>,
    parents: Box<[(Ino, Ino)]>,
}

impl Hints {
    pub(crate) fn new() -> Self {
        let children = vec![(0, Ino::NONE); HINTS].into();
        let parents = vec![(Ino::NONE, Ino::NONE); HINTS].into();
        Self(Mutex::new(Places { children, parents }))
    }

    pub(crate) fn put(&self, dir: Ino, name: &Name, ino: Ino) {
        let hash = place(dir, name);
        let mut places = self.0.lock();
        places.children[hash as usize % HINTS] = (hash, ino);
        places.parents[ino.0 as usize % HINTS] = (ino, dir);
    }

    /// What `name` in `dir` stood for.
    pub(crate) fn child(&self, dir: Ino, name: &Name) -> Option<Ino> {
        let hash = place(dir, name);
        let (known, ino) = self.0.lock().children[hash as usize % HINTS];
        (known == hash && ino != Ino::NONE).then_some(ino)
    }

    /// In which directory `ino` was.
    pub(crate) fn parent(&self, ino: Ino) -> Option<Ino> {
        let (known, dir) = self.0.lock().parents[ino.0 as usize % HINTS];
        (known == ino && dir != Ino::NONE).then_some(dir)
    }
}

fn place(dir: Ino, name: &Name) -> u64 {
    let mut hasher = FxHasher::default();
    (dir, &name[..]).hash(&mut hasher);
    let hash = hasher.finish();
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use sluice_types::FileType;

    use super::*;

    #[test]
    fn changes_of_unknown_order_leave_nothing() {
        let dirs = RecentDirs::default();
        let attr = Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time::from_nanos(5));
        let day = Duration::from_hours(24);
        dirs.put(Ino(2), &attr, 0);
        assert_eq!(dirs.get(Ino(2), day, |_| true).map(|(attr, _)| attr), Some(attr));
        dirs.put(Ino(2), &Attr { nlink: 3, ..attr }, 0);
        assert!(dirs.get(Ino(2), day, |_| true).is_none());
        dirs.put(Ino(2), &attr, 0);
        assert!(dirs.get(Ino(2), day, |_| true).is_none(), "still the same moment");
        let later = Attr { nlink: 4, ctime: Time::from_nanos(6), ..attr };
        dirs.put(Ino(2), &later, 0);
        dirs.put(Ino(2), &attr, 0);
        assert_eq!(
            dirs.get(Ino(2), day, |_| true).map(|(attr, _)| attr),
            Some(later),
            "the older one came late"
        );
        assert!(dirs.get(Ino(2), Duration::ZERO, |_| true).is_none());
        dirs.put(Ino(2), &later, 7);
        assert!(dirs.get(Ino(2), day, |asked| asked >= 8).is_none(), "another client's change came after it");
    }

    #[test]
    fn hints_are_by_place() {
        let hints = Hints::new();
        let name = Name::new(b"a").unwrap();
        hints.put(Ino(1), &name, Ino(9));
        assert_eq!((hints.child(Ino(1), &name), hints.parent(Ino(9))), (Some(Ino(9)), Some(Ino(1))));
        assert_eq!((hints.child(Ino(2), &name), hints.parent(Ino(8))), (None, None));
    }
}
