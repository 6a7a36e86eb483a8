//! Lists directories, page by page.
//!
//! What must stay true: an open directory shows each name once, at the same offset every time,
//! until it is rewound. Attributes that may have changed since a page was read are left out. The
//! memory of a listing does not grow with the directory. It consists of the two newest pages, and
//! of the beginnings of all other pages. A beginning takes about a dozen bytes for 2,048 names, and
//! 600 at most. An engine that does not sort names may return a name twice. For such an engine, the
//! listing also keeps the hashes of up to [`MAX_SEEN`] names (18 MiB). Only names beyond that
//! number may be shown twice.
//!
//! An offset is the number of a page, and the hash of a name in it (31 bits). A page is listed in
//! the order of these hashes. So an offset stays valid when its page is dropped: the page is read
//! again, with the same beginning and the same end. Names that were added or removed meanwhile do
//! not move the others. A successor process that continues a listing needs the offset, and the
//! beginnings of its page and of the next page ([`Listing::starts`]). Without these, all pages
//! before are read again, and their ends differ if names were added or removed.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{DefaultHasher, Hash, Hasher},
    time::Instant,
};

use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use sluice_meta::{engine::Cursor, schema::Row};
use sluice_types::{Attr, FileType, Ino};

use crate::{entry::Entry, meta_cache::Moment};

/// Entries of one read.
pub(crate) const PAGE: usize = 2048;
/// Pages kept of an open directory.
const MAX_PAGES: usize = 2;
/// Offsets of `.` and `..` come first.
pub(crate) const DOTS: u64 = 2;
/// Bits of an offset that are the hash of a name.
pub(crate) const KEY_BITS: u32 = 31;
/// Most names whose hashes are kept because they were shown, for an engine that does not sort.
const MAX_SEEN: usize = 1 << 20;
/// After this many names in ascending order, the engine is taken to sort names, so it returns none
/// twice.
const SORTED: usize = 4096;

/// An open directory.
pub(crate) struct DirHandle {
    pub(crate) fh: u64,
    pub(crate) ino: Ino,
    pub(crate) listing: Mutex<Listing>,
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
    /// Offset at which the listing continues after it.
    pub cookie: u64,
    /// The result of a lookup, if the caller requested it and it is known.
    pub entry: Option<Entry>,
}

/// The pages of a directory that are known.
#[derive(Default)]
pub(crate) struct Listing {
    /// The newest pages, in order.
    pub(crate) pages: VecDeque<Page>,
    /// Where pages begin, except the first.
    pub(crate) starts: BTreeMap<u64, Start>,
    /// The last page, once it was read.
    pub(crate) last: Option<u64>,
    seen: Seen,
    /// The beginnings of pages up to this one are in the journal.
    pub(crate) kept: u64,
}

/// Where a page begins: the engine's cursor, and the last name before it.
#[derive(Clone)]
pub(crate) struct Start {
    cursor: Cursor,
    before: Vec<u8>,
}

impl Start {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let length = self.cursor.0.len() as u32;
        [&length.to_le_bytes()[..], &self.cursor.0, &self.before].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (cursor, before) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some(Self { cursor: Cursor(cursor.to_vec()), before: before.to_vec() })
    }
}

/// Names that were shown, and could be returned again.
#[derive(Default)]
struct Seen {
    hashes: FxHashSet<u64>,
    /// How many came in ascending order, from the first on, and the last of them.
    ascending: usize,
    newest: Vec<u8>,
    unsorted: bool,
}

/// The names of one read, kept in one buffer.
pub(crate) struct Page {
    pub(crate) number: u64,
    pub(crate) names: Vec<u8>,
    /// Sorted by key.
    pub(crate) items: Vec<Item>,
    /// The attributes of each item, of the newest page only.
    pub(crate) attrs: Vec<Option<Attr>>,
    /// When it was asked for.
    pub(crate) moment: Moment,
    pub(crate) at: Instant,
}

#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) ino: Ino,
    at: u32,
    len: u8,
    pub(crate) kind: FileType,
    pub(crate) key: u32,
}

impl Listing {
    /// The last page up to `number` whose beginning is known.
    pub(crate) fn nearest(&self, number: u64) -> (u64, Option<Cursor>) {
        let known = self.starts.range(..=number).next_back();
        known.map_or((0, None), |(number, start)| (*number, Some(start.cursor.clone())))
    }

    /// The last name of a page that was read before, if the engine sorts.
    pub(crate) fn end(&self, number: u64) -> Option<Vec<u8>> {
        let next = self.starts.get(&(number + 1)).filter(|_| !self.seen.unsorted);
        next.map(|next| next.before.clone())
    }

    /// Fills the `empty` page with the rows that were read, and with the internal names of the
    /// mount. Drops the oldest page if there are too many. If the page ends where it ended before
    /// (`end`), the pages after it keep their beginnings.
    pub(crate) fn take(
        &mut self,
        empty: Page,
        (rows, next): (Vec<Row>, Option<Cursor>),
        own: &[(&str, Ino, FileType)],
        has_end: bool,
    ) {
        let number = empty.number;
        let known = self.starts.get(&(number + 1));
        let again = known.is_some() || self.last == Some(number);
        let moved = !has_end && known.is_some_and(|known| next.as_ref() != Some(&known.cursor));
        if moved {
            // The pages after it begin elsewhere now.
            self.starts.retain(|start, _| *start <= number);
            self.kept = self.kept.min(number);
            (self.last, self.seen) = (None, Seen::default());
        }
        if !has_end {
            let name = |row: &Row| if let Row::Entry(_, name, _) = row { Some(name.to_vec()) } else { None };
            let before = rows.iter().rev().find_map(name).unwrap_or_default();
            self.last = next.is_none().then_some(number).or(self.last.filter(|last| *last != number));
            if let Some(cursor) = next {
                self.starts.insert(number + 1, Start { cursor, before });
            }
        }
        self.pages.retain(|page| page.number < number || !moved);
        if let Some(newest) = self.pages.back_mut() {
            newest.attrs = Vec::new();
        }
        if self.pages.len() == MAX_PAGES {
            self.pages.pop_front();
        }
        // Names of a page that is read again were seen: only within it none comes twice.
        let mut within = Seen::default();
        let seen = if again { &mut within } else { &mut self.seen };
        self.pages.push_back(empty.filled(rows, own, seen));
    }
}

