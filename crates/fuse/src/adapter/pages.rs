//! Drops pages and attributes of files that the kernel has cached.
//!
//! What must stay true: the kernel may hold a page until a read or a write is answered. So only a
//! thread that no request needs makes it drop pages.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use super::VolumeFs;
use crate::notify::Notifier;

impl VolumeFs {
    /// Makes the kernel drop the attributes of a file that changed while it was opened: it reads no
    /// further than the length it knows. It waits for no request here, so any thread may do this.
    pub(super) fn forget_attributes(&self, ino: u64) {
        if let Some(notifier) = self.notifier.get()
            && let Err(why) = notifier.inval_inode(ino, -1, 0)
        {
            tracing::debug!("the kernel could not be told of changed attributes: {why}");
        }
    }

    /// Starts a thread that makes the kernel drop the pages of open files that others changed. It
    /// ends with the volume.
    pub(super) fn drop_stale_pages(&self, notifier: &Notifier) {
        let (stale, all_stale) = mpsc::channel();
        let (vfs, root, notifier) = (Arc::downgrade(&self.vfs), self.vfs.root(), notifier.clone());
        let drop_all = move || {
            for ino in all_stale {
                forget_pages(&notifier, super::number(root, ino));
                if let Some(vfs) = vfs.upgrade() {
                    vfs.pages_dropped(ino);
                }
            }
        };
        match thread::Builder::new().name("fuse-pages".into()).spawn(drop_all) {
            Ok(_) => self.vfs.on_stale_pages(move |ino| {
                // If the thread has ended, so has the mount.
                let _ = stale.send(ino);
            }),
            Err(why) => {
                tracing::warn!(%why, "no thread to tell the kernel that pages of open files are stale");
            }
        }
    }
}

/// Drops the kernel's pages and attributes of a file, from a thread that no request needs.
pub(super) fn forget_pages(notifier: &Notifier, ino: u64) {
    if let Err(why) = notifier.inval_inode(ino, 0, 0) {
        tracing::warn!(%why, ino, "the kernel keeps pages of a file that are no longer right until it is opened again");
    }
}
