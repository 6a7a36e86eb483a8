//! Follows the changes of other clients, and invalidates them in the kernel.

use std::sync::Arc;

use sluice_meta::schema::Change;
use sluice_types::Ino;

use crate::invalidate::Certainty;
use crate::vfs::Vfs;
use crate::watch::watch_open_files;

impl Vfs {
    /// Sets the function that is called for changes that the kernel did not request: names that are
    /// removed through `.control`, and changes of other clients while this one follows them
    /// ([`Meta::follow`](sluice_meta::Meta)). `notify` returns whether the kernel had the changed
    /// item cached. It is called from a thread that no request needs. Only the first call counts.
    pub fn on_invalidate(
        self: &Arc<Self>,
        notify: impl Fn(&Change, Certainty) -> bool + Send + Sync + 'static,
    ) {
        if self.on_invalidate.set(Box::new(notify)).is_err() {
            return;
        }
        let vfs = Arc::downgrade(self);
        self.meta.follow(Box::new(move |changes| {
            if let Some(vfs) = vfs.upgrade() {
                for change in changes {
                    vfs.changed_elsewhere(change);
                }
            }
        }));
    }

    /// Sets the function that makes the kernel drop all pages of a file that somebody else changed
    /// while it is open. It must return at once. [`Self::pages_dropped`] follows from a thread that
    /// no request needs. Call this once.
    pub fn on_stale_pages(&self, drop_pages: impl Fn(Ino) + Send + Sync + 'static) {
        self.cache().on_stale_pages(drop_pages);
        if !self.meta.follows_others() {
            let index = Arc::clone(&self.index);
            self.jobs.spawn("sluice-watch", move |stop| watch_open_files(&index, &stop));
        }
    }

    /// The kernel has dropped the pages of a file.
    pub fn pages_dropped(&self, ino: Ino) {
        self.cache().pages_dropped(ino);
    }

    /// The kernel's pages of an open file are wrong, whoever changed it. Makes the kernel drop
    /// them.
    pub fn drop_pages(&self, ino: Ino) {
        self.cache().drop_pages(ino);
    }

    /// Handles a change that the kernel did not request. Returns whether the kernel had it cached.
    pub(crate) fn invalidate(&self, change: &Change) -> bool {
        self.notify(change, Certainty::Changed)
    }

    fn notify(&self, change: &Change, certainty: Certainty) -> bool {
        self.on_invalidate.get().is_none_or(|notify| notify(change, certainty))
    }

    /// Handles a change of another client.
    fn changed_elsewhere(&self, change: &Change) {
        if let Change::Lock(_) = change {
            return;
        }
        for cached in self.cache().changed_elsewhere(change) {
            self.notify(&cached, Certainty::Suspected);
        }
        let cached = self.invalidate(change);
        // An answer that makes this inode known to the kernel may still be on its way. To
        // invalidate the name waits for it, because the kernel locks the directory until it has the
        // answer.
        if let Change::Node(ino) = change
            && !cached
            && let Some(name) = self.cache().kernel_name_of(*ino)
        {
            self.notify(&name, Certainty::Suspected);
        }
    }
}
