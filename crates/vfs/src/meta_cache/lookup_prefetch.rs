//! Directories whose names are being looked up one after another: the rest of such a directory is
//! read as one page, which answers the lookups that follow.
//!
//! What must stay true: an answer from here is one that the kernel could have been given when the
//! page was read and might still have cached: it lives no longer than that one would. A name that
//! is not here, or whose node was changed, opened or looked at since, is always asked for.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Name, wait};

use super::moment::Moment;
use crate::entry::Entry;

/// Lookups in one directory within [`WINDOW`] after which the rest is read.
const STREAK: u32 = 16;
/// How long lookups count as one streak.
const WINDOW: Duration = Duration::from_millis(100);
/// Most entries of a page. A directory that has more is looked up name by name.
pub(crate) const MOST_PREFETCHED: usize = 4096;
/// How long a directory that has more is left alone.
const LARGE: Duration = Duration::from_mins(1);
/// Directories watched at once; pages of some 600 KiB at most.
const DIRS: usize = 16;

/// Directories in which names are being looked up.
#[derive(Default)]
pub(super) struct LookupPrefetch(Mutex<FxHashMap<Ino, Watched>>);

/// One of them.
struct Watched {
    /// Lookups that went to the engine, since when.
    asked: u32,
    since: Instant,
    page: Option<Page>,
    /// Not to be read before.
    not_before: Instant,
}

/// A directory's entries.
pub(crate) struct Page {
    pub(crate) nodes: FxHashMap<Name, (Ino, Attr)>,
    /// When it was asked for.
    pub(crate) at: Instant,
    pub(crate) moment: Moment,
}

impl LookupPrefetch {
    /// What a page that is younger than `ttl` and `good` says of a name, and when it was asked for.
    pub(super) fn find(
        &self,
        dir: Ino,
        name: &Name,
        ttl: Duration,
        good: impl FnOnce(Moment) -> bool,
    ) -> Option<(Entry, Moment)> {
        let dirs = self.0.lock();
        let page = dirs.get(&dir)?.page.as_ref()?;
        let left = ttl.checked_sub(wait::now().duration_since(page.at))?;
        let (ino, attr) = page.nodes.get(name).filter(|_| good(page.moment))?;
        let entry = Entry { ino: *ino, attr: *attr, attr_ttl: left, entry_ttl: left };
        Some((entry, page.moment))
    }

    /// Counts a lookup that goes to the engine; whether the directory is to be read instead.
    pub(super) fn count(&self, dir: Ino) -> bool {
        let now = wait::now();
        let mut dirs = self.0.lock();
        if dirs.len() >= DIRS && !dirs.contains_key(&dir) {
            let oldest = dirs.iter().min_by_key(|(_, watched)| watched.since).map(|(dir, _)| *dir);
            oldest.and_then(|dir| dirs.remove(&dir));
        }
        let fresh = || Watched { asked: 0, since: now, page: None, not_before: now };
        let watched = dirs.entry(dir).or_insert_with(fresh);
        if now.duration_since(watched.since) > WINDOW {
            (watched.asked, watched.since) = (0, now);
        }
        watched.asked += 1;
        // One reads; the others ask meanwhile.
        watched.asked == STREAK && now >= watched.not_before
    }

    /// Names of a directory changed without the kernel having asked for it.
    pub(super) fn forget(&self, dir: Ino) {
        self.0.lock().remove(&dir);
    }

    /// Anything may have changed.
    pub(super) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Keeps a page, if it is the whole directory.
    pub(super) fn keep(&self, dir: Ino, page: Option<Page>) {
        if let Some(watched) = self.0.lock().get_mut(&dir) {
            if page.is_none() {
                watched.not_before = wait::now() + LARGE;
            }
            watched.page = page;
        }
    }
}
