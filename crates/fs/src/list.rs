//! Listings.
//!
//! What must stay true: names need read permission of the directory, attributes search permission,
//! as with a kernel. The memory of a listing does not depend on the size of the directory.

use std::collections::HashSet;

use sluice_types::{Access, Attr, FileType, FsError, FsResult, Ino, Name};
use sluice_vfs::{Interrupt, Listed, OpKind};

use crate::{error::Result, fs::Fs};

/// Names that are read at once if the caller does not say how many.
const PAGE: usize = 2048;

/// Where a listing continues. It is good for this directory on this volume, as long as the program
/// wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cursor(sluice_vfs::Cursor);

impl Cursor {
    /// It as bytes, for those who keep it outside of the program.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.0
    }

    /// It from bytes. Others than those of [`Self::as_bytes`] lead anywhere in the directory, or to
    /// an error.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self(sluice_vfs::Cursor(bytes.to_vec()))
    }
}

/// A name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The name.
    pub name: Name,
    /// What it stands for.
    pub ino: Ino,
    /// Kind of the node.
    pub kind: FileType,
    /// Attributes of the node. None if the user may not search the directory, or if the node was
    /// removed meanwhile.
    pub attr: Option<Attr>,
}

/// A part of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Names, in the order of the engine.
    pub items: Vec<Item>,
    /// Whether the engine sorts names. If not, as Redis, a later page may repeat one.
    pub sorted: bool,
    /// Where it continues; `None` at the end of the directory.
    pub next: Option<Cursor>,
}

impl Fs {
    /// About `limit` names of a directory from a cursor on, without `.` and `..`. Names that are
    /// there all the time come at least once, and once only if the engine sorts names. One trip.
    pub fn list(&self, path: impl AsRef<[u8]>, from: Option<&Cursor>, limit: usize) -> Result<Page> {
        self.run(OpKind::Readdir, path.as_ref(), |interrupt, path| {
            let (dir, searches) = self.listable(interrupt, path)?;
            self.page(interrupt, dir, searches, from, limit)
        })
    }

    /// All names of a directory, each once.
    pub fn list_all(&self, path: impl AsRef<[u8]>) -> Result<Vec<Item>> {
        self.run(OpKind::Readdir, path.as_ref(), |interrupt, path| {
            let (dir, searches) = self.listable(interrupt, path)?;
            let mut items = Vec::new();
            let mut from = None;
            let sorted = loop {
                let page = self.page(interrupt, dir, searches, from.as_ref(), PAGE)?;
                items.extend(page.items);
                match page.next {
                    Some(next) => from = Some(next),
                    None => break page.sorted,
                }
            };
            if !sorted {
                let mut seen = HashSet::with_capacity(items.len());
                items.retain(|item| seen.insert(item.name.clone()));
            }
            Ok(items)
        })
    }

    /// A directory that the user may list, and whether the user may search it.
    fn listable(&self, interrupt: &Interrupt, path: &[u8]) -> FsResult<(Ino, bool)> {
        let (dir, attr) = self.existing(interrupt, path, true)?;
        if !attr.is_dir() {
            return Err(FsError::NotDir);
        }
        self.check(interrupt, (dir, &attr), Access::READ)?;
        let searches = self.vfs().meta().may_access(dir, &attr, self.caller(), Access::EXEC, interrupt)?;
        Ok((dir, searches))
    }

    fn page(
        &self,
        interrupt: &Interrupt,
        dir: Ino,
        searches: bool,
        from: Option<&Cursor>,
        limit: usize,
    ) -> FsResult<Page> {
        let from = from.map(|Cursor(cursor)| cursor);
        let (listed, next) = self.vfs().list(interrupt, dir, from, limit)?;
        let item =
            |Listed { name, ino, kind, attr }| Item { name, ino, kind, attr: attr.filter(|_| searches) };
        let sorted = self.vfs().meta().sorts_names();
        Ok(Page { items: listed.into_iter().map(item).collect(), sorted, next: next.map(Cursor) })
    }
}
