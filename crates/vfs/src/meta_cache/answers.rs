//! Reads from the cache, and puts into it.
//!
//! What must stay true: a result from here is one that the engine returned and that the kernel may
//! still have cached.

use std::{sync::Arc, time::Duration};

use sluice_meta::schema::Change;
use sluice_types::{Attr, Ino, Name, Slice};

use super::{MetaCache, lookup_prefetch::Page, moment::Moment, open_files::OpenFile};
use crate::entry::Entry;

/// Attributes and time.
impl MetaCache {
    /// Now. Take it before a request to the engine.
    pub(crate) fn moment(&self) -> Moment {
        Moment { own: self.changes.now(), others: self.kernel.now() }
    }

    /// Whether this client changed `ino` since, or may have.
    pub(crate) fn changed_since(&self, ino: Ino, moment: Moment) -> bool {
        self.changes.since(ino, moment.own)
    }

    /// Whether another client's change of the names of `dir` was announced since.
    pub(crate) fn names_changed_since(&self, dir: Ino, moment: Moment) -> bool {
        self.kernel.names_changed_since(dir, moment.others)
    }

    /// A file that is open here.
    pub(crate) fn file(&self, ino: Ino) -> Option<Arc<OpenFile>> {
        self.open.get(ino)
    }

    /// Up to `most` open files, those after `last` in the order of their numbers.
    pub(crate) fn some_open_files(&self, last: Ino, most: usize) -> Vec<Ino> {
        let mut open = self.open.inos();
        open.retain(|ino| *ino > last);
        open.sort_unstable();
        open.truncate(most);
        open
    }

    /// How many files are open.
    pub(crate) fn open_files(&self) -> usize {
        self.open.count()
    }

    /// Attributes of a directory as a change here left them, no older than `ttl`, and how long they
    /// still hold.
    pub(crate) fn dir_attr(&self, dir: Ino, ttl: Duration) -> Option<(Attr, Duration)> {
        self.dirs.get(dir, ttl, |begun| !self.kernel.attr_changed_since(dir, begun))
    }

    /// Attributes of the root as the last change here left them, however old.
    pub(crate) fn root_attr(&self) -> Option<Attr> {
        self.dirs.root()
    }

    /// The last attributes of a node that was removed here and is no file.
    pub(crate) fn removed_attr(&self, ino: Ino) -> Option<Attr> {
        self.removed.get(ino)
    }
}

/// Names.
impl MetaCache {
    /// The entry to send to the kernel for a lookup that was requested at `asked`. Announced
    /// changes of other clients may shorten its cache time.
    pub(crate) fn looked_up(&self, dir: Ino, name: &[u8], asked: Moment, entry: Entry) -> Entry {
        if entry.attr.is_dir() {
            self.hints.put(dir, name, entry.ino);
        }
        self.listed(dir, name, asked, entry)
    }

    /// [`Self::looked_up`], of a listing.
    pub(crate) fn listed(&self, dir: Ino, name: &[u8], asked: Moment, entry: Entry) -> Entry {
        self.kernel.entry(dir, name, asked.others, entry)
    }

    /// How long the kernel may cache that a name is absent, if a lookup that begins now says so.
    pub(crate) fn absent_ttl(&self, dir: Ino, name: &Name, ttl: Duration) -> Duration {
        self.kernel.name_ttl(dir, name, self.kernel.now(), ttl)
    }

    /// How long the kernel may cache attributes that are about to be requested.
    pub(crate) fn attr_ttl(&self, ino: Ino, ttl: Duration) -> Duration {
        self.kernel.attr_ttl(ino, ttl)
    }

    /// A rename to this name, by the kernel, is about to happen.
    pub(crate) fn rename_to(&self, dir: Ino, name: &Name) {
        self.kernel.rename_to(dir, name);
    }

    /// The name with which an inode was last sent to the kernel, as a change of that entry.
    pub(crate) fn kernel_name_of(&self, ino: Ino) -> Option<Change> {
        self.kernel.name_of(ino)
    }

    /// `name` in `dir` stands for the directory `ino`.
    pub(crate) fn hint(&self, dir: Ino, name: &Name, ino: Ino) {
        self.hints.put(dir, name, ino);
    }

    /// The directory that `name` in `dir` probably stands for.
    pub(crate) fn child_hint(&self, dir: Ino, name: &Name) -> Option<Ino> {
        self.hints.child(dir, name)
    }

    /// The directory that `ino` was last looked up in.
    pub(crate) fn parent_hint(&self, ino: Ino) -> Option<Ino> {
        self.hints.parent(ino)
    }

