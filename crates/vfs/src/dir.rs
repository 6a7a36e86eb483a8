//! Listing directories, page by page.
//!
//! What must stay true: an open directory shows each name once, at the same offset every time, until it is rewound;
//! and attributes that may have changed since a page was read are left out rather than shown.

use std::{
    hash::{Hash, Hasher},
    time::Instant,
};

use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHasher};
use sluice_meta::{
    Interrupt,
    engine::{Cursor, Scan},
    schema::Row,
};
use sluice_types::{Attr, FileType, FsResult, Ino};

use crate::{
    handles::Handle,
    vfs::{Entry, Vfs},
};

/// Entries asked for at once.
const PAGE: usize = 2048;
/// Offsets of `.` and `..` come first.
const DOTS: usize = 2;

/// An open directory.
pub(crate) struct DirHandle {
    fh: u64,
    ino: Ino,
    listing: Mutex<Listing>,
}

/// One name of a listing.
#[derive(Debug)]
pub struct DirItem<'a> {
    /// The name.
    pub name: &'a [u8],
    /// What it stands for.
    pub ino: Ino,
    /// Kind of the node.
    pub kind: FileType,
    /// Offset at which the listing goes on behind it.
    pub cookie: u64,
    /// What a lookup would answer, if it was asked for and is known.
    pub entry: Option<Entry>,
}

/// The names read so far, kept in one piece of memory.
#[derive(Default)]
struct Listing {
    names: Vec<u8>,
    items: Vec<Item>,
    /// Where names are, by their hash: engines may show a name twice.
    places: FxHashMap<u64, u32>,
    next: Next,
    page: Page,
    /// How many of them are kept for a successor.
    kept: usize,
}

#[derive(Clone, Copy)]
struct Item {
    ino: Ino,
    at: u32,
    len: u8,
    kind: FileType,
}

#[derive(Default)]
enum Next {
    #[default]
    Start,
    At(Cursor),
    End,
}

/// Attributes of the page read last.
#[derive(Default)]
struct Page {
    first: usize,
    attrs: Vec<Option<Attr>>,
    moment: u64,
    /// When it was asked for, by [`crate::given::Given::moment`].
    asked: u64,
    at: Option<Instant>,
}

impl Vfs {
    /// Opens a directory. No trip.
    pub fn opendir(&self, ino: Ino) -> FsResult<u64> {
        self.opendir_by(&Interrupt::never(), ino)
    }

    /// [`Self::opendir`], for a request that may have been asked before.
    pub fn opendir_by(&self, interrupt: &Interrupt, ino: Ino) -> FsResult<u64> {
        if let Some(fh) = self.handle_of(interrupt) {
            return Ok(fh);
        }
        let fh = self.new_handle();
        self.insert_dir(fh, ino, &[]);
        if let Some(journal) = &self.config.journal {
            journal.opened_dir(fh, ino, interrupt.asked().map_or(0, |asked| asked.unique));
        }
        Ok(fh)
    }

    /// Opens a directory under a number, of which these names were shown.
    pub(crate) fn insert_dir(&self, fh: u64, ino: Ino, shown: &[(Ino, FileType, Vec<u8>)]) {
        let mut listing = Listing::default();
        for (ino, kind, name) in shown {
            listing.push(name, *ino, *kind);
        }
        listing.kept = shown.len();
        let dir = DirHandle { fh, ino, listing: Mutex::new(listing) };
        self.handles.insert(fh, Handle::Dir(std::sync::Arc::new(dir)));
    }

    /// The last descriptor of an open directory was closed.
    pub fn releasedir(&self, fh: u64) {
        self.handles.remove(fh);
        self.closed(fh, None);
    }

