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

    /// How many files are open.
    pub(crate) fn open_files(&self) -> usize {
        self.open.count()
    }

    /// Whether a file that is being opened is unchanged since its last open. Remembers its present
    /// state.
    pub(crate) fn same_as_at_last_open(&self, ino: Ino, attr: &Attr) -> bool {
        self.open.same_as_at_last_open(ino, attr)
    }

    /// The next open of a file is not compared with the last one.
    pub(crate) fn forget_last_open(&self, ino: Ino) {
        self.open.forget_last_open(ino);
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
