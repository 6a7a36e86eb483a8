//! Small blocks that are in memory beside their cache files, for other clients of the cache group.
//! The kernel has them in memory, too, but a read of a few pages takes as long as sending them.
//!
//! What must stay true: together they take no more than the limit. Their bytes were compared with
//! their checksums. A block never changes, so one whose file is removed may stay.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
};

use bytes::{Buf as _, Bytes};

use super::{BlockFile, SecondChance};
use crate::layout::{BlockKey, PAGE, pages};

/// Largest block that is kept.
const LARGEST: u32 = 64 << 10;
/// What a block takes beside its bytes.
const OVERHEAD: u64 = 256;
/// If there is no room, one of so many blocks takes the place of others. If clients read more
/// blocks than there is room for, again and again, each block would otherwise be dropped before it
/// is read again.
const CHANGED: u32 = 8;
/// One of so many hits is noted as a use of the block's file. To note one takes 0.3 µs, all else
/// that this program does for a hit 0.5 µs. It is a prime number, so that clients that read the
/// same blocks again and again have each of them noted.
pub(super) const NOTED: u32 = 7;

/// The blocks that are kept.
#[derive(Debug)]
pub(super) struct Kept {
    /// The checksum of each page of a block (little endian), then its bytes. They lie together,
    /// because a hit takes as long as the memory that it waits for.
    blocks: SecondChance<BlockKey, Bytes>,
    limit: AtomicU64,
    bytes: Arc<AtomicU64>,
    refused: AtomicU32,
    hits: AtomicU32,
}

impl Kept {
    /// None, and room for none.
    pub(super) fn new() -> Self {
        Self {
            blocks: SecondChance::new(),
            limit: AtomicU64::new(0),
            bytes: Arc::default(),
            refused: AtomicU32::new(0),
            hits: AtomicU32::new(0),
        }
    }

    /// Bytes of all of them.
    pub(super) fn bytes(&self) -> &Arc<AtomicU64> {
        &self.bytes
    }

    /// Keeps no more than so many bytes from now on.
    pub(super) fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        self.bytes.store(self.blocks.shrink(limit), Ordering::Relaxed);
    }

    /// Bytes `range` of a block that is kept. Appends to `sums` the checksum of each page of them,
    /// cut at the ends of `range`.
    pub(super) fn serve(&self, key: BlockKey, range: &Range<u32>, sums: &mut Vec<u32>) -> Option<Bytes> {
        if key.size > LARGEST {
            return None;
        }
        let mut block = self.blocks.get(&key)?;
        let (of_pages, _) = block[..sums_len(key)].as_chunks::<4>();
        let is_whole = *range == (0..key.size);
        if is_whole {
            sums.extend(of_pages.iter().map(|sum| u32::from_le_bytes(*sum)));
        }
        block.advance(sums_len(key));
        if !is_whole {
            block = block.slice(range.start as usize..range.end as usize);
            sums.extend(sums_of(range, &block));
        }
        Some(block)
    }

    /// Whether the last hit is one that is noted.
    pub(super) fn is_noted(&self) -> bool {
        self.hits.fetch_add(1, Ordering::Relaxed).is_multiple_of(NOTED)
    }

    /// Drops a block.
    pub(super) fn remove(&self, key: BlockKey) {
        if self.blocks.remove(&key).is_some() {
            self.set_limit(self.limit.load(Ordering::Relaxed));
        }
    }

    /// The file of a block was read for another client. Its block is kept if it is small and there
    /// is room.
    pub(super) fn was_read(&self, key: BlockKey, file: &BlockFile) {
        let (weight, limit) = (u64::from(key.size) + OVERHEAD, self.limit.load(Ordering::Relaxed));
        if key.size > LARGEST || weight > limit {
            return;
        }
        let is_full = self.bytes.load(Ordering::Relaxed) + weight > limit;
        if is_full && !self.refused.fetch_add(1, Ordering::Relaxed).is_multiple_of(CHANGED) {
            return;
        }
        // If it is damaged, the client that just got the same bytes says so.
        let Ok(bytes) = file.read_resident() else { return };
        let mut block = Vec::with_capacity(sums_len(key) + bytes.len());
        block.extend(sums_of(&(0..key.size), &bytes).flat_map(u32::to_le_bytes));
        block.extend_from_slice(&bytes);
        let all = self.blocks.insert(key, block.into(), (weight, 0), limit);
        self.bytes.store(all, Ordering::Relaxed);
    }
}

