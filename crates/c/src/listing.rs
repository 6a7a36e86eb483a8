//! A listing of a directory under way.
//!
//! What must stay true: one page of names is in memory at a time.

use std::collections::VecDeque;

use sluice_fs::{Cursor, Fs, Item};

use crate::border::Outcome;

/// Names that are read at once.
const PAGE: usize = 1024;

/// A listing under way.
pub(crate) struct Listing {
    fs: Fs,
    path: Box<[u8]>,
    read: VecDeque<Item>,
    next: Option<Cursor>,
    ended: bool,
}

impl Listing {
    /// Reads the first page.
    pub(crate) fn begin(fs: Fs, path: &[u8]) -> Outcome<Self> {
        let mut listing = Self { fs, path: path.into(), read: VecDeque::new(), next: None, ended: false };
        listing.read_page()?;
        Ok(listing)
    }

    /// The next name; `None` at the end.
    pub(crate) fn item(&mut self) -> Outcome<Option<Item>> {
        while self.read.is_empty() && !self.ended {
            self.read_page()?;
        }
        Ok(self.read.pop_front())
    }

    fn read_page(&mut self) -> Outcome<()> {
        let page = self.fs.list(&self.path, self.next.as_ref(), PAGE)?;
        self.ended = page.next.is_none();
        self.next = page.next;
        self.read.extend(page.items);
        Ok(())
    }
}
