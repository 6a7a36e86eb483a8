//! What this client knows of the pages that the kernel has of each file.
//!
//! The kernel does not compare times to find out whether its pages are stale: it would also drop
//! those that it wrote itself. So this client decides it. At an open, the kernel keeps its pages or
//! drops them. While a file is open, the kernel is told to drop the pages of a file that somebody
//! else changed.
//!
//! What must stay true: pages are good only as long as every change of the file is known to be by
//! this client. A change is known as such if it found the file in the state that is kept here. If
//! anything is unknown, the pages are not good.

use std::{
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use sluice_types::{Attr, Ino, Time};

/// Files that are kept, if no more are open; about 100 bytes each.
const MAX_FILES: usize = 1 << 16;

/// Makes the kernel drop all pages of a file. Returns at once.
type OnStale = Box<dyn Fn(Ino) + Send + Sync>;

/// The pages of all files.
#[derive(Default)]
pub(super) struct KernelPages {
    files: Mutex<Files>,
    /// How many files have pages that the kernel is about to drop.
    dropping: AtomicUsize,
    dropped: Condvar,
    on_stale: OnceLock<OnStale>,
}

#[derive(Default)]
struct Files {
    pages: FxHashMap<Ino, Pages>,
    /// From this number on, those of files that are not open are forgotten.
    full: usize,
}

/// The state of a file. A program may set back the mtime after a change, but not the ctime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State {
    mtime: Time,
    ctime: Time,
    length: u64,
}

impl State {
    fn of(attr: &Attr) -> Self {
        Self { mtime: attr.mtime, ctime: attr.ctime, length: attr.length }
    }
}

/// The pages of one file.
#[derive(Debug, Default)]
struct Pages {
    /// The last known state of the file; `None` if a previous process knew it.
    state: Option<State>,
    /// Whether the pages show this state, together with what this client has written since.
    good: bool,
    /// The handle with whose open the kernel drops older pages, as long as the answer may still be
    /// on its way.
    opened_by: Option<u64>,
    /// How many times the kernel is about to drop them.
    dropping: usize,
}

impl KernelPages {
    /// Sets the function that makes the kernel drop the pages of a file. Only the first call
    /// counts.
    pub(super) fn on_stale(&self, tell: impl Fn(Ino) + Send + Sync + 'static) {
        let _ = self.on_stale.set(Box::new(tell));
    }

    /// Handle `fh` opens a file in the state of `attr`. Returns whether the kernel keeps its pages,
    /// which it does only if it `may`. `is_open` says which other files are open.
    pub(super) fn opened(
        &self,
        ino: Ino,
        attr: &Attr,
        (fh, may): (u64, bool),
        is_open: impl Fn(Ino) -> bool,
    ) -> bool {
        let mut files = self.files.lock();
        let pages = files.of(ino, is_open);
        let state = Some(State::of(attr));
        let keeps =
            may && pages.good && pages.state == state && pages.opened_by.is_none() && pages.dropping == 0;
        if !keeps {
            (pages.state, pages.good, pages.opened_by) = (state, true, Some(fh));
        }
        keeps
    }

    /// The kernel has the answer to the open of `fh`.
    pub(super) fn confirmed(&self, ino: Ino, fh: u64) {
        if let Some(pages) = self.files.lock().pages.get_mut(&ino)
            && pages.opened_by == Some(fh)
        {
            pages.opened_by = None;
        }
    }

    /// A previous process opened this file.
    pub(super) fn restored(&self, ino: Ino) {
        self.files.lock().of(ino, |_| true);
    }

    /// This client changed a file, which it found in the state `before`. Returns whether somebody
    /// else changed it before that.
    pub(super) fn changed(&self, ino: Ino, before: Option<&Attr>, after: &Attr) -> bool {
        let mut files = self.files.lock();
        let Some(pages) = files.pages.get_mut(&ino) else { return false };
        let own = before.map(State::of) == pages.state && pages.state.is_some();
        pages.state = Some(State::of(after));
        pages.good &= own;
        !own
    }

    /// The engine returned these attributes. Returns whether somebody else changed the file.
    pub(super) fn seen(&self, ino: Ino, attr: &Attr) -> bool {
        let mut files = self.files.lock();
        let Some(pages) = files.pages.get_mut(&ino) else { return false };
        let state = Some(State::of(attr));
        if pages.state == state {
            return false;
        }
        (pages.state, pages.good) = (state, false);
        true
    }

    /// The pages may be wrong. The next open drops them.
    pub(super) fn doubt(&self, ino: Ino) {
        if let Some(pages) = self.files.lock().pages.get_mut(&ino) {
            pages.good = false;
        }
    }

    /// Makes the kernel drop the pages, without waiting for it.
    pub(super) fn begin_drop(&self, ino: Ino) {
        let Some(tell) = self.on_stale.get() else { return };
        self.files.lock().of(ino, |_| true).dropping += 1;
        self.dropping.fetch_add(1, Ordering::Relaxed);
        tell(ino);
    }

    /// The kernel has dropped pages that it was told to drop.
    pub(super) fn end_drop(&self, ino: Ino) {
        if let Some(pages) = self.files.lock().pages.get_mut(&ino)
            && pages.dropping > 0
        {
            pages.dropping -= 1;
            self.dropping.fetch_sub(1, Ordering::Relaxed);
        }
        self.dropped.notify_all();
    }

