//! The index of chunks that the data path asks, kept in the volume's metadata.
//!
//! What must stay true: whatever this client commits shows in its own reads and attributes before the data path lets
//! go of the bytes.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_data::ChunkIndex;
use sluice_meta::{
    Interrupt, Meta,
    ops::{chunks::ReadChunk, compact::Compact, write::Write},
};
use sluice_types::{FsError, FsResult, Ino, Slice, Time};

use crate::known::Known;

/// Commits to a chunk after which its records are counted again: others may write to it too.
const RECOUNT: u32 = 64;
/// Chunks whose records are counted.
const MOST_COUNTS: usize = 1 << 15;

/// What to do with slices that a compaction left without a reference.
type Unused = Box<dyn Fn(Vec<(u64, u32)>) + Send + Sync>;

/// [`ChunkIndex`] over a volume's metadata. Make it first, open the data path with it, and both make a
/// [`Vfs`](crate::Vfs).
pub struct MetaIndex {
    pub(crate) meta: Arc<Meta>,
    pub(crate) known: Known,
    counts: Mutex<FxHashMap<(Ino, u32), Count>>,
    unused: OnceLock<Unused>,
    /// Nobody interrupts the data path.
    never: Interrupt,
}

/// How many records a chunk has, as far as this client knows.
#[derive(Clone, Copy, Default)]
struct Count {
    records: u32,
    commits: u32,
}

impl MetaIndex {
    /// An index over `meta`.
    pub fn new(meta: Arc<Meta>) -> Arc<Self> {
        let (known, counts) = (Known::default(), Mutex::default());
        Arc::new(Self { meta, known, counts, unused: OnceLock::new(), never: Interrupt::never() })
    }

    /// Says what becomes of slices without references; until then they stay on record for the hourly cleaning.
    pub(crate) fn on_unused(&self, unused: impl Fn(Vec<(u64, u32)>) + Send + Sync + 'static) {
        // A second owner of one index changes nothing.
        let _ = self.unused.set(Box::new(unused));
    }

    fn ask(&self, ino: Ino, index: u32) -> FsResult<Arc<[Slice]>> {
        let asked = self.known.records.asking(ino);
        let list = self.meta.ask(&ReadChunk { ino, index }, &Interrupt::never()).map_err(stale)?;
        self.set_count((ino, index), list.len() as u32);
        Ok(self.known.records.keep(ino, index, asked, list))
    }

    fn set_count(&self, chunk: (Ino, u32), records: u32) {
        let mut counts = self.counts.lock();
        if counts.len() >= MOST_COUNTS {
            counts.clear();
        }
        counts.insert(chunk, Count { records, commits: 0 });
    }

    /// Adds to a chunk's count; `None` if it is time to count again.
    fn add_count(&self, chunk: (Ino, u32), added: u32) -> Option<u32> {
        let mut counts = self.counts.lock();
        let count = counts.get(&chunk).copied().unwrap_or_default();
        let count = Count { records: count.records + added, commits: count.commits + 1 };
        counts.insert(chunk, count);
        (count.commits < RECOUNT).then_some(count.records)
    }
}

/// What it means that an open file is not there: another client removed it.
fn stale(error: FsError) -> FsError {
    if error == FsError::NotFound { FsError::Stale } else { error }
}

impl ChunkIndex for MetaIndex {
    fn slices(&self, ino: Ino, index: u32, fresh: bool) -> FsResult<Arc<[Slice]>> {
        match self.known.records.get(ino, index) {
            Some(list) if !fresh => Ok(list),
            _ => self.ask(ino, index),
        }
    }

    fn new_slice_id(&self) -> FsResult<u64> {
        self.meta.new_slice(&self.never)
    }

    fn commit(&self, ino: Ino, index: u32, records: &[Slice], mtime: Time) -> FsResult<u32> {
        let write = Write { ino, index, slices: records.to_vec(), mtime };
        let commit = || {
            let committed = self.meta.run(write, &Interrupt::never());
            // Even after an error: it may have been committed all the same.
            self.known.records.changed(ino, index);
            committed
        };
        self.known.change(ino, commit, |attr| *attr).map_err(stale)?;
        match self.add_count((ino, index), records.len() as u32) {
            Some(count) => Ok(count),
            // Only the count is at stake, not the commit.
            None => Ok(self.ask(ino, index).map_or(0, |list| list.len() as u32)),
        }
    }

    fn replace(&self, ino: Ino, index: u32, old: &[Slice], keep: usize, new: Slice) -> FsResult<bool> {
        let compact = Compact { ino, index, old: old.to_vec(), keep, new };
        let replaced = self.meta.run(compact, &Interrupt::never());
        self.known.records.changed(ino, index);
        self.counts.lock().remove(&(ino, index));
        match replaced {
            Ok(unused) => {
                if let Some(delete) = self.unused.get()
                    && !unused.is_empty()
                {
                    delete(unused);
                }
                Ok(true)
            }
            Err(FsError::Again) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