/// Bytes of the checksums of a whole block.
fn sums_len(key: BlockKey) -> usize {
    4 * key.size.div_ceil(PAGE) as usize
}

/// The checksum of each page of bytes `range` of a block.
fn sums_of(range: &Range<u32>, bytes: &Bytes) -> impl Iterator<Item = u32> {
    let start = range.start;
    pages(range)
        .map(move |page| crc32c::crc32c(&bytes[(page.start - start) as usize..(page.end - start) as usize]))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::{cache::file, config::Verify};

    const SIZE: u32 = 50_000;
    const WEIGHT: u64 = SIZE as u64 + OVERHEAD;

    fn key(id: u64) -> BlockKey {
        BlockKey { id, index: 0, size: SIZE }
    }

    fn block(dir: &Path, id: u64) -> BlockFile {
        let path = dir.join(id.to_string());
        let content: Vec<u8> = (0..u64::from(SIZE)).map(|at| (at * 7 + id) as u8).collect();
        file::write(&path, &content, true, 0o600).unwrap();
        BlockFile::open(&path, SIZE, Verify::Extend, true).unwrap()
    }

    #[test]
    fn what_is_kept_is_what_the_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let (kept, file) = (Kept::new(), block(dir.path(), 1));
        kept.was_read(key(1), &file);
        assert!(kept.serve(key(1), &(0..SIZE), &mut Vec::new()).is_none(), "there is no room");
        kept.set_limit(1 << 20);
        kept.was_read(key(1), &file);
        for range in [0..SIZE, 5..40_000, 32_768..SIZE, 0..32_768, 49_999..SIZE, 7..7] {
            let (mut out, mut wanted, mut sums) = (Vec::new(), Vec::new(), Vec::new());
            file.serve(&range, (&mut out, 0), &mut wanted, true).unwrap();
            let bytes = kept.serve(key(1), &range, &mut sums).unwrap();
            assert!(bytes == out && sums == wanted, "{range:?}");
        }
        let path = dir.path().join("2");
        let damaged = block(dir.path(), 2);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes[40_000] ^= 1;
        std::fs::write(&path, bytes).unwrap();
        kept.was_read(key(2), &damaged);
        assert!(kept.serve(key(2), &(0..SIZE), &mut Vec::new()).is_none(), "it is damaged");
    }

    #[test]
    fn they_stay_within_the_limit_and_those_in_use_stay() {
        let dir = tempfile::tempdir().unwrap();
        let kept = Kept::new();
        let files: Vec<_> = (0..9).map(|id| block(dir.path(), id)).collect();
        let read = |id: u64| {
            let had = kept.serve(key(id), &(0..SIZE), &mut Vec::new()).is_some();
            if !had {
                kept.was_read(key(id), &files[id as usize]);
            }
            assert!(kept.bytes().load(Ordering::Relaxed) <= 4 * WEIGHT);
            had
        };
        kept.set_limit(4 * WEIGHT);
        // More than there is room for, in turns.
        let hits = (0..900_u64).filter(|turn| read(turn % 9)).count();
        assert!(hits > 200, "{hits}");
        // Others than before.
        for _ in 0..100 {
            (5..9).for_each(|id| {
                read(id);
            });
        }
        assert!((5..9).all(read));
        kept.remove(key(5));
        assert!(kept.serve(key(5), &(0..SIZE), &mut Vec::new()).is_none());
        assert_eq!(kept.bytes().load(Ordering::Relaxed), 3 * WEIGHT);
        kept.set_limit(2 * WEIGHT);
        assert_eq!(kept.bytes().load(Ordering::Relaxed), 2 * WEIGHT);
        kept.set_limit(0);
        assert_eq!(kept.bytes().load(Ordering::Relaxed), 0);
    }
}
