//! Clone a tree: new nodes that show the same slices.

use parking_lot::Mutex;
use sluice_types::{Attr, CHUNK_SIZE, Caller, FileType, FsError, FsResult, Ino, Name};

use super::Progress;
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    op::At,
    ops::{
        clone::{Attach, CloneNode, TrashDetached, Visibility},
        getattr::GetAttr,
    },
    schema::{Entry, Row},
};

/// A clone to be made.
#[derive(Clone, Debug)]
pub struct CloneTree {
    /// The source.
    pub source: Ino,
    /// Where the copy goes; there must be nothing of that name.
    pub at: At,
    /// Whether owner, mode and times are kept.
    pub preserve: bool,
    /// Bits taken away unless they are kept.
    pub umask: u16,
    /// Who asks.
    pub caller: Caller,
}

impl Meta {
    /// Clones a node and all below it. A directory is built out of sight and gets its name at the
    /// end; a clone that fails removes what it made.
    pub fn clone_tree(
        &self,
        clone: &CloneTree,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<(Ino, Attr)> {
        self.clone_tree_of(clone, interrupt, progress, &|_| Ok(()))
    }

    /// As [`Self::clone_tree`]; `ready` is called with each file before it is cloned, and ends the
    /// clone by its error.
    pub fn clone_tree_of(
        &self,
        clone: &CloneTree,
        interrupt: &Interrupt,
        progress: Progress<'_>,
        ready: Ready<'_>,
    ) -> FsResult<(Ino, Attr)> {
        let mut source = self.read(&GetAttr(clone.source), interrupt)?;
        if source.is_file() {
            ready(clone.source)?;
            source = self.read(&GetAttr(clone.source), interrupt)?;
        }
        let ino = self.new_ino(interrupt)?;
        let walk = Walk { meta: self, clone, interrupt, progress, ready, made: Mutex::default() };
        if !source.is_dir() {
            let length = if source.is_file() { source.length } else { 0 };
            let at = clone.at.clone();
            let attr = self.run(walk.node(clone.source, length, ino, at, Visibility::Visible), interrupt)?;
            progress(1);
            return Ok((ino, attr));
        }
        if clone.at.dir == clone.source {
            return Err(FsError::Invalid);
        }
        walk.count(
            &self.run(walk.node(clone.source, 0, ino, clone.at.clone(), Visibility::Later), interrupt)?,
        );
        let built = walk.fill(clone.source, ino).and_then(|()| {
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            let (at, caller) = (clone.at.clone(), clone.caller.clone());
            let attach = Attach { ino, at, usage: *walk.made.lock(), caller };
            self.run(attach, interrupt)
        });
        match built {
            Ok(made) => {
                progress(1);
                Ok((ino, made.attr))
            }
            Err(error) => {
                // The operation may have timed out; cleaning up is the client's own.
                let removed = self.remove_detached(ino, &Interrupt::never());
                // If it is not found, it got its name after all.
                if let Err(left) = removed
                    && left != FsError::NotFound
                {
                    tracing::warn!(%ino, %left, "a failed clone could not be removed; `gc --delete` or the end of its hour in the trash will");
                }
                Err(error)
            }
        }
    }

    /// Removes a tree that never got a name, and to which nobody adds any more.
    pub fn remove_detached(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        let at = self.run(TrashDetached { ino }, interrupt)?;
        self.remove_tree(&at, true, &Caller::client(), interrupt, &|_| {})
    }
}

impl Meta {
    /// Removes the trees that clones left without a name before `before`, Unix seconds: of clients
    /// that died meanwhile. How many there were.
    ///
    /// # Errors
    /// The first one; the other trees are removed all the same.
    pub fn clean_detached(&self, before: i64, interrupt: &Interrupt) -> FsResult<u64> {
        let mut old = Vec::new();
        self.each_page(Scan::Detached, interrupt, |rows| {
            old.extend(rows.into_iter().filter_map(|row| match row {
                Row::Detached(ino, time) if time < before => Some(ino),
                _ => None,
            }));
            Ok(())
        })?;
        let (mut count, mut failed) = (0, Ok(()));
        for ino in old {
            match self.remove_detached(ino, interrupt) {
                Ok(()) => count += 1,
                // Another client was faster.
                Err(FsError::NotFound) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        failed.map(|()| count)
    }
}

/// Makes a file ready to be cloned: what is known of it here only is stored.
pub type Ready<'r> = &'r (dyn Fn(Ino) -> FsResult<()> + Sync);

struct Walk<'a> {
    meta: &'a Meta,
    clone: &'a CloneTree,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
    ready: Ready<'a>,
    /// Bytes and inodes made so far.
    made: Mutex<(i64, i64)>,
}

impl Walk<'_> {
    fn node(&self, source: Ino, length: u64, ino: Ino, at: At, visibility: Visibility) -> CloneNode {
        CloneNode {
            source,
            length,
            ino,
            at,
            visibility,
            preserve: self.clone.preserve,
            umask: self.clone.umask,
            caller: self.clone.caller.clone(),
        }
    }

