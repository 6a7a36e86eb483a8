//! The temporary directory in which the operations are measured.
//!
//! What must stay true: everything created in it can be removed, and no record of it is left. A
//! removal bypasses the trash, and deletes the chunks of removed files too.

use std::process;

use anyhow::{Context, Result};
use sluice_meta::{
    BlockSink, Interrupt, Meta,
    engine::Scan,
    op::At,
    ops::{
        removal::RemovedNode,
        rmdir::Rmdir,
        unlink::{Removed, Unlink},
    },
    schema::Row,
};
use sluice_types::{Caller, FileType, FsError, FsResult, Ino, Name};

use crate::tree::make_dir;

/// A temporary directory below the root.
pub(super) struct Scratch<'a> {
    meta: &'a Meta,
    name: String,
    dir: Ino,
}

/// Deletes nothing, because these slices have no blocks.
pub(super) struct NoBlocks;

impl BlockSink for NoBlocks {
    fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<FsResult<()>> {
        slices.iter().map(|_| Ok(())).collect()
    }
}

impl<'a> Scratch<'a> {
    /// Creates it.
    pub(super) fn new(meta: &'a Meta) -> Result<Self> {
        let name = format!("__sluice_bench_meta_{}__", process::id());
        let dir =
            make_dir(meta, Ino::ROOT, name.as_bytes()).with_context(|| format!("cannot make /{name}"))?;
        Ok(Self { meta, name, dir })
    }

    /// Runs `work` with `count` new directories in it, and removes them afterwards.
    pub(super) fn in_directories<T>(
        &self,
        name: &str,
        count: usize,
        work: impl FnOnce(&[Ino]) -> FsResult<T>,
    ) -> FsResult<T> {
        let directory = |number| make_dir(self.meta, self.dir, format!("{name}.{number}").as_bytes());
        let done = (0..count).map(directory).collect::<FsResult<Vec<Ino>>>().and_then(|dirs| work(&dirs));
        let emptied = empty(self.meta, self.dir);
        // The error of the work comes before that of the removal.
        let done = done?;
        emptied.map(|()| done)
    }

    /// Removes it.
    pub(super) fn remove(self) -> Result<()> {
        let at = At::new(Ino::ROOT, Name::new(self.name.as_bytes())?);
        remove(self.meta, &at, self.dir)
            .with_context(|| format!("/{} stays behind in the volume: remove it", self.name))
    }
}

/// Removes a directory and everything in it.
fn remove(meta: &Meta, at: &At, dir: Ino) -> FsResult<()> {
    loop {
        empty(meta, dir)?;
        match meta.run(rmdir(at.clone(), dir), &Interrupt::never()) {
            // Removals may have shifted a page of the listing.
            Err(FsError::NotEmpty) => {}
            Ok(_) | Err(FsError::NotFound) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// Removes most entries of a directory.
fn empty(meta: &Meta, dir: Ino) -> FsResult<()> {
    let never = Interrupt::never();
    meta.each_page(Scan::Entries { dir, nodes: false }, &never, |rows| {
        let (mut dirs, mut files) = (Vec::new(), Vec::new());
        for row in rows {
            let Row::Entry(_, name, entry) = row else { continue };
            let at = At::new(dir, name);
            if entry.kind == FileType::Dir {
                dirs.push((at, entry.ino));
            } else {
                files.push(unlink(at));
            }
        }
        let mut waiting = Vec::new();
        for removed in meta.run_all(files, &never) {
            match removed {
                Ok(removed) => waiting.extend(file_waiting(&removed)),
                Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        meta.delete_files(&waiting, &NoBlocks, &never)?;
        let removals = dirs.iter().map(|(at, ino)| rmdir(at.clone(), *ino)).collect();
        for (removed, (at, ino)) in meta.run_all(removals, &never).into_iter().zip(&dirs) {
            match removed {
                Err(FsError::NotEmpty) => remove(meta, at, *ino)?,
                Ok(_) | Err(FsError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    })
}

/// The file whose chunks a removal left to be deleted: inode and length.
pub(super) fn file_waiting(removed: &Removed) -> Option<(Ino, u64)> {
    match removed.node {
        RemovedNode::Deleted { file_length: Some(length), .. } => Some((removed.ino, length)),
        _ => None,
    }
}

/// Removes a name and bypasses the trash.
pub(super) fn unlink(at: At) -> Unlink {
    Unlink { at, only: None, skip_trash: true, caller: ROOT }
}

/// Removes a directory and bypasses the trash.
pub(super) fn rmdir(at: At, dir: Ino) -> Rmdir {
    Rmdir { at, hint: Some(dir), skip_trash: true, caller: ROOT }
}

/// The superuser. Its permissions are checked like everybody's.
pub(super) const ROOT: Caller = Caller::user(0, 0);
