//! Following other clients, and notifying the kernel.

use std::sync::Arc;

use sluice_meta::schema::Change;

use super::Certainty;
use crate::vfs::Vfs;

impl Vfs {
    /// Has `notify` called for what changed without the kernel having asked for it: names that are
    /// removed through `.control`, and what other clients change while this one follows them
    /// ([`Meta::follow`](sluice_meta::Meta)). It answers whether the kernel had cached what
    /// changed, and is called from a thread that no request needs. Only the first call counts.
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

    /// Something changed without the kernel having asked for it. Whether the kernel had it cached.
    pub(crate) fn invalidate(&self, change: &Change) -> bool {
        self.notify(change, Certainty::Changed)
    }

    fn notify(&self, change: &Change, certainty: Certainty) -> bool {
        self.on_invalidate.get().is_none_or(|notify| notify(change, certainty))
    }

    /// Forgets what another client changed.
    fn changed_elsewhere(&self, change: &Change) {
        if let Change::Lock(_) = change {
            return;
        }
        for cached in self.cache().changed_elsewhere(change) {
            self.notify(&cached, Certainty::Suspected);
        }
        let cached = self.invalidate(change);
        // The answer by which the kernel will know it may be on its way; the kernel has the
        // directory locked for that.
        if let Change::Node(ino) = change
            && !cached
            && let Some(name) = self.cache().kernel_name_of(*ino)
        {
            self.notify(&name, Certainty::Suspected);
        }
    }
}
