//! Removes a tree (`rmr`).

use sluice_types::{Caller, FileType, FsError, FsResult, Ino};

use super::Progress;
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    op::At,
    ops::{lookup::Lookup, removal::RemovedNode, rmdir::Rmdir, unlink::Unlink},
    schema::Row,
};

impl Meta {
    /// Removes an entry and all below it. What others add meanwhile is removed too, as far as it is
    /// seen.
    pub fn remove_tree(
        &self,
        at: &At,
        skip_trash: bool,
        caller: &Caller,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<()> {
        self.remove_tree_telling(at, skip_trash, caller, interrupt, (progress, &|_, _| {}))
    }

    /// As [`Self::remove_tree`]; each node that lost a name, and what became of it, is told to
    /// `removed`, also those before a failure.
    pub fn remove_tree_telling(
        &self,
        at: &At,
        skip_trash: bool,
        caller: &Caller,
        interrupt: &Interrupt,
        (progress, removed): (Progress<'_>, Removed<'_>),
    ) -> FsResult<()> {
        let (ino, attr) = self.read(&Lookup(at.clone()), interrupt)?;
        if !attr.is_dir() {
            let done = self
                .run(Unlink { at: at.clone(), only: None, skip_trash, caller: caller.clone() }, interrupt)?;
            removed(done.ino, done.node);
            progress(1);
            return Ok(());
        }
        let remover = Remover { meta: self, skip_trash, caller, interrupt, progress, removed };
        remover.remove_dir(at, ino)
    }
}

/// Directories of one directory that are held at once.
const MOST_DIRS: usize = 10_000;

/// Told of each node that lost a name, and of what became of it.
pub type Removed<'r> = &'r (dyn Fn(Ino, RemovedNode) + Sync);

/// A node, and the name that it has.
type Named = (Ino, At);

/// A directory on its way out.
struct PendingDir {
    ino: Ino,
    at: At,
    /// Whether all that was seen in it is gone.
    emptied: bool,
}

struct Remover<'a> {
    meta: &'a Meta,
    skip_trash: bool,
    caller: &'a Caller,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
    removed: Removed<'a>,
}

impl Remover<'_> {
    /// Removes a directory with its content. The way down is a list and not the stack, which a deep
    /// tree would overflow.
    fn remove_dir(&self, at: &At, ino: Ino) -> FsResult<()> {
        let mut left = vec![PendingDir { ino, at: at.clone(), emptied: false }];
        while let Some(dir) = left.last_mut() {
            if !dir.emptied {
                let below = self.empty(dir.ino)?;
                dir.emptied = below.len() < MOST_DIRS;
                if !below.is_empty() {
                    left.extend(below.into_iter().map(|(ino, at)| PendingDir { ino, at, emptied: false }));
                    continue;
                }
            }
            match self.rmdir(dir) {
                // Somebody added an entry, or put another directory there; or a page of the scan
                // was shifted by our own removals.
                Err(FsError::NotEmpty) if !self.interrupt.is_set() => {
                    match self.meta.read(&Lookup(dir.at.clone()), self.interrupt) {
                        Ok((ino, _)) => (dir.ino, dir.emptied) = (ino, false),
                        Err(FsError::NotFound) => drop(left.pop()),
                        Err(error) => return Err(error),
                    }
                }
                Err(FsError::NotFound) => drop(left.pop()),
                Err(error) => return Err(error),
                Ok(()) => {
                    (self.progress)(1);
                    left.pop();
                }
            }
        }
        Ok(())
    }

    fn rmdir(&self, dir: &PendingDir) -> FsResult<()> {
        let (at, skip_trash, caller) = (dir.at.clone(), self.skip_trash, self.caller.clone());
        let done = self.meta.run(Rmdir { at, hint: Some(dir.ino), skip_trash, caller }, self.interrupt)?;
        (self.removed)(done.ino, done.node);
        Ok(())
    }

    /// Removes all of a directory but the directories in it; answers these, or the first of very
    /// many.
    fn empty(&self, dir: Ino) -> FsResult<Vec<Named>> {
        let mut below = Vec::new();
        let sort = |rows: Vec<Row>| {
            if below.len() >= MOST_DIRS {
                return Err(FsError::Again);
            }
            let mut files = Vec::new();
            for row in rows {
                let Row::Entry(_, name, entry) = row else { continue };
                let named = (entry.ino, At::new(dir, name));
                if entry.kind == FileType::Dir { below.push(named) } else { files.push(named) }
            }
            // As they were made: what was written together lies together.
            files.sort_unstable_by_key(|(ino, _)| *ino);
            Ok(files)
        };
        let scan = Scan::Entries { dir, nodes: false };
        match self.meta.each_page_ahead(scan, self.interrupt, sort, |files| self.remove_files(files)) {
            Err(FsError::Again) if below.len() >= MOST_DIRS => Ok(below),
            done => done.map(|()| below),
        }
    }

    fn remove_files(&self, files: Vec<Named>) -> FsResult<()> {
        let unlink =
            |(_, at)| Unlink { at, only: None, skip_trash: self.skip_trash, caller: self.caller.clone() };
        let count = files.len() as u64;
        let mut failed = Ok(());
        for done in self.meta.run_all(files.into_iter().map(unlink).collect(), self.interrupt) {
            match done {
                Ok(done) => (self.removed)(done.ino, done.node),
                Err(FsError::NotFound) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        if failed.is_ok() {
            (self.progress)(count);
        }
        failed
    }
}
