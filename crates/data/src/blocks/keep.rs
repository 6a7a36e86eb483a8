//! Puts blocks into the caches in memory and on disk, and drops them.

use std::sync::atomic::Ordering;

use bytes::Bytes;

use super::{BlockStore, Purpose};
use crate::{
    cache::{AWAITED, BEGUN},
    layout::BlockKey,
};

/// The memory cache may take this share of the budget, whatever room there is …
const MEMORY_CEILING: u64 = 3;
/// … and may always take this share.
const MEMORY_FLOOR: u64 = 8;
/// Beside local files it takes this share while blocks are read ahead.
const MEMORY_AHEAD: u64 = 4;

impl BlockStore {
    /// Drops a block from the caches.
    pub(crate) fn forget(&self, key: BlockKey) {
        self.memory.remove(&key);
        if let Some(disk) = &self.disk {
            disk.remove(key);
        }
    }

    /// [`Self::forget`] for the runtime's threads, which must not wait for the disk.
    pub(crate) async fn forget_async(&self, key: BlockKey) {
        self.memory.remove(&key);
        if let Some(disk) = self.disk.clone() {
            let _ = tokio::task::spawn_blocking(move || disk.remove(key)).await;
        }
    }

    /// Keeps a block that was fetched.
    pub(super) fn keep(&self, key: BlockKey, whole: &Bytes, purpose: Purpose) {
        if purpose == Purpose::Warm && self.disk.is_some() {
            return;
        }
        self.remember(key, whole, if purpose == Purpose::Ahead { AWAITED } else { BEGUN });
        if self.full_reads || key.size < self.layout.block_size || purpose == Purpose::Part {
            self.offer(key, whole);
        }
    }

    /// Keeps a block in memory for so many chances.
    pub(super) fn remember(&self, key: BlockKey, data: &Bytes, chances: u8) {
        let capacity = self.memory_capacity();
        let weight = u64::from(key.size) + 128;
        if weight <= capacity {
            let used = self.memory.insert(key, data.clone(), (weight, chances), capacity);
            self.stats.memory_bytes.set(used);
            self.budget.set_cached(used);
        }
    }

    /// Shrinks what is cached in memory to what writers leave.
    pub(crate) fn shrink_memory(&self) {
        // Only here is it lowered, and `prefetch` sets it.
        let ahead = self.ahead.load(Ordering::Relaxed);
        self.ahead.store(ahead.saturating_sub(1), Ordering::Relaxed);
        if let Some(disk) = &self.disk {
            disk.limit_kept(self.room() - self.budget.limit() / MEMORY_FLOOR);
        }
        let cached = self.memory.shrink(self.memory_capacity());
        self.stats.memory_bytes.set(cached);
        self.budget.set_cached(cached);
        self.stats.buffer_bytes.set(self.budget.used());
    }

    /// Bytes that cached blocks may take in memory now.
    pub(crate) fn memory_capacity(&self) -> u64 {
        let limit = self.budget.limit();
        if self.disk.is_none() {
            return self.room();
        }
        // Blocks in local files are in the kernel's page cache, too. Those that are read ahead are
        // in no file yet.
        if self.ahead.load(Ordering::Relaxed) > 0 { limit / MEMORY_AHEAD } else { limit / MEMORY_FLOOR }
    }

    /// Bytes that all cached blocks may take in memory now.
    fn room(&self) -> u64 {
        let limit = self.budget.limit();
        limit.saturating_sub(self.budget.used()).clamp(limit / MEMORY_FLOOR, limit / MEMORY_CEILING)
    }

    pub(super) fn offer(&self, key: BlockKey, data: &Bytes) {
        if let Some(disk) = &self.disk {
            // A cache may drop what comes too fast.
            let _ = disk.offer(key, data.clone());
        }
    }
}
