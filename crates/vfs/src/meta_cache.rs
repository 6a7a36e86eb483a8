//! The mount cache: the metadata that a mount caches, and what the kernel may have cached of the
//! metadata.
//!
//! What must stay true: nothing that was read before a change is shown after it. Therefore each
//! event is one method of [`MetaCache`], which invalidates all parts. The parts are private to this
//! module. This is what each event does to them:
//!
//! ```text
//!                      last      open file's  chunk    directory's  lookup     kernel
//!                      change    attributes   records  attributes   prefetch   cache
//! a change made here
//!   change             marked    set (1)      -        set          -          -
//!   changed            marked    -            -        forgotten    -          -
//!   entry_changed      marked    -            -        set          -          -
//!   renamed            marked    links, times -        forgotten    -          -
//!   removed            marked    -            all (2)  forgotten    -          -
//!   content_changed    -         -            all      -            -          -
//!   chunk_changed      -         -            one      -            -          -
//! a change that the kernel did not ask for
//!   names_changed      marked    -            -        forgotten    forgotten  -
//!   everything_changed all       all (3)      -        all          all        -
//! a change of another client
//!   changed_elsewhere
//!     Node             marked    forgotten(3) -        forgotten    -          marked
//!     Entry            -         -            -        -            forgotten  marked
//!     Names            -         -            -        -            forgotten  marked (4)
//!     Any              all       all (3)      -        all          all        all (4)
//! an answer of the engine
//!   learn              -         set (5)      all (6)  -            -          -
//!   answered           marked    -            -        -            -          -
//! ```
//!
//! 1. The attributes are forgotten instead, if a change notification of another client arrived
//!    after this change began, or if the client has an answer to a request that was sent after
//!    that.
//! 2. If the node is not a regular file, its last attributes are stored in `removed_nodes`.
//! 3. The result of a change that is still under way is not kept either, because it is unknown
//!    which of both came last.
//! 4. The caller gets all names of the directory (for `Any`: of all directories) that the kernel
//!    may have cached, and invalidates them.
//! 5. Not set if this client changed the file after the read began, or has the result of a later
//!    read. If it is unknown which of these is the newest, the caller requests the attributes
//!    again.
//! 6. Forgotten only if the times differ from those that were seen last.
//!
//! Attributes of files that are not open, if they are kept, are forgotten with each change of the
//! file, whoever made it. An answer of the engine sets them.
//!
//! The kernel's pages of a file (`kernel_pages`) are stale if somebody else changed the file.
//! `Node` and `Any`, the state that a change by this client found (`pages_changed`), and an answer
//! of the engine (`pages_seen`) say so. Then the kernel drops the pages, or the next open does.
//!
//! When an event *marks* an inode, nothing that was read before the mark is used any more: its
//! attributes in pages of listings and of the lookup prefetch, and results that are still on their
//! way. Hints about directories are never dropped, because they are allowed to be wrong.

mod answers;
mod changes;
mod chunk_records;
mod dir_attributes;
mod dir_hints;
mod kernel_cache;
mod kernel_pages;
mod lookup_prefetch;
mod moment;
mod open_files;
mod removed_nodes;

use std::{sync::Arc, time::Duration};

use sluice_meta::schema::Change;
use sluice_types::{Attr, Ino, wait};

use self::{
    changes::Changes, chunk_records::ChunkRecords, dir_attributes::DirAttributes, dir_hints::DirHints,
    kernel_cache::KernelCache, kernel_pages::KernelPages, lookup_prefetch::LookupPrefetch,
    open_files::OpenFiles, removed_nodes::RemovedNodes,
};
pub(crate) use self::{
    lookup_prefetch::{MAX_PREFETCHED, Page},
    moment::Moment,
    open_files::{AfterClose, OpenFile},
};

/// The mount cache.
#[derive(Default)]
pub(crate) struct MetaCache {
    changes: Changes,
    open: OpenFiles,
    chunks: ChunkRecords,
    dirs: DirAttributes,
    removed: RemovedNodes,
    hints: DirHints,
    prefetch: LookupPrefetch,
    kernel: KernelCache,
    pages: KernelPages,
}

impl MetaCache {
    /// Sets which directory is shown as the root, and, if other clients are followed, the longest
    /// time for which the kernel caches anything. Only the first call counts.
    pub(crate) fn serve(&self, root: Ino, longest_ttl: Option<Duration>) {
        self.dirs.set_root(root);
        if let Some(longest) = longest_ttl {
            self.kernel.follow(longest);
        }
    }

    /// Keeps attributes of files that are not open, too, for opens that are answered without the
    /// engine.
    pub(crate) fn keep_closed_files(&self) {
        self.open.keep_closed_files();
    }

    /// One more handle of a file. Called before the trip that opens.
    pub(crate) fn opened(&self, ino: Ino) -> Arc<OpenFile> {
        let now = self.changes.mark(ino);
        self.open.enter(ino, now)
    }

    /// As [`Self::opened`], called after a trip that was sent at `asked` and returned attributes.
    pub(crate) fn opened_later(&self, ino: Ino, asked: Moment) -> Arc<OpenFile> {
        self.open.enter(ino, asked.own)
    }

