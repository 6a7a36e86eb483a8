//! A map with second-chance eviction by weight. An entry that will be used soon gets more chances.
//!
//! What must stay true: a hit takes a shared lock and one atomic store, because every cached read
//! comes here.

use std::{
    collections::VecDeque,
    hash::Hash,
    sync::atomic::{AtomicU8, Ordering},
};

use parking_lot::RwLock;
use rustc_hash::FxHashMap;

/// Chances of an entry that was used since its last chance.
const USED: u8 = 1;
/// Chances of an entry that is not used yet and will be (a prefetched block): enough to outlive
/// many others.
pub(crate) const AWAITED: u8 = 32;
/// Chances of an entry that is in use, because more of it will be used. It is set when an entry had
/// …
pub(crate) const BEGUN: u8 = 4;
/// … at least this many chances.
const AWAITED_STILL: u8 = BEGUN + 1;

#[derive(Debug)]
pub(crate) struct SecondChance<K, V>(RwLock<Ring<K, V>>);

#[derive(Debug)]
struct Ring<K, V> {
    entries: FxHashMap<K, Entry<V>>,
    /// Keys by age of their last chance. May contain keys that were removed, and keys twice after a
    /// re-insert.
    queue: VecDeque<K>,
    weight: u64,
}

#[derive(Debug)]
struct Entry<V> {
    value: V,
    weight: u64,
    chances: AtomicU8,
}

impl<K: Copy + Eq + Hash, V: Clone> SecondChance<K, V> {
    pub(crate) fn new() -> Self {
        Self(RwLock::new(Ring { entries: FxHashMap::default(), queue: VecDeque::new(), weight: 0 }))
    }

    pub(crate) fn get(&self, key: &K) -> Option<V> {
        let ring = self.0.read();
        let entry = ring.entries.get(key)?;
        match entry.chances.load(Ordering::Relaxed) {
            0 => entry.chances.store(USED, Ordering::Relaxed),
            AWAITED_STILL.. => entry.chances.store(BEGUN, Ordering::Relaxed),
            _ => {}
        }
        Some(entry.value.clone())
    }

    pub(crate) fn contains(&self, key: &K) -> bool {
        self.0.read().entries.contains_key(key)
    }

    /// Keeps `value`, then drops others until all weigh at most `capacity`. Returns the weight of
    /// all. The value itself is dropped only after `chances` chances.
    pub(crate) fn insert(&self, key: K, value: V, (weight, chances): (u64, u8), capacity: u64) -> u64 {
        let mut ring = self.0.write();
        let entry = Entry { value, weight, chances: AtomicU8::new(chances) };
        match ring.entries.insert(key, entry) {
            Some(old) => ring.weight -= old.weight,
            None => ring.queue.push_back(key),
        }
        ring.weight += weight;
        ring.shrink(capacity);
        ring.weight
    }

    pub(crate) fn remove(&self, key: &K) -> Option<V> {
        let mut ring = self.0.write();
        let entry = ring.entries.remove(key)?;
        ring.weight -= entry.weight;
        if ring.queue.len() > 2 * ring.entries.len() + 64 {
            let Ring { entries, queue, .. } = &mut *ring;
            queue.retain(|key| entries.contains_key(key));
        }
        Some(entry.value)
    }

    /// Drops entries until all weigh at most `capacity`. Returns the weight of all.
    pub(crate) fn shrink(&self, capacity: u64) -> u64 {
        if self.0.read().weight > capacity {
            self.0.write().shrink(capacity);
        }
        self.0.read().weight
    }
}

impl<K: Copy + Eq + Hash, V> Ring<K, V> {
    fn shrink(&mut self, capacity: u64) {
        while self.weight > capacity {
            let Some(key) = self.queue.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&key) else { continue };
            if let Some(left) = entry.chances.get_mut().checked_sub(1) {
                *entry.chances.get_mut() = left;
                self.queue.push_back(key);
            } else if let Some(entry) = self.entries.remove(&key) {
                self.weight -= entry.weight;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_what_was_used_and_stays_within_its_weight() {
        let cache = SecondChance::new();
        for key in 0..4 {
            cache.insert(key, key, (10, 0), 40);
        }
        assert_eq!(cache.get(&0), Some(0));
        assert_eq!(cache.insert(4, 4, (10, 0), 40), 40);
        assert!(cache.contains(&0), "used, so it got a second chance");
        assert!(!cache.contains(&1), "oldest of the unused");
        assert_eq!(cache.remove(&0), Some(0));
        assert_eq!(cache.shrink(10), 10);
    }

    #[test]
    fn what_is_awaited_outlasts_what_was_used_but_not_for_ever() {
        let cache = SecondChance::new();
        cache.insert(0, 0, (10, AWAITED), 40);
        for key in 1..20 {
            cache.insert(key, key, (10, USED), 40);
            assert_eq!(cache.get(&key), Some(key));
            assert!(cache.contains(&0));
        }
        for key in 20..200 {
            cache.insert(key, key, (10, USED), 40);
        }
        assert!(!cache.contains(&0));
    }

    #[test]
    fn the_queue_does_not_grow_with_removed_keys() {
        let cache = SecondChance::new();
        for round in 0..10_000 {
            cache.insert(1, round, (1, 0), 10);
            cache.remove(&1);
        }
        assert!(cache.0.read().queue.len() < 200);
    }
}
