//! Reports the files that need missing blocks.
//!
//! What must stay true: the memory use does not depend on the number of reported files.

use std::fmt::Write as _;

use anyhow::Result;
use rustc_hash::FxHashMap;
use sluice_data::Layout;
use sluice_meta::{Meta, sort::SortSpace};
use sluice_types::{FsResult, Ino, Interrupt, printable};

use super::objects::{Fault, Faults};
use crate::blocks::needs;

/// Files that are reported by their path; finding it takes a walk.
const MOST_PATHS: usize = 100;
/// Files that are reported of one slice; clones share it.
const MOST_FILES: usize = 1000;

/// Prints faults with the files that they are in; how many there are. What no file shows any more
/// is no fault.
pub(super) fn report(meta: &Meta, layout: Layout, space: &SortSpace, faults: &Faults) -> Result<u64> {
    let mut faults = faults.all()?.peekable();
    if faults.peek().is_none() {
        return Ok(0);
    }
    let files = meta.files_of_slices(space, &Interrupt::never())?;
    let mut sharers = Sharers { files: files.all()?, next: None, id: 0, of_id: Vec::new(), more: 0 };
    let mut paths = Paths { meta, known: FxHashMap::default() };
    let mut count = 0;
    for fault in faults {
        let fault = fault?;
        sharers.seek(fault.block.id)?;
        if let Some(needed_by) = sharers.needing(&fault, layout, &mut paths) {
            count += 1;
            outln!("error: object {} {}, needed by {needed_by}", layout.name(fault.block), fault.what());
        }
    }
    if count > 0 {
        outln!(
            "a client with --writeback may still have missing blocks on its local disk: mount there to upload them"
        );
    }
    Ok(count)
}

/// The files that refer to slices, read together with the faults.
struct Sharers<I> {
    files: I,
    next: Option<(u64, u32, Ino)>,
    /// The slice that is looked at, and sizes with files of it.
    id: u64,
    of_id: Vec<(u32, Ino)>,
    /// Files beside those.
    more: u64,
}

impl<I: Iterator<Item = FsResult<(u64, u32, Ino)>>> Sharers<I> {
    /// Goes on to a slice; ids never fall.
    fn seek(&mut self, id: u64) -> FsResult<()> {
        if self.id == id {
            return Ok(());
        }
        (self.id, self.more) = (id, 0);
        self.of_id.clear();
        if self.next.is_none() {
            self.next = self.files.next().transpose()?;
        }
        while let Some((next, size, ino)) = self.next.filter(|(next, ..)| *next <= id) {
            if next == id && self.of_id.len() < MOST_FILES {
                self.of_id.push((size, ino));
            } else if next == id {
                self.more += 1;
            }
            self.next = self.files.next().transpose()?;
        }
        Ok(())
    }

    /// The files that need a block; `None` if there are none.
    fn needing(&self, fault: &Fault, layout: Layout, paths: &mut Paths<'_>) -> Option<String> {
        let mut files = String::new();
        let mut last = None;
        for (_, ino) in self.of_id.iter().filter(|(size, _)| needs(*size, fault.block, layout)) {
            if last.replace(*ino) == Some(*ino) {
                continue;
            }
            let comma = if files.is_empty() { "" } else { ", " };
            let _ = write!(files, "{comma}inode {ino} ({})", paths.of(*ino));
        }
        if self.more > 0 && !files.is_empty() {
            let _ = write!(files, " and {} more", self.more);
        }
        (!files.is_empty()).then_some(files)
    }
}

/// The paths of the first files.
struct Paths<'a> {
    meta: &'a Meta,
    known: FxHashMap<Ino, String>,
}

impl Paths<'_> {
    fn of(&mut self, ino: Ino) -> &str {
        if !self.known.contains_key(&ino) && self.known.len() < MOST_PATHS {
            self.known.insert(ino, path_of(self.meta, ino));
        }
        self.known.get(&ino).map_or("…", String::as_str)
    }
}

/// One path of a file, which may lie below what is damaged itself.
fn path_of(meta: &Meta, ino: Ino) -> String {
    match meta.paths_of(ino, Ino::ROOT, &Interrupt::never()) {
        Ok(paths) => paths.into_iter().next().map_or_else(|| "deleted".into(), printable),
        Err(error) => format!("its path cannot be found out: {error}"),
    }
}