    /// Whether the kernel is about to drop the pages.
    pub(super) fn is_dropping(&self, ino: Ino) -> bool {
        self.dropping.load(Ordering::Relaxed) > 0 && self.files.lock().is_dropping(ino)
    }

    /// Waits until the kernel has dropped the pages, but no longer than `timeout`.
    pub(super) fn await_drop(&self, ino: Ino, timeout: Duration) {
        if self.dropping.load(Ordering::Relaxed) > 0 {
            let mut files = self.files.lock();
            self.dropped.wait_while_for(&mut files, |files| files.is_dropping(ino), timeout);
        }
    }
}

impl Files {
    fn of(&mut self, ino: Ino, is_open: impl Fn(Ino) -> bool) -> &mut Pages {
        if self.pages.len() >= self.full.max(MAX_FILES) {
            self.pages.retain(|ino, pages| pages.dropping > 0 || is_open(*ino));
            self.full = 2 * self.pages.len();
        }
        self.pages.entry(ino).or_default()
    }

    fn is_dropping(&self, ino: Ino) -> bool {
        self.pages.get(&ino).is_some_and(|pages| pages.dropping > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use sluice_types::FileType;

    use super::*;

    const INO: Ino = Ino(5);

    fn attr(sec: i64) -> Attr {
        let time = Time { sec, nsec: 0 };
        Attr { length: 100, ..Attr::new(FileType::File, 0o644, 0, 0, Ino::ROOT, time) }
    }

    fn open(pages: &KernelPages, fh: u64, sec: i64) -> bool {
        pages.opened(INO, &attr(sec), (fh, true), |_| true)
    }

    /// Opened once, by a handle that was used since.
    fn opened() -> KernelPages {
        let pages = KernelPages::default();
        assert!(!open(&pages, 1, 1));
        pages.confirmed(INO, 1);
        pages
    }

    #[test]
    fn pages_are_kept_as_long_as_only_this_client_changes_the_file() {
        let pages = opened();
        assert!(open(&pages, 2, 1));
        assert!(!pages.changed(INO, Some(&attr(1)), &attr(2)));
        assert!(open(&pages, 3, 2));
        assert!(!pages.opened(INO, &attr(2), (4, false), |_| true), "the access time would be wrong");
        pages.confirmed(INO, 4);
        assert!(pages.changed(INO, Some(&attr(3)), &attr(4)), "somebody else changed it to 3");
        assert!(!open(&pages, 5, 4), "although this client made this state");
        pages.confirmed(INO, 5);
        assert!(open(&pages, 6, 4));
        assert!(!open(&pages, 7, 5), "somebody else changed it to 5");
    }

    #[test]
    fn what_is_unknown_is_not_kept() {
        for doubt in [
            |pages: &KernelPages| assert!(pages.changed(INO, None, &attr(1))),
            |pages: &KernelPages| assert!(pages.seen(INO, &attr(2)) && pages.seen(INO, &attr(1))),
            |pages: &KernelPages| pages.doubt(INO),
        ] {
            let pages = opened();
            doubt(&pages);
            assert!(!pages.seen(INO, &attr(1)), "the state is known");
            assert!(!open(&pages, 2, 1));
        }
        let pages = KernelPages::default();
        pages.restored(INO);
        assert!(pages.seen(INO, &attr(1)), "what changed before is unknown");
        pages.restored(INO);
        assert!(pages.changed(INO, Some(&attr(1)), &attr(1)) || !open(&pages, 2, 1));
    }

    #[test]
    fn pages_are_not_kept_while_the_kernel_may_not_have_dropped_older_ones() {
        let pages = opened();
        assert!(!open(&pages, 2, 2));
        assert!(!open(&pages, 3, 2), "the answer to the last open may come later than that to this one");
        pages.confirmed(INO, 2);
        assert!(!open(&pages, 4, 2), "nor does the other handle prove it");
        pages.confirmed(INO, 4);
        assert!(open(&pages, 5, 2));
        let notices = Arc::new(AtomicUsize::new(0));
        pages.on_stale({
            let notices = Arc::clone(&notices);
            move |_| {
                notices.fetch_add(1, Ordering::Relaxed);
            }
        });
        pages.begin_drop(INO);
        pages.begin_drop(INO);
        pages.end_drop(INO);
        assert!(pages.is_dropping(INO) && !open(&pages, 6, 2));
        pages.confirmed(INO, 6);
        pages.end_drop(INO);
        pages.await_drop(INO, Duration::from_mins(1));
        assert!(!pages.is_dropping(INO) && open(&pages, 7, 2));
        assert_eq!((notices.load(Ordering::Relaxed), pages.dropping.load(Ordering::Relaxed)), (2, 0));
    }

    #[test]
    fn memory_is_bounded_and_open_files_are_kept() {
        let pages = KernelPages::default();
        for ino in 0..200_000 {
            pages.opened(Ino(ino), &attr(1), (1, true), |ino| ino.0 < 100);
        }
        let kept = |ino| pages.files.lock().pages.contains_key(&Ino(ino));
        assert!((0..100).all(kept) && pages.files.lock().pages.len() <= MAX_FILES);
    }
}
