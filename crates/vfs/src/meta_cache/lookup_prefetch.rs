//! Directories whose names are being looked up one after another: the rest of such a directory is
//! read as one page, which answers the lookups that follow.
//!
//! What must stay true: a result from here is one that the kernel could have received when the page
//! was read, and could still have cached. A lookup goes to the engine if the name is not here, or
//! if its node was changed, opened or read since.

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
pub(crate) const MAX_PREFETCHED: usize = 4096;
/// How long a directory that has more entries is not read again.
const LARGE: Duration = Duration::from_mins(1);
/// Directories watched at once; pages of some 600 KiB at most.
const DIRS: usize = 16;

/// Directories in which names are being looked up.
#[derive(Default)]
pub(super) struct LookupPrefetch(Mutex<FxHashMap<Ino, Watched>>);

/// One of them.
struct Watched {
    /// Lookups that went to the engine, and since when.
    asked: u32,
    since: Instant,
    page: Option<Page>,
    /// The directory is not read before this time.
    not_before: Instant,
}

/// A directory's entries.
pub(crate) struct Page {
    pub(crate) nodes: FxHashMap<Name, (Ino, Attr)>,
    /// When it was requested.
    pub(crate) at: Instant,
    pub(crate) moment: Moment,
}

impl LookupPrefetch {
    /// The entry of a name in a page that is younger than `ttl` and `good`, and when the page was
    /// requested.
    pub(super) fn find(
        &self,
        dir: Ino,
        name: &Name,
        ttl: Duration,
        good: impl FnOnce(Moment) -> bool,
    ) -> Option<(Entry, Moment, Instant)> {
        let dirs = self.0.lock();
        let page = dirs.get(&dir)?.page.as_ref()?;
        let left = ttl.checked_sub(wait::now().duration_since(page.at))?;
        let (ino, attr) = page.nodes.get(name).filter(|_| good(page.moment))?;
        let entry = Entry { ino: *ino, attr: *attr, attr_ttl: left, entry_ttl: left };
        Some((entry, page.moment, page.at))
    }

    /// Counts a lookup that goes to the engine. Returns whether to read the whole directory
    /// instead.
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
        // One caller reads the directory. Meanwhile the others look up single names.
        watched.asked == STREAK && now >= watched.not_before
    }

    /// Names of a directory changed, and the kernel had not requested it.
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
