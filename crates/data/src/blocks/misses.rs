//! The blocks of which a small part was read that was not cached.
//!
//! What must stay true: however many blocks are read, it takes no more memory. It may forget a
//! block, whose next miss then counts as the first.

use std::{
    hash::BuildHasher as _,
    sync::atomic::{AtomicU64, Ordering},
};

use rustc_hash::FxBuildHasher;

use crate::layout::BlockKey;

/// Blocks that it remembers at most. They take 32 KiB.
const SLOTS: usize = 4096;

/// Hashes of blocks, each in a slot of its own, which a later block may take.
#[derive(Debug)]
pub(super) struct Misses(Box<[AtomicU64]>);

impl Misses {
    pub(super) fn new() -> Self {
        Self((0..SLOTS).map(|_| AtomicU64::new(0)).collect())
    }

    /// Notes a miss. Returns whether this block was missed before.
    pub(super) fn again(&self, key: BlockKey) -> bool {
        // An empty slot is 0.
        let hash = FxBuildHasher.hash_one(key) | 1;
        let slot = (hash >> 32) as usize % SLOTS;
        self.0[slot].swap(hash, Ordering::Relaxed) == hash
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_miss_of_a_block_is_told_from_the_first() {
        let misses = Misses::new();
        let key = |id, index| BlockKey { id, index, size: 4 << 20 };
        assert!(!misses.again(key(7, 0)) && !misses.again(key(7, 1)) && !misses.again(key(8, 0)));
        assert!(misses.again(key(7, 0)) && misses.again(key(7, 1)) && misses.again(key(8, 0)));
        // Neighbours hardly ever share a slot.
        let many = || (0..1000).map(|n| key(100 + n / 16, (n % 16) as u32));
        let firsts = many().filter(|key| !misses.again(*key)).count();
        let seconds = many().filter(|key| misses.again(*key)).count();
        assert!(firsts == 1000 && seconds > 600, "{firsts} {seconds}");
    }
}
