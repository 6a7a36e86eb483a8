//! The index of chunks for the data path, kept in the volume's metadata.
//!
//! What must stay true: what this client commits is visible in its own reads and attributes before
//! the data path frees the bytes.

use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_data::ChunkIndex;
use sluice_meta::{
    Interrupt, Meta,
    op::{Op, UnderLocks, WithBefore},
    ops::{chunks::ReadChunk, compact::Compact, setattr::SetAttr, write::Write},
};
use sluice_types::{Attr, FsError, FsResult, Ino, Slice, Time};

use crate::{
    journal::Journal,
    meta_cache::MetaCache,
    next_commit::{Joined, Joining},
};

/// Commits to a chunk after which its records are counted again, because other clients may write to
/// it, too.
const RECOUNT: u32 = 64;
/// Records added to a chunk after which its records are counted again.
const RECOUNT_RECORDS: u32 = 500;
/// Most chunks whose count of records is kept.
const MAX_COUNTS: usize = 1 << 15;

/// Called with slices that no record refers to after a compaction.
type Unused = Box<dyn Fn(Vec<(u64, u32)>) + Send + Sync>;

/// [`ChunkIndex`] over a volume's metadata. Create it first, then open the data path with it, then
/// create a [`Vfs`](crate::Vfs) from both.
pub struct MetaIndex {
    pub(crate) meta: Arc<Meta>,
    pub(crate) cache: MetaCache,
    counts: Mutex<Counts>,
    unused: OnceLock<Unused>,
    /// The journal, which holds the files that have data that is not stored.
    journal: OnceLock<Arc<Journal>>,
}

/// How many records chunks have, as far as this client knows.
#[derive(Default)]
struct Counts(FxHashMap<(Ino, u32), Count>);

#[derive(Clone, Copy, Default)]
struct Count {
    /// The count at the last read of the records.
    counted: u32,
    /// Records that this client added since, …
    added: u32,
    /// … and the number of its commits.
    commits: u32,
}

impl Counts {
    fn of(&mut self, chunk: (Ino, u32)) -> &mut Count {
        if self.0.len() >= MAX_COUNTS {
            self.0.clear();
        }
        self.0.entry(chunk).or_default()
    }

    fn set(&mut self, chunk: (Ino, u32), counted: u32) {
        *self.of(chunk) = Count { counted, ..Count::default() };
    }

    /// Makes the next commit count the records again.
    fn doubt(&mut self, chunk: (Ino, u32)) {
        self.of(chunk).commits = RECOUNT;
    }

    /// A commit added records. Returns how many there are now; `None` if they must be counted
    /// again.
    fn add(&mut self, chunk: (Ino, u32), added: u32) -> Option<u32> {
        let count = self.of(chunk);
        (count.added, count.commits) = (count.added + added, count.commits + 1);
        (count.commits < RECOUNT && count.added < RECOUNT_RECORDS).then_some(count.counted + count.added)
    }
}

impl MetaIndex {
    /// An index over `meta`.
    pub fn new(meta: Arc<Meta>) -> Arc<Self> {
        let (cache, counts) = (MetaCache::default(), Mutex::default());
        let (unused, journal) = (OnceLock::new(), OnceLock::new());
        Arc::new(Self { meta, cache, counts, unused, journal })
    }

    /// Sets the function that gets slices without references. Until then the hourly cleanup deletes
    /// them.
    pub(crate) fn on_unused(&self, unused: impl Fn(Vec<(u64, u32)>) + Send + Sync + 'static) {
        // Only the first call counts.
        let _ = self.unused.set(Box::new(unused));
    }

    /// Sets the journal, which holds the files that have data that is not stored.
    pub(crate) fn keep_journal(&self, journal: Arc<Journal>) {
        let _ = self.journal.set(journal);
    }

    /// Runs an operation that changes the attributes of `ino`, and caches those that it leaves.
    /// Calls `ended` as soon as the operation has ended, be it with an error.
    pub(crate) fn change<O: Op>(
        &self,
        ino: Ino,
        op: O,
        interrupt: &Interrupt,
        attr: impl Fn(&O::Out) -> Attr,
        ended: impl FnOnce(),
    ) -> FsResult<O::Out> {
        let run = || {
            let done = self.meta.run(WithBefore { op, ino }, interrupt);
            ended();
            let (out, before) = done?;
            self.cache.pages_changed(ino, before.as_ref(), &attr(&out));
            Ok(out)
        };
        self.cache.change(ino, run, &attr)
    }

    /// Changes attributes.
    pub(crate) fn set(&self, op: SetAttr, interrupt: &Interrupt) -> FsResult<Attr> {
        self.change(op.ino, op, interrupt, |attr| *attr, || ())
    }