    /// Gives the names from `offset` on to `add` until it answers false; with what a lookup of them would answer if
    /// `plus`. One trip a page of about 2,000 names. Offset 0 begins anew.
    pub fn readdir(
        &self,
        interrupt: &Interrupt,
        fh: u64,
        (offset, plus): (u64, bool),
        add: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> FsResult<()> {
        let dir = self.handles.dir(fh)?;
        let mut listing = dir.listing.lock();
        if offset == 0 && !(matches!(listing.next, Next::Start) && listing.items.is_empty()) {
            *listing = Listing::default();
            if let Some(journal) = &self.config.journal {
                journal.forget_names(fh);
            }
        }
        let mut at = offset as usize;
        while at < DOTS {
            let (name, ino): (&[u8], _) =
                if at == 0 { (b".", dir.ino) } else { (b"..", self.parent(dir.ino, interrupt)?) };
            let item = DirItem { name, ino, kind: FileType::Dir, cookie: at as u64 + 1, entry: None };
            if !add(item) {
                return Ok(());
            }
            at += 1;
        }
        loop {
            if let Err(error) = self.load(&dir, &mut listing, at - DOTS, plus, interrupt) {
                // What was given so far is good; the next call meets the error again.
                return if at as u64 > offset { Ok(()) } else { Err(error) };
            }
            let Some(item) = listing.items.get(at - DOTS) else { return Ok(()) };
            let name = &listing.names[item.at as usize..][..usize::from(item.len)];
            let entry = if plus { self.entry_of(dir.ino, &listing, (at - DOTS, name)) } else { None };
            let shown = DirItem { name, ino: item.ino, kind: item.kind, cookie: at as u64 + 1, entry };
            if !add(shown) {
                self.keep_names(&dir, &mut listing);
                return Ok(());
            }
            at += 1;
        }
    }

    /// Keeps the names of a listing that is to go on for a successor: others may have come or gone when it goes on.
    fn keep_names(&self, dir: &DirHandle, listing: &mut Listing) {
        let Some(journal) = self.config.journal.as_ref().filter(|_| listing.kept < listing.items.len())
        else {
            return;
        };
        let name = |item: &Item| &listing.names[item.at as usize..][..usize::from(item.len)];
        let names = listing.items[listing.kept..].iter().map(|item| (item.ino, item.kind, name(item)));
        journal.names(dir.fh, listing.kept as u64, names);
        listing.kept = listing.items.len();
    }

    /// Reads pages until item `index` is there, or all are.
    fn load(
        &self,
        dir: &DirHandle,
        listing: &mut Listing,
        index: usize,
        nodes: bool,
        interrupt: &Interrupt,
    ) -> FsResult<()> {
        while listing.items.len() <= index {
            let from = match &listing.next {
                Next::Start => None,
                Next::At(cursor) => Some(cursor),
                Next::End => return Ok(()),
            };
            let (moment, asked) = (self.known().moment(), self.given.moment());
            let scan = Scan::Entries { dir: dir.ino, nodes };
            let page = self.meta.scan_readable(scan, from, PAGE, interrupt)?;
            // A damaged node hides no name: whoever asks for its attributes is told.
            for damage in &page.damaged {
                tracing::error!("in directory {}: {damage}", dir.ino);
            }
            let (first, at) = (listing.items.len(), Some(Instant::now()));
            listing.page = Page { first, attrs: Vec::new(), moment, asked, at };
            listing.take(page.rows);
            listing.next = page.next.map_or(Next::End, Next::At);
            if matches!(listing.next, Next::End) {
                let has_trash = self.meta.env().format().trash_days > 0;
                for (name, ino, kind) in self.internals.listed(self.root(), dir.ino, has_trash) {
                    listing.push(name.as_bytes(), ino, kind);
                }
                // Nothing can come twice any more.
                listing.places = FxHashMap::default();
            }
        }
        Ok(())
    }

    /// What a lookup of an item would answer, if its page is still good for that.
    fn entry_of(&self, dir: Ino, listing: &Listing, (index, name): (usize, &[u8])) -> Option<Entry> {
        let page = &listing.page;
        let attr = (*page.attrs.get(index.checked_sub(page.first)?)?)?;
        let ttl = self.config.attr_ttl.min(self.config.entry_ttl).checked_sub(page.at?.elapsed())?;
        let ino = listing.items[index].ino;
        if self.known().changed_since(ino, page.moment) {
            return None;
        }
        let attr = self.shown(ino, attr, page.moment);
        if !self.given.same_since(dir, page.asked) {
            return None;
        }
        Some(self.given.entry(dir, name, page.asked, Entry { ino, attr, attr_ttl: ttl, entry_ttl: ttl }))
    }

    fn parent(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<Ino> {
        if ino == self.root() || ino == Ino::TRASH {
            return Ok(self.root());
        }
        match self.hints.parent(ino) {
            Some(parent) => Ok(parent),
            None => Ok(self.getattr(interrupt, ino)?.0.parent),
        }
    }
}

impl Listing {
    fn take(&mut self, rows: Vec<Row>) {
        let mut taken = false;
        for row in rows {
            match row {
                Row::Entry(_, name, entry) => taken = self.push(&name, entry.ino, entry.kind),
                Row::Node(_, attr) if taken => {
                    let index = self.items.len() - 1 - self.page.first;
                    self.page.attrs.resize(index, None);
                    self.page.attrs.push(Some(attr));
                }
                _ => {}
            }
        }
    }

    /// Adds a name unless it is there already.
    fn push(&mut self, name: &[u8], ino: Ino, kind: FileType) -> bool {
        let mut hasher = FxHasher::default();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(known) = self.places.get(&hash).and_then(|index| self.items.get(*index as usize))
            && &self.names[known.at as usize..][..usize::from(known.len)] == name
        {
            return false;
        }
        self.places.insert(hash, self.items.len() as u32);
        self.items.push(Item { ino, at: self.names.len() as u32, len: name.len() as u8, kind });
        self.names.extend_from_slice(name);
        true
    }
}
