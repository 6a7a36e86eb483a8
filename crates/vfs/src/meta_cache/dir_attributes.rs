//! Attributes of directories after this client's own changes. The kernel requests them after each
//! change.
//!
//! What must stay true: after two changes of one directory whose order is unknown, nothing is kept.
//! The second may be of this client or of another.

use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Time, wait};

/// Directories kept.
const MAX_DIRS: usize = 4096;

/// Attributes of directories that were changed here.
#[derive(Default)]
pub(super) struct DirAttributes {
    dirs: Mutex<FxHashMap<Ino, Changed>>,
    root: OnceLock<Ino>,
    /// The attributes of the root after the last change here. They are kept longer than others,
    /// because they are shown while the engine does not answer.
    root_attr: Mutex<Option<Attr>>,
}

struct Changed {
    /// `None` if it is unknown which of two changes came last.
    attr: Option<Attr>,
    ctime: Time,
    at: Instant,
    /// The number of announced changes of other clients when the change began.
    others: u64,
}

impl DirAttributes {
    /// Sets which directory is shown as the root. Only the first call counts.
    pub(super) fn set_root(&self, root: Ino) {
        let _ = self.root.set(root);
    }

    /// A change of `dir` that began at `others` returned `attr`.
    pub(super) fn put(&self, dir: Ino, attr: &Attr, others: u64) {
        let mut dirs = self.dirs.lock();
        if dirs.len() >= MAX_DIRS {
            dirs.clear();
        }
        let fresh = Changed { attr: Some(*attr), ctime: attr.ctime, at: wait::now(), others };
        match dirs.get_mut(&dir) {
            Some(known) if known.ctime > attr.ctime => {}
            Some(known) if known.ctime == attr.ctime && known.attr != Some(*attr) => known.attr = None,
            _ => drop(dirs.insert(dir, fresh)),
        }
        drop(dirs);
        if self.root.get() == Some(&dir) {
            let mut newest = self.root_attr.lock();
            *newest = Some(newest.filter(|newest| newest.ctime > attr.ctime).unwrap_or(*attr));
        }
    }

    /// Attributes no older than `ttl`, and for how long they are still valid. `good` says whether
    /// no change of another client was announced since.
    pub(super) fn get(
        &self,
        dir: Ino,
        ttl: Duration,
        good: impl FnOnce(u64) -> bool,
    ) -> Option<(Attr, Duration)> {
        let mut dirs = self.dirs.lock();
        let known = dirs.get(&dir)?;
        let left = ttl
            .checked_sub(wait::now().duration_since(known.at))
            .filter(|left| !left.is_zero() && good(known.others));
        let Some(left) = left else {
            dirs.remove(&dir);
            return None;
        };
        known.attr.map(|attr| (attr, left))
    }

    /// Attributes of the root as the last change here left them, however old.
    pub(super) fn root(&self) -> Option<Attr> {
        *self.root_attr.lock()
    }

    /// Any directory may have changed.
    pub(super) fn clear(&self) {
        self.dirs.lock().clear();
    }

    /// A directory was removed, or changed by an operation that returned no attributes.
    pub(super) fn forget(&self, dir: Ino) {
        self.dirs.lock().remove(&dir);
    }
}

#[cfg(test)]
mod tests {
    use sluice_types::FileType;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn attr(nanos: i64) -> Attr {
        Attr::new(FileType::Dir, 0o755, 0, 0, Ino::ROOT, Time::from_nanos(nanos))
    }

    #[test]
    fn changes_of_unknown_order_leave_nothing() {
        let dirs = DirAttributes::default();
        let attr = attr(5);
        let get = |ttl| dirs.get(Ino(2), ttl, |_| true).map(|(attr, _)| attr);
        dirs.put(Ino(2), &attr, 0);
        assert_eq!(get(DAY), Some(attr));
        dirs.put(Ino(2), &Attr { nlink: 3, ..attr }, 0);
        assert!(get(DAY).is_none());
        dirs.put(Ino(2), &attr, 0);
        assert!(get(DAY).is_none(), "still the same moment");
        let later = Attr { nlink: 4, ctime: Time::from_nanos(6), ..attr };
        dirs.put(Ino(2), &later, 0);
        dirs.put(Ino(2), &attr, 0);
        assert_eq!(get(DAY), Some(later), "the older one came late");
        assert!(get(Duration::ZERO).is_none());
        dirs.put(Ino(2), &later, 7);
        assert!(dirs.get(Ino(2), DAY, |others| others >= 8).is_none(), "another's change came after it");
    }

    #[test]
    fn the_newest_attributes_of_the_root_outlive_the_others() {
        let dirs = DirAttributes::default();
        dirs.set_root(Ino(2));
        dirs.put(Ino(3), &attr(9), 0);
        assert_eq!(dirs.root(), None);
        dirs.put(Ino(2), &attr(6), 0);
        dirs.put(Ino(2), &attr(5), 0);
        dirs.forget(Ino(2));
        dirs.clear();
        assert_eq!(dirs.root(), Some(attr(6)));
    }
}
