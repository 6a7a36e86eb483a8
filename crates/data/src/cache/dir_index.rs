//! The index of one cache directory. It is in memory, and a random entry can be chosen for
//! eviction.
//!
//! What must stay true: the total size is the sum of the sizes of the entries.

use rustc_hash::FxHashMap;
use sluice_types::Rng;

use crate::{config::Eviction, layout::BlockKey};

/// Entries compared to find the least recently used one.
const LRU_SAMPLE: usize = 64;

#[derive(Debug)]
pub(crate) struct DirIndex {
    places: FxHashMap<BlockKey, usize>,
    books: Vec<Book>,
    bytes: u64,
    tick: u64,
    rng: Rng,
}

#[derive(Clone, Copy, Debug)]
struct Book {
    key: BlockKey,
    bytes: u64,
    used: u64,
}

impl DirIndex {
    pub(crate) fn new(rng: Rng) -> Self {
        Self { places: FxHashMap::default(), books: Vec::new(), bytes: 0, tick: 0, rng }
    }

    pub(crate) fn len(&self) -> usize {
        self.books.len()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.places.contains_key(&key)
    }

    /// Records that `key` was used. Returns whether it is in the index.
    pub(crate) fn touch(&mut self, key: BlockKey) -> bool {
        self.tick += 1;
        let Some(place) = self.places.get(&key) else { return false };
        self.books[*place].used = self.tick;
        true
    }

    /// Adds an entry. Returns whether it is new.
    pub(crate) fn add(&mut self, key: BlockKey, bytes: u64) -> bool {
        if self.touch(key) {
            return false;
        }
        self.places.insert(key, self.books.len());
        self.books.push(Book { key, bytes, used: self.tick });
        self.bytes += bytes;
        true
    }

    /// A number that grows with each use.
    pub(crate) fn tick(&self) -> u64 {
        self.tick
    }

    /// All entries that were not used since this tick.
    pub(crate) fn unused_since(&self, tick: u64) -> Vec<BlockKey> {
        self.books.iter().filter(|book| book.used <= tick).map(|book| book.key).collect()
    }

    /// All entries.
    pub(crate) fn keys(&self) -> Vec<BlockKey> {
        self.books.iter().map(|book| book.key).collect()
    }

    pub(crate) fn remove(&mut self, key: BlockKey) -> bool {
        let Some(place) = self.places.remove(&key) else { return false };
        let book = self.books.swap_remove(place);
        self.bytes -= book.bytes;
        if let Some(moved) = self.books.get(place) {
            self.places.insert(moved.key, place);
        }
        true
    }

    /// Removes the entry that is to be evicted first.
    pub(crate) fn evict(&mut self, eviction: Eviction) -> Option<BlockKey> {
        let sample = match eviction {
            Eviction::None => return None,
            Eviction::TwoRandom => 2,
            Eviction::Lru => LRU_SAMPLE,
        };
        let all = self.books.len();
        let victim = if all <= sample {
            self.books.iter().min_by_key(|book| book.used)?.key
        } else {
            let drawn = (0..sample).map(|_| self.books[self.rng.below(all as u64) as usize]);
            drawn.min_by_key(|book| book.used)?.key
        };
        self.remove(victim);
        Some(victim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64) -> BlockKey {
        BlockKey { id, index: 0, size: 10 }
    }

    #[test]
    fn books_come_and_go() {
        let mut index = DirIndex::new(Rng::seeded(1));
        for id in 0..50 {
            assert!(index.add(key(id), 10));
        }
        assert!(!index.add(key(0), 10), "and is the youngest now");
        assert!(index.remove(key(7)) && !index.remove(key(7)));
        assert_eq!((index.len(), index.bytes()), (49, 490));
        assert_eq!(index.evict(Eviction::None), None);
        assert_eq!(index.evict(Eviction::Lru), Some(key(1)));
        while let Some(victim) = index.evict(Eviction::TwoRandom) {
            assert!(!index.contains(victim));
        }
        assert_eq!((index.len(), index.bytes()), (0, 0));
    }
}