    fn count(&self, made: &Attr) {
        let mut total = self.made.lock();
        *total = (total.0 + made.space(), total.1 + 1);
    }

    /// Clones the content of directory `source` into the new directory `into`, and all below it.
    /// The way down is a list and not the stack, which a deep tree would overflow.
    fn fill(&self, source: Ino, into: Ino) -> FsResult<()> {
        let dirs = Mutex::new(vec![(source, into)]);
        loop {
            let Some((source, into)) = dirs.lock().pop() else { return Ok(()) };
            self.meta.each_page_ahead(
                Scan::Entries { dir: source, nodes: false },
                self.interrupt,
                |rows| self.page(rows, into),
                |nodes| self.clone_nodes(nodes, &dirs),
            )?;
        }
    }

    /// The clones to be made of a page of entries, in the order of their inodes: what was made
    /// together is stored together. Most files have one chunk; those that have more cost one more
    /// trip.
    fn page(&self, rows: Vec<Row>, into: Ino) -> FsResult<Vec<CloneNode>> {
        let mut seen = rustc_hash::FxHashSet::default();
        let mut sources: Vec<(Entry, Name)> = rows
            .into_iter()
            .filter_map(|row| if let Row::Entry(_, name, entry) = row { Some((entry, name)) } else { None })
            .filter(|(_, name)| seen.insert(name.clone()))
            .collect();
        sources.sort_unstable_by_key(|(entry, _)| entry.ino);
        for (entry, _) in sources.iter().filter(|(entry, _)| entry.kind == FileType::File) {
            (self.ready)(entry.ino)?;
        }
        let clone = |((entry, name), ino): ((Entry, Name), Ino)| {
            let length = if entry.kind == FileType::File { CHUNK_SIZE } else { 0 };
            self.node(entry.ino, length, ino, At::new(into, name), Visibility::Hidden)
        };
        let inos = self.meta.new_inos(sources.len(), self.interrupt)?;
        Ok(sources.into_iter().zip(inos).map(clone).collect())
    }

    /// Clones many nodes at once and adds the directories among them, source and copy, to `dirs`.
    /// Those that vanished meanwhile, or that an earlier page had already, are left out.
    fn clone_nodes(&self, nodes: Vec<CloneNode>, dirs: &Mutex<Vec<(Ino, Ino)>>) -> FsResult<()> {
        let count = nodes.len() as u64;
        let pairs: Vec<(Ino, Ino)> = nodes.iter().map(|node| (node.source, node.ino)).collect();
        for (pair, cloned) in pairs.into_iter().zip(self.meta.run_all(nodes, self.interrupt)) {
            match cloned {
                Ok(attr) => {
                    self.count(&attr);
                    if attr.is_dir() {
                        dirs.lock().push(pair);
                    }
                }
                Err(FsError::NotFound | FsError::Exists) => {}
                Err(error) => return Err(error),
            }
        }
        (self.progress)(count);
        Ok(())
    }
}
