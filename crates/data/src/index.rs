//! The part of the metadata that the data path uses: the records of chunks, and how to append to
//! them.
//!
//! What must stay true: the data path uses nothing else of the metadata. No engine and no inode
//! attribute appears here.

use std::sync::Arc;

use sluice_types::{FsResult, Ino, Interrupt, Slice, Time};

/// The records of all chunks, as the metadata keeps them. Calls block, each with a deadline of its
/// own.
pub trait ChunkIndex: Send + Sync + 'static {
    /// The records of chunk `index` of `ino`, oldest first; empty for a chunk that was never
    /// written. May come from a cache unless `fresh`. The cache is never older than a
    /// [`commit`](Self::commit) or [`replace`](Self::replace) of this client, or than an earlier
    /// `fresh` result. While nothing changes, it returns the same [`Arc`].
    fn slices(&self, ino: Ino, index: u32, fresh: bool, interrupt: &Interrupt) -> FsResult<Arc<[Slice]>>;

    /// As [`slices`](Self::slices), but only from the cache: it never waits for the metadata.
    fn known_slices(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>>;

    /// An id that no slice of the volume ever had.
    fn new_slice_id(&self, interrupt: &Interrupt) -> FsResult<u64>;

    /// Appends `records` to chunk `index` in one commit, sets `mtime` and raises the file's length
    /// to the end of the furthest record. Records that share an id each count as a reference of
    /// that slice. All blocks are stored when this is called. `is_last` returns whether all other
    /// data of the file that was written so far is committed. Returns how many records the chunk
    /// has now.
    ///
    /// Every error but [`Io`](sluice_types::FsError::Io) promises that nothing was appended.
    /// [`TooBig`](sluice_types::FsError::TooBig) says that the chunk has no room for so many more:
    /// it must be compacted first.
    fn commit(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        mtime: Time,
        is_last: &dyn Fn() -> bool,
    ) -> FsResult<u32>;

    /// Says whether a file has data that is not committed, or a failure that is not reported yet.
    /// It becomes true before the write is acknowledged. Must not block.
    fn dirty(&self, _ino: Ino, _dirty: bool) {}

    /// If the first `old.len()` records of a chunk still are `old`, replaces them by the first
    /// `keep` of them and `new`. The references of the others are removed. Otherwise it changes
    /// nothing and returns false.
    fn replace(&self, ino: Ino, index: u32, old: &[Slice], keep: usize, new: Slice) -> FsResult<bool>;
}
