//! Remove a tree (`rmr`).

use sluice_types::{Caller, FileType, FsError, FsResult, Ino};

use super::Progress;
use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    op::At,
    ops::{lookup::Lookup, rmdir::Rmdir, unlink::Unlink},
    schema::Row,
};

impl Meta {
    /// Removes an entry and all below it. What others add meanwhile is removed too, as far as it is seen.
    pub fn remove_tree(
        &self,
        at: &At,
        skip_trash: bool,
        caller: &Caller,
        interrupt: &Interrupt,
        progress: Progress<'_>,
    ) -> FsResult<()> {
        let (ino, attr) = self.ask(&Lookup(at.clone()), interrupt)?;
        if !attr.is_dir() {
            self.run(Unlink { at: at.clone(), skip_trash, caller: caller.clone() }, interrupt)?;
            progress(1);
            return Ok(());
        }
        let remover = Remover { meta: self, skip_trash, caller, interrupt, progress };
        remover.remove_dir(at, ino)
    }
}

/// A node, and the name that it has.
type Named = (Ino, At);

struct Remover<'a> {
    meta: &'a Meta,
    skip_trash: bool,
    caller: &'a Caller,
    interrupt: &'a Interrupt,
    progress: Progress<'a>,
}

impl Remover<'_> {
    /// Removes a directory with its content.
    fn remove_dir(&self, at: &At, ino: Ino) -> FsResult<()> {
        loop {
            self.empty(ino)?;
            let rmdir = Rmdir {
                at: at.clone(),
                hint: Some(ino),
                skip_trash: self.skip_trash,
                caller: self.caller.clone(),
            };
            match self.meta.run(rmdir, self.interrupt) {
                // Somebody added an entry; or a page of the scan was shifted by our own removals.
                Err(FsError::NotEmpty) if !self.interrupt.is_set() => {}
                Err(FsError::NotFound) => return Ok(()),
                Err(error) => return Err(error),
                Ok(_) => {
                    (self.progress)(1);
                    return Ok(());
                }
            }
        }
    }

    /// Removes the content of a directory.
    fn empty(&self, dir: Ino) -> FsResult<()> {
        let sort = |rows: Vec<Row>| {
            let (mut dirs, mut files) = (Vec::new(), Vec::new());
            for row in rows {
                let Row::Entry(_, name, entry) = row else { continue };
                let named = (entry.ino, At::new(dir, name));
                if entry.kind == FileType::Dir { dirs.push(named) } else { files.push(named) }
            }
            // As they were made: what was written together lies together.
            files.sort_unstable_by_key(|(ino, _)| *ino);
            Ok((dirs, files))
        };
        let remove = |(dirs, files): (Vec<Named>, Vec<Named>)| {
            dirs.iter().try_for_each(|(ino, at)| self.remove_dir(at, *ino))?;
            self.remove_files(files)
        };
        self.meta.each_page_ahead(Scan::Entries { dir, nodes: false }, self.interrupt, sort, remove)
    }

    fn remove_files(&self, files: Vec<Named>) -> FsResult<()> {
        let unlink = |(_, at)| Unlink { at, skip_trash: self.skip_trash, caller: self.caller.clone() };
        let count = files.len() as u64;
        for removed in self.meta.run_all(files.into_iter().map(unlink).collect(), self.interrupt) {
            match removed {
                Ok(_) | Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        (self.progress)(count);
        Ok(())
    }
}
