//! Requests and knowledge from before this server took the place of one that died.

use std::{sync::Arc, thread};

use sluice_vfs::{Journal, Restored};

use super::{VolumeFs, files::forget_pages};
use crate::{call::Underway, notify::Notifier, session::Session};

impl VolumeFs {
    /// Sees to requests that nobody answers if a server dies, where the kernel does not ask its
    /// successor again (before Linux 6.9): those `underway` at the death of the last server get
    /// EIO, and from now on it is kept which they are.
    pub fn keep_underway(&self, session: &Session, underway: &[u64]) {
        if let Some(journal) = &self.vfs.config().journal
            && !session.connection().can_resend()
        {
            session.keep_underway(Arc::clone(journal) as _);
            session.refuse(underway);
        }
    }

    /// Has the kernel forget what the server knew that was here before, and what was lost with it:
    /// to be called beside [`Self::notify`]. It takes a thread of its own, since the kernel may
    /// wait for requests meanwhile.
    pub fn forget_before(&self, notifier: Notifier, restored: Restored) {
        let fs = self.clone();
        let tell = move || {
            for ino in restored.lost {
                forget_pages(&notifier, fs.number(ino));
            }
            for ino in restored.open {
                let _ = notifier.inval_inode(fs.number(ino), -1, 0);
            }
            // Older kernels do not know how; what they were given lasts no longer than they were
            // told.
            let _ = notifier.inc_epoch();
        };
        if let Err(why) = thread::Builder::new().name("fuse-forget".into()).spawn(tell) {
            tracing::warn!(%why, "no thread to tell the kernel what was lost");
        }
    }
}

impl Underway for Journal {
    fn began(&self, unique: u64) {
        Self::began(self, unique);
    }

    fn answered(&self, unique: u64) {
        Self::answered(self, unique);
    }
}
