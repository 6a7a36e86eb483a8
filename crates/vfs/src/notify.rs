//! Follows the changes of other clients, and invalidates them in the kernel.

use std::sync::Arc;

use sluice_meta::schema::Change;

use crate::invalidate::Certainty;
use crate::vfs::Vfs;

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
