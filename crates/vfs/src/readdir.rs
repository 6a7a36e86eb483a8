//! Opening, reading and closing directories.

use std::sync::Arc;

use parking_lot::Mutex;
use sluice_meta::{
    Interrupt,
    engine::{Cursor, Scan},
    schema::Row,
};
use sluice_types::{FileType, FsResult, Ino, wait};

use crate::dir::{DOTS, DirHandle, DirItem, KEY_BITS, Listing, PAGE, Page, Start};
use crate::{entry::Entry, handles::Handle, vfs::Vfs};

impl Vfs {
    /// Opens a directory. No trip.
    pub fn opendir(&self, ino: Ino) -> FsResult<u64> {
        self.opendir_by(&Interrupt::never(), ino)
    }

    /// [`Self::opendir`], for a request that the kernel may have sent before.
    pub fn opendir_by(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<u64> {
        if let Some(fh) = self.handle_of(interrupt) {
            return Ok(fh);
        }
        let fh = self.new_handle();
        self.insert_dir(fh, ino, Vec::new());
        if let Some(journal) = &self.config.journal {
            journal.opened_dir(fh, ino, interrupt.asked().map_or(0, |asked| asked.unique));
        }
        Ok(fh)
    }

    /// Makes a handle, with this number, for a directory, with the known beginnings of its pages.
    pub(crate) fn insert_dir(&self, fh: u64, ino: Ino, pages: Vec<(u64, Vec<u8>)>) {
        let mut listing = Listing::default();
        for (number, bytes) in pages {
            if let Some(start) = Start::decode(&bytes) {
                listing.starts.insert(number, start);
                listing.kept = listing.kept.max(number);
            }
        }
        let dir = DirHandle { fh, ino, listing: Mutex::new(listing) };
        self.handles.insert(fh, Handle::Dir(Arc::new(dir)));
    }

    /// Writes the beginnings of pages to the journal, so that a successor can continue the listing.
    fn keep_starts(&self, dir: &DirHandle, listing: &mut Listing) {
        let Some(journal) = &self.config.journal else { return };
        for (number, start) in listing.starts.range(listing.kept + 1..) {
            journal.page(dir.fh, *number, &start.encode());
            listing.kept = *number;
        }
    }

    /// The last descriptor of an open directory was closed.
    pub fn releasedir(&self, fh: u64) {
        self.handles.remove(fh);
        self.closed(fh, None);
    }

    /// Passes the names from `offset` on to `add`, until `add` returns false. With `plus`, each
    /// comes with its lookup result. One trip for each page of about 2,000 names. Offset 0 begins
    /// again.
    pub fn readdir(
        &self,
        interrupt: &Interrupt,
        fh: u64,
        (offset, plus): (u64, bool),
        add: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> FsResult<()> {
        let dir = self.handles.dir(fh)?;
        let mut listing = wait::lock(&dir.listing);
        if offset == 0 {
            *listing = Listing::default();
            if let Some(journal) = &self.config.journal {
                journal.forget_names(fh);
            }
        }
        let mut at = offset;
        while at < DOTS {
            let (name, ino): (&[u8], _) =
                if at == 0 { (b".", dir.ino) } else { (b"..", self.parent(dir.ino, interrupt)?) };
            let item = DirItem { name, ino, kind: FileType::Dir, cookie: at + 1, entry: None };
            if !add(item) {
                return Ok(());
            }
            at += 1;
        }
        let (mut number, mut key) = (at >> KEY_BITS, (at & ((1 << KEY_BITS) - 1)) as u32);
        loop {
            let page = match self.page(dir.ino, &mut listing, (number, plus), interrupt) {
                Ok(Some(page)) => page,
                Ok(None) => return Ok(()),
                // The names passed so far are valid. The next call gets the error again.
                Err(error) => return if at > offset { Ok(()) } else { Err(error) },
            };
            for index in page.items.partition_point(|item| item.key <= key)..page.items.len() {
                let (item, name) = (&page.items[index], page.name(index));
                let entry = if plus { self.entry_of((dir.ino, index), page, interrupt) } else { None };
                at = (number << KEY_BITS) + u64::from(item.key);
                if !add(DirItem { name, ino: item.ino, kind: item.kind, cookie: at, entry }) {
                    self.keep_starts(&dir, &mut listing);
                    return Ok(());
                }
            }
            (number, key) = (number + 1, 0);
        }
    }

    /// A page by its number, read if it is not kept; `None` after the last one.
    fn page<'l>(
        &self,
        dir: Ino,
        listing: &'l mut Listing,
        (number, nodes): (u64, bool),
        interrupt: &Interrupt,
    ) -> FsResult<Option<&'l Page>> {
        let kept = loop {
            if let Some(kept) = listing.pages.iter().position(|page| page.number == number) {
                break kept;
            }
            if listing.last.is_some_and(|last| last < number) {
                return Ok(None);
            }
            let (next, from) = listing.nearest(number);
            let end = listing.end(next);
            let moment = self.cache().moment();
            let read = self.read_page(Scan::Entries { dir, nodes }, (from, end.as_deref()), interrupt)?;
            let mut own = Vec::new();
            if read.1.is_none() && end.is_none() {
                let has_trash = self.meta.env().format().trash_days > 0;
                own = self.internals.listed(self.root(), dir, has_trash);
            }
            let (names, items, attrs) = (Vec::new(), Vec::new(), Vec::new());
            let empty = Page { number: next, names, items, attrs, moment, at: wait::now() };
            listing.take(empty, read, &own, end.is_some());
        };
        Ok(listing.pages.get(kept))
    }

    /// Reads a page. If it was read before, `end` is its last name.
    fn read_page(
        &self,
        scan: Scan,
        (mut from, end): (Option<Cursor>, Option<&[u8]>),
        interrupt: &Interrupt,
    ) -> FsResult<(Vec<Row>, Option<Cursor>)> {
        let mut rows = Vec::new();
        loop {
            let page = self.meta.scan_readable(scan, from.as_ref(), PAGE, interrupt)?;
            // A damaged node does not hide its name. A request for its attributes gets the error.
            for damage in &page.damaged {
                tracing::error!("in a directory: {damage}");
            }
            rows.extend(page.rows);
            let Some(end) = end else { return Ok((rows, page.next)) };
            let mut within = true;
            rows.retain(|row| {
                if let Row::Entry(_, name, _) = row {
                    within = &name[..] <= end;
                }
                within
            });
            from = page.next;
            if !within || from.is_none() {
                return Ok((rows, None));
            }
        }
    }

    /// The lookup result of an item, if its page is still fresh enough.
    fn entry_of(&self, (dir, index): (Ino, usize), page: &Page, interrupt: &Interrupt) -> Option<Entry> {
        let attr = (*page.attrs.get(index)?)?;
        let ttl = self
            .config
            .attr_ttl
            .min(self.config.entry_ttl)
            .checked_sub(wait::now().duration_since(page.at))?;
        let ino = page.items[index].ino;
        if self.cache().changed_since(ino, page.moment) {
            return None;
        }
        let attr = self.shown(ino, attr, page.moment, interrupt);
        if self.cache().names_changed_since(dir, page.moment) {
            return None;
        }
        let entry = Entry { ino, attr, attr_ttl: ttl, entry_ttl: ttl };
        Some(self.cache().listed(dir, page.name(index), page.moment, entry))
    }

    fn parent(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Ino> {
        if ino == self.root() || ino == Ino::TRASH {
            return Ok(self.root());
        }
        match self.cache().parent_hint(ino) {
            Some(parent) => Ok(parent),
            None => Ok(self.getattr(interrupt, ino)?.0.parent),
        }
    }
}
