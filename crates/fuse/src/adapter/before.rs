//! The remaining state of the previous mount process, which died: its unanswered requests, and the
//! data that the kernel cached.

use std::{sync::Arc, thread};

use sluice_vfs::{Journal, Restored};

use super::{VolumeFs, pages::forget_pages};
use crate::{call::Underway, notify::Notifier, session::Session};

impl VolumeFs {
    /// Handles requests that get no answer if a server dies, on kernels that do not send them again
    /// to the successor (before Linux 6.9). Requests that were `underway` when the last server died
    /// get EIO. From now on, the requests under way are recorded.
    pub fn keep_underway(&self, session: &Session, underway: &[u64]) {
        if let Some(journal) = &self.vfs.config().journal
            && !session.connection().can_resend()
        {
            session.keep_underway(Arc::clone(journal) as _);
            session.refuse(underway);
        }
    }

    /// Invalidates in the kernel what it cached under the previous server, and what was lost with
    /// that server. Call it together with [`Self::notify`]. It uses a thread of its own, because
    /// the kernel may wait for requests meanwhile.
    pub fn forget_before(&self, notifier: Notifier, restored: Restored) {
        let fs = self.clone();
        let tell = move || {
            for ino in &restored.open {
                let _ = notifier.inval_inode(fs.number(*ino), -1, 0);
            }
            // Nobody knows whether other clients changed the open files meanwhile.
            for ino in restored.lost.into_iter().chain(restored.open) {
                forget_pages(&notifier, fs.number(ino));
            }
            // Older kernels cannot do this. There, entries expire after their normal time.
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
