//! Whole trees: remove, clone and count them.
//!
//! What must stay true: what is created or removed here is treated as if it had happened through
//! the mount, and is invalidated in the kernel.

use sluice_meta::{
    Interrupt,
    op::At,
    ops::removal::RemovedNode,
    schema::Change,
    tree::{CloneTree, Denied, Progress, SummaryNode},
};
use sluice_types::{Attr, Caller, FsResult, Ino};

use crate::vfs::Vfs;

/// How a tree is cloned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CloneOptions {
    /// Whether owner, mode and times are kept; the owner only if it is the caller, unless that is
    /// the superuser.
    pub preserve: bool,
    /// Bits that are cleared in modes that are not kept.
    pub umask: u16,
}

impl Vfs {
    /// Removes an entry and all below it. `progress` is called with the number of entries removed
    /// since the last call.
    pub fn remove_tree(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        (dir, name): (Ino, &[u8]),
        skip_trash: bool,
        progress: Progress<'_>,
    ) -> FsResult<()> {
        let at = At::new(dir, self.old_name(dir, name)?);
        let removed = self.meta.remove_tree_telling(
            &at,
            skip_trash,
            caller,
            interrupt,
            (progress, &|ino, node| self.after_removal(ino, node)),
        );
        self.cache().everything_changed();
        self.jobs.queue().recorded();
        self.invalidate_name(at);
        removed
    }

    /// Clones a node and all below it, without a copy of data. What this client wrote is stored
    /// first. Returns the root of the clone.
    pub fn clone_tree(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        source: Ino,
        (dir, name): (Ino, &[u8]),
        CloneOptions { preserve, umask }: CloneOptions,
        progress: Progress<'_>,
    ) -> FsResult<(Ino, Attr)> {
        let at = At::new(dir, self.new_name(dir, name)?);
        let clone = CloneTree { source, at: at.clone(), preserve, umask, caller: caller.clone() };
        let stored = |ino| self.data.flush_without_reporting(ino);
        let cloned = self.meta.clone_tree_of(&clone, interrupt, progress, &stored);
        self.invalidate_name(at);
        cloned
    }

    /// Counts a node and all below it as the engine has them, and keeps the largest entries:
    /// `shown` is how many levels, and how many of each directory. Directories that the caller may
    /// not list are left out and returned beside the sum. If too many trees are being counted, it
    /// waits for one of them.
    ///
    /// # Errors
    /// [`FsError::Access`](sluice_types::FsError) if `ino` is such a directory.
    pub fn summarize(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        shown: (usize, usize),
        progress: Progress<'_>,
    ) -> FsResult<(SummaryNode, Denied)> {
        let _walking = self.internals.control.walks.begin(caller, interrupt)?;
        self.meta.summarize(ino, shown, caller, interrupt, progress)
    }

    /// A node lost a name without a request of the kernel. The metadata keeps a record of deleted
    /// files.
    fn after_removal(&self, ino: Ino, node: RemovedNode) {
        match node {
            RemovedNode::Deleted { attr, .. } => {
                self.name_removed(ino, RemovedNode::Deleted { file_length: None, attr });
            }
            node => self.name_removed(ino, node),
        }
    }

    /// An entry and its directory changed without a request of the kernel.
    fn invalidate_name(&self, at: At) {
        self.cache().names_changed(at.dir);
        self.invalidate(&Change::Node(at.dir));
        self.invalidate(&Change::Entry(at.dir, at.name));
    }
}
