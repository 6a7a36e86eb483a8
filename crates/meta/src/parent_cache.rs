//! A cache of the parents of directories, to find the quotas above a file.
//!
//! What must stay true: all entries are valid at one value of [`Counter::DirMoves`]. A commit that
//! uses an entry compares that value. Other programs of the format move directories without a
//! change of this counter, so no entry is used for longer than a second.
//!
//! [`Counter::DirMoves`]: crate::schema::Counter::DirMoves

use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use sluice_types::{Ino, wait};

/// How long an entry is used.
const MOMENT: Duration = Duration::from_secs(1);
/// Most directories in the cache; some 3 MiB.
const MOST: usize = 1 << 16;

/// Parents of directories.
#[derive(Default)]
pub(crate) struct ParentCache(RwLock<Parents>);

#[derive(Default)]
struct Parents {
    /// The value of the counter at which the entries are valid; `None` if there are no entries.
    moves: Option<i64>,
    of: FxHashMap<Ino, (Ino, Instant)>,
}

impl ParentCache {
    /// The value of the counter at which [`Self::get`] is right.
    pub(crate) fn moves(&self) -> Option<i64> {
        self.0.read().moves
    }

    /// The parent of a directory.
    pub(crate) fn get(&self, dir: Ino) -> Option<Ino> {
        let parents = self.0.read();
        let known = parents.of.get(&dir);
        known.filter(|(_, seen)| wait::now().saturating_duration_since(*seen) < MOMENT).map(|(at, _)| *at)
    }

    /// Adds directories and their parents at that value of the counter.
    pub(crate) fn learn(&self, moves: i64, dirs: impl Iterator<Item = (Ino, Ino)>) {
        let mut parents = self.0.write();
        match parents.moves {
            Some(known) if known > moves => return,
            Some(known) if known == moves => {}
            _ => {
                parents.of.clear();
                parents.moves = Some(moves);
            }
        }
        parents.add(dirs);
    }

    /// This client moved directories to these parents, and the counter rose from `from` to `to`.
    pub(crate) fn moved(&self, (from, to): (i64, i64), dirs: impl Iterator<Item = (Ino, Ino)>) {
        let mut parents = self.0.write();
        if parents.moves == Some(from) {
            parents.moves = Some(to);
            parents.add(dirs);
        }
    }

    /// Directories moved, and it is unknown which.
    pub(crate) fn forget(&self) {
        *self.0.write() = Parents::default();
    }
}

impl Parents {
    fn add(&mut self, dirs: impl Iterator<Item = (Ino, Ino)>) {
        let now = wait::now();
        for (dir, parent) in dirs {
            if self.of.len() >= MOST {
                self.of.clear();
            }
            self.of.insert(dir, (parent, now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(pairs: &[(u64, u64)]) -> impl Iterator<Item = (Ino, Ino)> {
        pairs.iter().map(|(dir, parent)| (Ino(*dir), Ino(*parent)))
    }

    #[test]
    fn what_was_seen_long_ago_is_not_believed() {
        let cache = ParentCache::default();
        cache.learn(7, pairs(&[(5, 4)]));
        assert_eq!((cache.get(Ino(5)), cache.get(Ino(4))), (Some(Ino(4)), None));
        if let Some(before) = wait::now().checked_sub(MOMENT) {
            cache.0.write().of.insert(Ino(5), (Ino(4), before));
            assert_eq!(cache.get(Ino(5)), None);
        }
    }

    #[test]
    fn all_of_it_is_true_at_one_count() {
        let cache = ParentCache::default();
        cache.learn(7, pairs(&[(5, 4), (6, 5)]));
        cache.learn(6, pairs(&[(6, 4)]));
        assert_eq!((cache.moves(), cache.get(Ino(6))), (Some(7), Some(Ino(5))));
        cache.moved((7, 8), pairs(&[(5, 3)]));
        assert_eq!(
            (cache.moves(), cache.get(Ino(5)), cache.get(Ino(6))),
            (Some(8), Some(Ino(3)), Some(Ino(5)))
        );
        cache.moved((9, 10), pairs(&[(5, 2)]));
        assert_eq!((cache.moves(), cache.get(Ino(5))), (Some(8), Some(Ino(3))));
        cache.learn(9, pairs(&[(6, 4)]));
        assert_eq!((cache.moves(), cache.get(Ino(5)), cache.get(Ino(6))), (Some(9), None, Some(Ino(4))));
        cache.forget();
        assert_eq!((cache.moves(), cache.get(Ino(6))), (None, None));
    }
}
