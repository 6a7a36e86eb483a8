//! Forgetting, and telling the kernel.

use std::sync::Arc;

use sluice_meta::schema::Change;

use super::Certainty;
use crate::vfs::Vfs;

impl Vfs {
    /// Has `told` called for what changed without the kernel having asked for it: names that are
    /// removed through `.control`, and what other clients change while this one follows them
    /// ([`Meta::follow`](sluice_meta::Meta)). It answers whether the kernel knew what changed, and
    /// is called from a thread that no request needs. Only the first call counts.
    pub fn on_stale(self: &Arc<Self>, told: impl Fn(&Change, Certainty) -> bool + Send + Sync + 'static) {
        if self.stale.set(Box::new(told)).is_err() {
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

    /// Tells that something changed without the kernel having asked for it.
    pub(crate) fn tell_stale(&self, change: &Change) -> bool {
        self.tell(change, Certainty::Changed)
    }

    fn tell(&self, change: &Change, certainty: Certainty) -> bool {
        self.stale.get().is_none_or(|told| told(change, certainty))
    }

    /// Forgets what another client changed.
    fn changed_elsewhere(&self, change: &Change) {
        match change {
            Change::Node(ino) => {
                self.dirs.drop(*ino);
                self.known().changed_elsewhere(*ino);
            }
            Change::Entry(dir, _) | Change::Names(dir) => self.ahead.forget(*dir),
            Change::Any => {
                self.dirs.clear();
                self.ahead.clear();
                self.known().forget_names();
                self.known().open_inos().into_iter().for_each(|ino| self.known().changed_elsewhere(ino));
            }
            Change::Lock(_) => return,
        }
        for known in self.given.hear(change) {
            self.tell(&known, Certainty::Suspected);
        }
        let knew = self.tell_stale(change);
        // The answer from which the kernel will know it may be on its way; it has the directory
        // locked for that.
        if let Change::Node(ino) = change
            && !knew
            && let Some(name) = self.given.name_of(*ino)
        {
            self.tell(&name, Certainty::Suspected);
        }
    }
}