    /// Changes attributes after `flush`, which commits the data that was written before: in the
    /// last commit of the flush, if there is one.
    pub(crate) fn set_after_flush(
        &self,
        op: SetAttr,
        interrupt: &Interrupt,
        flush: impl Fn() -> FsResult<()>,
    ) -> FsResult<Attr> {
        let file = self.cache.file(op.ino);
        let mut joining = file.as_ref().and_then(|file| file.next_commit.join(op.clone(), interrupt));
        loop {
            flush()?;
            match joining.take().map_or(Joined::No, Joining::outcome) {
                Joined::Done(result) => return result,
                Joined::No => return self.set(op, interrupt),
                // By the commit of data that was written meanwhile, for which the next flush waits.
                Joined::Taken(again) => joining = Some(again),
            }
        }
    }

    /// Runs a write, and a change of attributes that follows it. Calls `ended` as soon as both have
    /// ended.
    fn write_and_set(
        &self,
        write: UnderLocks<Write>,
        (set, interrupt): &(SetAttr, Interrupt),
        ended: impl FnOnce(),
    ) -> FsResult<(Attr, FsResult<Attr>)> {
        let ino = set.ino;
        let run = || {
            let (write, set) = (WithBefore { op: write, ino }, WithBefore { op: set.clone(), ino });
            let done = self.meta.run_then(write, set, interrupt);
            ended();
            let ((wrote, before), set) = done?;
            self.cache.pages_changed(ino, before.as_ref(), &wrote);
            if let Ok((attr, before)) = &set {
                self.cache.pages_changed(ino, before.as_ref(), attr);
            }
            Ok((wrote, set.map(|(attr, _)| attr)))
        };
        self.cache.change(ino, run, |(wrote, set)| *set.as_ref().unwrap_or(wrote))
    }

    fn read_records(&self, ino: Ino, index: u32, interrupt: &Interrupt) -> FsResult<Arc<[Slice]>> {
        let asked = self.cache.begin_chunk_read(ino);
        let list = self.meta.read(&ReadChunk { ino, index }, interrupt).map_err(stale)?;
        self.counts.lock().set((ino, index), list.len() as u32);
        Ok(self.cache.keep_chunk(ino, index, asked, list))
    }
}

/// The error for an open file whose node does not exist: another client removed it.
fn stale(error: FsError) -> FsError {
    if error == FsError::NotFound { FsError::Stale } else { error }
}

impl ChunkIndex for MetaIndex {
    fn slices(&self, ino: Ino, index: u32, fresh: bool, interrupt: &Interrupt) -> FsResult<Arc<[Slice]>> {
        match self.cache.chunk(ino, index) {
            Some(list) if !fresh => Ok(list),
            _ => self.read_records(ino, index, interrupt),
        }
    }

    fn known_slices(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        self.cache.chunk(ino, index)
    }

    fn new_slice_id(&self, interrupt: &Interrupt) -> FsResult<u64> {
        self.meta.new_slice(interrupt)
    }

    fn dirty(&self, ino: Ino, dirty: bool) {
        if let Some(journal) = self.journal.get() {
            journal.dirty(ino, dirty);
        }
    }

    fn commit(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        mtime: Time,
        is_last: &dyn Fn() -> bool,
    ) -> FsResult<u32> {
        let op = Write { ino, index, slices: records.to_vec(), mtime };
        let file = self.cache.file(ino);
        let write = UnderLocks { op, fences: file.as_ref().and_then(|file| file.locked_since()) };
        // Even after an error, because it may have been committed.
        let ended = || self.cache.chunk_changed(ino, index);
        let taken = file.as_ref().and_then(|file| file.next_commit.take(is_last));
        let wrote = match taken {
            None => self.change(ino, write, &Interrupt::never(), |attr| *attr, ended).map(drop),
            Some(taken) => {
                let done = self.write_and_set(write, &taken.change, ended);
                taken.ended(done.map(|(_, set)| set))
            }
        };
        wrote.map_err(stale)?;
        let count = self.counts.lock().add((ino, index), records.len() as u32);
        match count {
            Some(count) => Ok(count),
            // An error here only affects the count. The commit has happened.
            None => {
                Ok(self.read_records(ino, index, &Interrupt::never()).map_or(0, |list| list.len() as u32))
            }
        }
    }

    fn replace(&self, ino: Ino, index: u32, old: &[Slice], keep: usize, new: Slice) -> FsResult<bool> {
        let compact = Compact { ino, index, old: old.to_vec(), keep, new };
        let replaced = self.meta.run(compact, &Interrupt::never());
        self.cache.chunk_changed(ino, index);
        self.counts.lock().doubt((ino, index));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_counted_again_after_many_changes() {
        let mut counts = Counts::default();
        let chunk = (Ino(7), 0);
        assert_eq!(counts.add(chunk, 1), Some(1), "a new file is not asked for");
        assert_eq!(counts.add(chunk, 600), None, "but if it was not new there may be many more");
        counts.set(chunk, 601);
        assert_eq!((1..RECOUNT).map_while(|_| counts.add(chunk, 1)).last(), Some(600 + RECOUNT));
        assert_eq!(counts.add(chunk, 1), None);
        counts.set(chunk, 10);
        counts.doubt(chunk);
        assert_eq!(counts.add(chunk, 1), None, "a compaction replaced some");
    }
}