    /// One handle less of a file.
    pub(crate) fn closed(&self, ino: Ino) -> AfterClose {
        self.open.leave(ino)
    }

    /// A file lost its last name. Returns whether it is still open.
    pub(crate) fn unlinked(&self, ino: Ino) -> bool {
        self.open.unlinked(ino)
    }

    /// Runs an operation that changes attributes of `ino`, and caches the new attributes.
    pub(crate) fn change<T, E>(
        &self,
        ino: Ino,
        run: impl FnOnce() -> Result<T, E>,
        attr: impl FnOnce(&T) -> Attr,
    ) -> Result<T, E> {
        let file = self.open.get(ino);
        let _order = file.as_ref().map(|file| file.begin_change());
        let begun = self.moment();
        let done = run()?;
        let now = self.changes.mark(ino);
        self.open.forget_closed(ino);
        let attr = attr(&done);
        if let Some(open) = self.open.get(ino) {
            match &file {
                Some(file) if Arc::ptr_eq(file, &open) => file.changed(attr, begun.own, now),
                // The file was opened meanwhile, be it after a last close, so other changes since
                // are unknown.
                _ => open.forget(now),
            }
        }
        if attr.is_dir() {
            self.dirs.put(ino, &attr, begun.others);
        }
        Ok(done)
    }

    /// This client changed `ino`, and the operation returned no attributes.
    pub(crate) fn changed(&self, ino: Ino) {
        self.changes.mark(ino);
        self.open.forget_closed(ino);
        self.dirs.forget(ino);
    }

    /// A change that this client began at `begun` changed the entries of a directory, and left
    /// these attributes.
    pub(crate) fn entry_changed(&self, dir: Ino, attr: &Attr, begun: Moment) {
        self.changes.mark(dir);
        self.dirs.put(dir, attr, begun.others);
    }

    /// A change of names by this client changed a node's links, parent and times.
    pub(crate) fn renamed(&self, ino: Ino, attr: &Attr) {
        let now = self.changes.mark(ino);
        self.open.forget_closed(ino);
        if let Some(file) = self.open.get(ino) {
            file.renamed(attr, now);
        }
        if attr.is_dir() {
            self.dirs.forget(ino);
        }
    }

    /// This client removed a node, whose last attributes these are.
    pub(crate) fn removed(&self, ino: Ino, attr: Option<Attr>) {
        if let Some(attr) = attr.filter(|attr| !attr.is_file()) {
            self.removed.put(ino, attr);
        }
        self.changed(ino);
        self.chunks.forget(ino);
    }

    /// This client changed the content of a file at any place, or may have, or deleted the file.
    pub(crate) fn content_changed(&self, ino: Ino) {
        self.open.forget_closed(ino);
        self.chunks.forget(ino);
    }

    /// This client changed one chunk of a file, or may have.
    pub(crate) fn chunk_changed(&self, ino: Ino, index: u32) {
        self.chunks.changed(ino, index);
    }

    /// Names of a directory changed, and the kernel had not requested it.
    pub(crate) fn names_changed(&self, dir: Ino) {
        self.changed(dir);
        self.prefetch.forget(dir);
    }

    /// Anything may have changed.
    pub(crate) fn everything_changed(&self) {
        self.dirs.clear();
        self.prefetch.clear();
        self.changes.mark_all();
        self.open.forget_all_closed();
        for ino in self.open.inos() {
            self.node_changed_elsewhere(ino);
        }
    }

    /// Another client changed something, or may have. This does not wait for changes that are under
    /// way here. Returns what must also be invalidated in the kernel.
    pub(crate) fn changed_elsewhere(&self, change: &Change) -> Vec<Change> {
        match change {
            Change::Node(ino) => {
                self.dirs.forget(*ino);
                self.node_changed_elsewhere(*ino);
            }
            Change::Entry(dir, _) | Change::Names(dir) => self.prefetch.forget(*dir),
            Change::Any => self.everything_changed(),
            Change::Lock(_) => {}
        }
        self.kernel.changed_elsewhere(change)
    }

    fn node_changed_elsewhere(&self, ino: Ino) {
        let now = self.changes.mark(ino);
        self.open.forget_closed(ino);
        if let Some(file) = self.open.get(ino) {
            file.changed_elsewhere(now);
            self.drop_pages(ino);
        }
    }

    /// Caches attributes that were requested at `asked`. Returns the attributes to show. They
    /// differ if this client changed them meanwhile, or has the result of a later request: of two
    /// requests at once, only the later one certainly includes what others did before it began.
    /// `None` if neither is known to be the newest: they must be requested again.
    pub(crate) fn learn(&self, ino: Ino, attr: Attr, asked: Moment) -> Option<Attr> {
        if !attr.is_file() {
            return Some(attr);
        }
        self.chunks.seen(ino, &attr);
        if let Some(file) = self.open.get(ino) {
            return file.learn(attr, asked.own);
        }
        self.open.learn_closed(ino, (attr, wait::now()), || !self.changes.since(ino, asked.own));
        Some(attr)
    }

    /// Attributes of `ino` from the engine are shown now. Older ones must not be shown again.
    pub(crate) fn answered(&self, ino: Ino) {
        self.changes.mark(ino);
    }
}

#[cfg(test)]
mod tests;
