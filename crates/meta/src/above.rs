//! In which directory each directory lies, as last seen: who charges the quotas above a file asks
//! for nothing else.
//!
//! What must stay true: it is never older than a moment, and this client's own moves show at once.
//! Only what counts usage relies on it, which may be off by what others move in that moment; a move
//! that must not build a circle asks.

use std::time::{Duration, Instant};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;
use sluice_types::{Ino, wait};

/// How long it is believed.
const MOMENT: Duration = Duration::from_secs(1);
/// Most directories that are remembered; some 3 MiB.
const MOST: usize = 1 << 16;

/// Parents of directories.
#[derive(Default)]
pub(crate) struct Above(RwLock<FxHashMap<Ino, (Ino, Instant)>>);

impl Above {
    /// The parent of a directory.
    pub(crate) fn get(&self, dir: Ino) -> Option<Ino> {
        self.0
            .read()
            .get(&dir)
            .filter(|(_, seen)| wait::now().saturating_duration_since(*seen) < MOMENT)
            .map(|(parent, _)| *parent)
    }

    /// A directory was just seen in `parent`.
    pub(crate) fn learn(&self, dir: Ino, parent: Ino) {
        let mut parents = self.0.write();
        if parents.len() >= MOST {
            parents.clear();
        }
        parents.insert(dir, (parent, wait::now()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_long_ago_is_not_believed() {
        let above = Above::default();
        above.learn(Ino(5), Ino(4));
        assert_eq!((above.get(Ino(5)), above.get(Ino(4))), (Some(Ino(4)), None));
        above.learn(Ino(5), Ino(3));
        assert_eq!(above.get(Ino(5)), Some(Ino(3)));
        if let Some(before) = wait::now().checked_sub(MOMENT) {
            above.0.write().insert(Ino(5), (Ino(3), before));
            assert_eq!(above.get(Ino(5)), None);
        }
    }
}