impl Page {
    pub(crate) fn name(&self, index: usize) -> &[u8] {
        let item = &self.items[index];
        &self.names[item.at as usize..][..usize::from(item.len)]
    }

    /// Takes the rows whose names were not `seen` yet.
    fn filled(mut self, rows: Vec<Row>, own: &[(&str, Ino, FileType)], seen: &mut Seen) -> Self {
        let mut all: Vec<(Item, Option<Attr>)> = Vec::with_capacity(rows.len());
        let mut taken = false;
        for row in rows {
            match row {
                Row::Entry(_, name, entry) => {
                    taken = seen.is_new(&name);
                    if taken {
                        all.push((self.add(&name, entry.ino, entry.kind), None));
                    }
                }
                Row::Node(_, attr) if taken => {
                    if let Some((_, of)) = all.last_mut() {
                        *of = Some(attr);
                    }
                }
                _ => {}
            }
        }
        for (name, ino, kind) in own {
            all.push((self.add(name.as_bytes(), *ino, *kind), None));
        }
        all.sort_by_key(|(item, _)| item.key);
        let mut least = DOTS as u32 + 1;
        for (item, attr) in all {
            // If two names have the same hash, the second gets the next hash.
            let key = item.key.max(least);
            least = key + 1;
            self.items.push(Item { key, ..item });
            self.attrs.push(attr);
        }
        self
    }

    fn add(&mut self, name: &[u8], ino: Ino, kind: FileType) -> Item {
        let at = self.names.len() as u32;
        self.names.extend_from_slice(name);
        Item { ino, at, len: name.len() as u8, kind, key: key(name) }
    }
}

impl Seen {
    /// Whether a name was not shown yet.
    fn is_new(&mut self, name: &[u8]) -> bool {
        if !self.unsorted {
            if self.ascending == 0 || name > &self.newest[..] {
                self.ascending += 1;
                self.newest.clear();
                self.newest.extend_from_slice(name);
                if self.ascending >= SORTED {
                    self.hashes = FxHashSet::default();
                    return true;
                }
            } else {
                self.unsorted = true;
            }
        }
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        if self.hashes.len() < MAX_SEEN { self.hashes.insert(hash) } else { !self.hashes.contains(&hash) }
    }
}

/// The place of a name in its page: FNV-1a, the same in every process.
fn key(name: &[u8]) -> u32 {
    let hash = name.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    ((hash ^ hash >> 32) & ((1 << KEY_BITS) - 1)) as u32
}

#[cfg(test)]
mod tests {
    use sluice_meta::schema::Entry;
    use sluice_types::Name;

    use super::*;

    fn page(number: u64) -> Page {
        let (names, items, attrs) = (Vec::new(), Vec::new(), Vec::new());
        Page { number, names, items, attrs, moment: Moment::default(), at: Instant::now() }
    }

    fn rows(names: impl Iterator<Item = String>) -> Vec<Row> {
        let entry = Entry { kind: FileType::File, ino: Ino(7) };
        names.map(|name| Row::Entry(Ino(1), Name::stored(name.as_bytes()), entry)).collect()
    }

    #[test]
    fn memory_does_not_grow_with_the_directory() {
        let mut listing = Listing::default();
        for number in 0..100 {
            let names = (0..PAGE).map(|name| format!("{number:04}-{name:04}"));
            listing.take(page(number), (rows(names), Some(Cursor(vec![0; 20]))), &[], false);
        }
        let kept: usize = listing.pages.iter().map(|page| page.items.len()).sum();
        assert_eq!((listing.pages.len(), kept), (MAX_PAGES, MAX_PAGES * PAGE));
        assert_eq!((listing.starts.len(), listing.seen.hashes.len()), (100, 0));
        assert!(listing.pages.iter().all(|page| page.items.is_sorted_by(|one, two| one.key < two.key)));
    }

    #[test]
    fn a_name_that_the_engine_shows_twice_comes_once() {
        let mut seen = Seen::default();
        let new: Vec<bool> =
            ["b", "d", "c", "b", "e"].iter().map(|name| seen.is_new(name.as_bytes())).collect();
        assert_eq!(new, [true, true, true, false, true]);
    }

    #[test]
    fn a_page_that_is_read_again_shows_a_name_once() {
        let mut listing = Listing::default();
        let twice = || rows(["b", "a", "b"].map(String::from).into_iter());
        for _ in 0..2 {
            listing.pages.clear();
            listing.take(page(0), (twice(), None), &[], false);
            assert_eq!(listing.pages[0].items.len(), 2);
        }
    }

    #[test]
    fn names_with_one_hash_have_offsets_of_their_own() {
        let names = (0..1000).map(|name| format!("{name}"));
        let filled = page(0).filled(rows(names), &[("5", Ino(8), FileType::File)], &mut Seen::default());
        let mut keys: Vec<u32> = filled.items.iter().map(|item| item.key).collect();
        keys.dedup();
        assert_eq!(keys.len(), 1001);
        assert!(keys[0] > DOTS as u32);
    }
}
