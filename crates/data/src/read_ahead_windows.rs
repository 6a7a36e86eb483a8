//! How far ahead each of several readers may read, so that they do not evict each other's blocks.
//!
//! What must stay true: blocks that were read ahead and are not used yet fit into the memory cache,
//! as long as each reader may read at least one block ahead.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// How long a reader counts after its last read-ahead.
const READER_TIMEOUT: Duration = Duration::from_secs(10);

/// The readers that read ahead.
#[derive(Debug, Default)]
pub(crate) struct ReadAheadWindows {
    /// For each reader: how many of its streams read ahead, and when that was noted.
    readers: Mutex<FxHashMap<u64, (u64, Instant)>>,
    streams: AtomicU64,
    last: AtomicU64,
}

impl ReadAheadWindows {
    /// A number for a reader.
    pub(crate) fn enter(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed)
    }

    /// How far a stream may read ahead: its share of `memory`, less the block that is being read
    /// and the block in which its window ends; at most `most`.
    pub(crate) fn size(&self, memory: u64, block: u64, most: u64) -> u64 {
        let streams = self.streams.load(Ordering::Relaxed).max(1);
        (memory / streams).saturating_sub(2 * block).max(block).min(most)
    }

    /// `streams` streams of `reader` read ahead now.
    pub(crate) fn note(&self, reader: u64, streams: u64) {
        let mut readers = self.readers.lock();
        readers.insert(reader, (streams, Instant::now()));
        readers.retain(|_, (_, at)| at.elapsed() < READER_TIMEOUT);
        self.streams.store(readers.values().map(|(streams, _)| streams).sum(), Ordering::Relaxed);
    }

    /// `reader` is closed.
    pub(crate) fn leave(&self, reader: u64) {
        let mut readers = self.readers.lock();
        if readers.remove(&reader).is_some() {
            self.streams.store(readers.values().map(|(streams, _)| streams).sum(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_shrink_with_the_streams_and_grow_again() {
        let windows = ReadAheadWindows::default();
        assert_eq!(windows.size(40, 4, 32), 32);
        let (one, other) = (windows.enter(), windows.enter());
        windows.note(one, 1);
        assert_eq!(windows.size(40, 4, 32), 32);
        windows.note(other, 2);
        assert_eq!(windows.size(48, 4, 32), 8);
        windows.note(other, 100);
        assert_eq!(windows.size(40, 4, 32), 4, "a block at least");
        windows.leave(other);
        assert_eq!(windows.size(40, 4, 32), 32);
    }
}
