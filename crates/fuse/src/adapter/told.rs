//! The length that the kernel believes each file to have. It appends there without asking, even where another mount has
//! written since: an open for appending has to put that right first.
//!
//! What must stay true: a length is here only if the kernel was told it, or made it so by writing.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Parts, each with a lock of its own.
const SHARDS: usize = 16;
/// Most files of a part. One that is not here costs its next open for appending one more round.
const SHARD_FILES: usize = 4096;
/// Within this time the kernel has looked the name up again and repeats its open.
const REPEATS: Duration = Duration::from_mins(1);
/// Most opens that are awaited.
const MOST_AWAITED: usize = 1024;

/// What the kernel was told.
#[derive(Debug, Default)]
pub(super) struct Told {
    shards: [Mutex<FxHashMap<u64, u64>>; SHARDS],
    /// Opens that were refused once: inode and thread.
    awaited: Mutex<FxHashMap<(u64, u32), Instant>>,
}

impl Told {
    fn shard(&self, ino: u64) -> &Mutex<FxHashMap<u64, u64>> {
        &self.shards[(ino % SHARDS as u64) as usize]
    }

    /// The kernel is told that a file is so long.
    pub(super) fn length(&self, ino: u64, length: u64) {
        let mut shard = self.shard(ino).lock();
        if shard.len() >= SHARD_FILES && !shard.contains_key(&ino) {
            shard.clear();
        }
        shard.insert(ino, length);
    }

    /// The kernel wrote up to `end`.
    pub(super) fn wrote(&self, ino: u64, end: u64) {
        if let Some(length) = self.shard(ino).lock().get_mut(&ino) {
            *length = end.max(*length);
        }
    }

    /// Whether the kernel believes a file to be so long.
    pub(super) fn has_length(&self, ino: u64, length: u64) -> bool {
        self.shard(ino).lock().get(&ino) == Some(&length)
    }

    /// Whether the kernel must look up a file again before `thread` may open it, because what it knows of it seems `stale`.
    /// Said once to each open: answered `ESTALE`, the kernel looks up every name of the path and opens again.
    pub(super) fn refuses(&self, ino: u64, thread: u32, stale: bool) -> bool {
        let mut awaited = self.awaited.lock();
        if awaited.remove(&(ino, thread)).is_some_and(|since| since.elapsed() < REPEATS) || !stale {
            return false;
        }
        if awaited.len() >= MOST_AWAITED {
            awaited.retain(|_, since| since.elapsed() < REPEATS);
        }
        // An open that is not awaited would be refused twice, which programs would see.
        awaited.len() < MOST_AWAITED && awaited.insert((ino, thread), Instant::now()).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_is_refused_once_and_only_if_the_length_is_another() {
        let told = Told::default();
        let refuses = |ino, thread, length| told.refuses(ino, thread, !told.has_length(ino, length));
        told.length(5, 100);
        assert!(!refuses(5, 1, 100));
        assert!(refuses(5, 1, 200), "another mount appended");
        assert!(refuses(5, 2, 200), "each thread has its own open");
        assert!(!refuses(5, 1, 300), "and it still grows");
        told.wrote(5, 150);
        told.wrote(5, 20);
        assert!(!refuses(5, 3, 150));
        assert!(refuses(6, 3, 0), "never told");
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_looked_up_again() {
        let told = Told::default();
        (0..200_000).for_each(|ino| told.length(ino, 1));
        let kept: usize = told.shards.iter().map(|shard| shard.lock().len()).sum();
        assert!(kept <= SHARDS * SHARD_FILES);
        let refused = (0..200_000).filter(|ino| told.refuses(*ino, 1, !told.has_length(*ino, 2))).count();
        assert_eq!(refused, MOST_AWAITED);
    }
}