    /// The result of a lookup, from a page that was read at most `ttl` ago.
    pub(crate) fn prefetched(&self, dir: Ino, name: &Name, ttl: Duration) -> Option<Entry> {
        let good = |asked| !self.names_changed_since(dir, asked);
        let (entry, asked, at) = self.prefetch.find(dir, name, ttl, good)?;
        // Data written to an open file may not be stored yet.
        if self.changed_since(entry.ino, asked) || self.file(entry.ino).is_some() {
            return None;
        }
        if entry.attr.is_file() {
            self.open.learn_closed(entry.ino, (entry.attr, at), || true);
        }
        Some(self.looked_up(dir, name, asked, entry))
    }

    /// Counts a lookup that goes to the engine. Returns whether to read the whole directory
    /// instead.
    pub(crate) fn count_lookup(&self, dir: Ino) -> bool {
        self.prefetch.count(dir)
    }

    /// Keeps the page of a directory in which names are being looked up; `None` if the directory is
    /// too large.
    pub(crate) fn keep_prefetched(&self, dir: Ino, page: Option<Page>) {
        self.prefetch.keep(dir, page);
    }
}

/// Records of chunks.
impl MetaCache {
    /// The cached records of a chunk.
    pub(crate) fn chunk(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        self.chunks.get(ino, index)
    }

    /// Call this before records of a file are read. The result goes to [`Self::keep_chunk`].
    pub(crate) fn begin_chunk_read(&self, ino: Ino) -> u64 {
        self.chunks.begin_read(ino)
    }

    /// Caches records that were requested at `asked`, unless the file changed since. Returns the
    /// list to use.
    pub(crate) fn keep_chunk(&self, ino: Ino, index: u32, asked: u64, list: Vec<Slice>) -> Arc<[Slice]> {
        self.chunks.keep(ino, index, asked, list)
    }
}

/// Pages of the kernel.
impl MetaCache {
    /// Sets the function that makes the kernel drop all pages of a file. It returns at once, and
    /// [`Self::pages_dropped`] follows. Only the first call counts.
    pub(crate) fn on_stale_pages(&self, tell: impl Fn(Ino) + Send + Sync + 'static) {
        self.pages.on_stale(tell);
    }

    /// Handle `fh` opens a file. Returns whether the kernel keeps its pages: only if it `may`, and
    /// if nobody else changed the file since the kernel began to collect them.
    pub(crate) fn pages_opened(&self, ino: Ino, attr: &Attr, fh: u64, may: bool) -> bool {
        self.pages.opened(ino, attr, (fh, may), |ino| self.open.get(ino).is_some())
    }

    /// The kernel has the answer to the open of `fh`.
    pub(crate) fn pages_confirmed(&self, ino: Ino, fh: u64) {
        self.pages.confirmed(ino, fh);
    }

    /// A previous process opened this file.
    pub(crate) fn pages_restored(&self, ino: Ino) {
        self.pages.restored(ino);
    }

    /// This client changed a file that it found with the attributes `before`.
    pub(crate) fn pages_changed(&self, ino: Ino, before: Option<&Attr>, after: &Attr) {
        if self.pages.changed(ino, before, after) {
            self.content_changed(ino);
            self.drop_pages_if_open(ino);
        }
    }

    /// The engine was asked for attributes of a file at `asked`, and returned these. Returns
    /// whether the kernel drops its pages because somebody else changed the file.
    pub(crate) fn pages_seen(&self, ino: Ino, attr: &Attr, asked: Moment) -> bool {
        // An answer from before a change by this client says nothing of others.
        let changed = !self.changed_since(ino, asked) && self.pages.seen(ino, attr);
        changed && self.drop_pages_if_open(ino)
    }

    /// The next open drops the kernel's pages of a file.
    pub(crate) fn doubt_pages(&self, ino: Ino) {
        self.pages.doubt(ino);
    }

    /// The kernel's pages of an open file are wrong, or may be.
    pub(crate) fn drop_pages(&self, ino: Ino) {
        self.pages.doubt(ino);
        self.pages.begin_drop(ino);
    }

    /// Without a handle, the next open sees whether the pages are stale.
    fn drop_pages_if_open(&self, ino: Ino) -> bool {
        let is_open = self.open.get(ino).is_some();
        if is_open {
            self.pages.begin_drop(ino);
        }
        is_open
    }

    /// The kernel has dropped the pages of a file.
    pub(crate) fn pages_dropped(&self, ino: Ino) {
        self.pages.end_drop(ino);
    }

    /// Whether the kernel is about to drop the pages of a file.
    pub(crate) fn drops_pages(&self, ino: Ino) -> bool {
        self.pages.is_dropping(ino)
    }

    /// Waits until the kernel has dropped the pages of a file, but no longer than `timeout`.
    pub(crate) fn await_pages_dropped(&self, ino: Ino, timeout: Duration) {
        self.pages.await_drop(ino, timeout);
    }
}
