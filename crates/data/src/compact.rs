//! Compaction: replaces many records of a chunk by few.
//!
//! What must stay true: a compaction never changes the content of a chunk. Old blocks stay until
//! the metadata no longer names them, and the new ones survive a power cut before it names them.
//! Records that changed meanwhile are not replaced.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_object::ObjectError;
use sluice_types::{FsError, FsResult, Ino, Interrupt, Slice};
use tokio::task::JoinHandle;

use crate::{
    assembly::{Assembly, Piece},
    block_on::block_on,
    blocks::BlockStore,
    error::not_stored,
    layout::{cut, visible},
    pool::Pool,
};

/// Most records of one compaction.
const MAX_RECORDS: usize = 4000;
/// A record of at least this many bytes may be worth keeping …
const KEEP_BYTES: u32 = 1 << 20;
/// … if it is at least this share of all that is left.
const KEEP_SHARE: u64 = 5;
/// Number of records at which a chunk is compacted before more are added. Engines refuse chunks of
/// some 2,700.
const URGENT: usize = 1500;
/// Number of records above which every commit schedules a compaction. Below it, every hundredth
/// record does.
const MANY: usize = 350;
/// Number of records from which a read of the chunk schedules a compaction.
const READ_MANY: usize = 5;
/// Blocks of the new slice that are uploaded at once.
const PARALLEL: usize = 4;
/// How often a compaction that cannot wait is tried while others change the chunk.
const URGENT_TRIES: usize = 4;
/// Most chunks for which a useless compaction is remembered.
const MAX_TRIED: usize = 10_000;

type Uploading = JoinHandle<Result<(), ObjectError>>;

/// How the records of a chunk can be made fewer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// How many records, from the first one on, are replaced.
    pub taken: usize,
    /// How many of these stay as they are.
    pub keep: usize,
    /// Where in the chunk the new slice starts.
    pub pos: u32,
    /// Bytes of the new slice.
    pub size: u32,
    /// The pieces of the new slice, by offset; gaps are zeros.
    pub pieces: Vec<Slice>,
}

/// Plans the compaction of `records`; `None` if it would gain nothing.
pub fn plan(records: &[Slice]) -> Option<Plan> {
    let taken = records.len().min(MAX_RECORDS);
    let records = &records[..taken];
    let mut keep = 0;
    let mut pieces = visible(records);
    while let Some(first) = records.get(keep) {
        let total = pieces.first().zip(pieces.last()).map_or(0, |(first, last)| last.end() - first.pos);
        let worth = first.len >= KEEP_BYTES && u64::from(first.len) * KEEP_SHARE >= u64::from(total);
        let untouched = pieces.first() == Some(first) && !records[keep + 1..].contains(first);
        if !worth || !untouched {
            break;
        }
        keep += 1;
        pieces = visible(&records[keep..]);
    }
    if taken - keep < 2 {
        return None;
    }
    let (pos, size) = match (pieces.first(), pieces.last()) {
        (Some(first), Some(last)) => (first.pos, last.end() - first.pos),
        // Only holes: one byte of zeros represents them.
        _ => (records[keep].pos, 1),
    };
    Some(Plan { taken, keep, pos, size, pieces })
}

/// Runs compactions, one per chunk at a time except urgent ones.
#[derive(Debug)]
pub(crate) struct Compactor {
    blocks: Arc<BlockStore>,
    index: crate::IndexRef,
    pool: Pool,
    auto: bool,
    /// Set when this process ends.
    stop: Interrupt,
    busy: Mutex<FxHashSet<(Ino, u32)>>,
    /// Chunks whose compaction is scheduled and has not begun.
    queued: Mutex<FxHashSet<(Ino, u32)>>,
    /// How many records a chunk had when compacting it was found useless.
    tried: Mutex<FxHashMap<(Ino, u32), usize>>,
}

/// A chunk that is being compacted, until this is dropped.
struct Busy<'a>(&'a Compactor, (Ino, u32));

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        self.0.busy.lock().remove(&self.1);
    }
}

impl Compactor {
    pub(crate) fn new(blocks: Arc<BlockStore>, index: crate::IndexRef, pool: Pool, auto: bool) -> Arc<Self> {
        Arc::new(Self {
            blocks,
            index,
            pool,
            auto,
            stop: Interrupt::never(),
            busy: Mutex::default(),
            queued: Mutex::default(),
            tried: Mutex::default(),
        })
    }

    /// A chunk got `added` records and has `count` now.
    pub(crate) fn after_commit(self: &Arc<Self>, ino: Ino, index: u32, added: usize, count: usize) {
        if !self.auto {
            return;
        }
        if count >= URGENT {
            if let Err(error) = self.compact_urgently(ino, index, URGENT) {
                tracing::warn!(%ino, chunk = index, %error, "a chunk of many records could not be compacted");
            }
        } else if count > MANY || count.saturating_sub(added) / 100 != count / 100 {
            self.schedule(ino, index, count);
        }
    }

    /// A chunk of `count` records was read.
    pub(crate) fn after_read(self: &Arc<Self>, ino: Ino, index: u32, count: usize) {
        if self.auto && count >= READ_MANY {
            self.schedule(ino, index, count);
        }
    }

    /// Ends compactions in the background, at most within `timeout`. Those that still have blocks
    /// to write are given up, and delete what they wrote. Returns whether all of them ended.
    pub(crate) fn end(&self, timeout: Duration) -> bool {
        self.stop.set();
        self.pool.finish(timeout)
    }

    fn schedule(self: &Arc<Self>, ino: Ino, index: u32, count: usize) {
        let tried = self.tried.lock().get(&(ino, index)) == Some(&count);
        if tried || self.busy.lock().contains(&(ino, index)) || !self.queued.lock().insert((ino, index)) {
            return;
        }
        let compactor = Arc::clone(self);
        self.pool.run(move || {
            compactor.queued.lock().remove(&(ino, index));
            // Commits during the compaction could not schedule another one, so this checks again.
            let done = loop {
                if compactor.stop.is_set() {
                    return;
                }
                let done = compactor.compact(ino, index);
                let left = || {
                    let records = compactor.index.slices(ino, index, false, &Interrupt::never());
                    records.map_or(0, |records| records.len())
                };
                if !matches!(done, Ok(true)) || left() <= MANY {
                    break done;
                }
            };
            if !matches!(done, Ok(true)) {
                let mut tried = compactor.tried.lock();
                if tried.len() >= MAX_TRIED {
                    tried.clear();
                }
                tried.insert((ino, index), count);
            }
            if let Err(error) = done {
                tracing::warn!(%ino, chunk = index, %error, "a chunk could not be compacted");
            }
        });
    }

    /// Compacts a chunk. Returns whether anything was replaced. Nothing is if it would gain
    /// nothing, if another compaction runs, or if the records changed meanwhile.
    pub(crate) fn compact(&self, ino: Ino, index: u32) -> FsResult<bool> {
        if !self.busy.lock().insert((ino, index)) {
            return Ok(false);
        }
        let _busy = Busy(self, (ino, index));
        let records = self.index.slices(ino, index, true, &Interrupt::never())?;
        self.compact_these(ino, index, &records)
    }

    /// Compacts a chunk to which the metadata refused to add records, because it has too many.
    pub(crate) fn make_room(&self, ino: Ino, index: u32) -> FsResult<()> {
        self.compact_urgently(ino, index, 2)
    }

    /// Compacts a chunk of `many` records or more, before more are added. Another compaction may
    /// run, which began before the last records were added. Of the two, one finds that the records
    /// changed.
    fn compact_urgently(&self, ino: Ino, index: u32, many: usize) -> FsResult<()> {
        for _ in 0..URGENT_TRIES {
            let records = self.index.slices(ino, index, true, &Interrupt::never())?;
            if records.len() < many || self.compact_these(ino, index, &records)? {
                break;
            }
        }
        Ok(())
    }

    fn compact_these(&self, ino: Ino, index: u32, records: &[Slice]) -> FsResult<bool> {
        let Some(plan) = plan(records) else { return Ok(false) };
        let id = self.index.new_slice_id(&Interrupt::never())?;
        let new = Slice::whole(plan.pos, id, plan.size);
        // The old blocks may be durable, and the metadata that names the new ones may soon be.
        if let Err(error) = self.copy(&plan, id).and_then(|()| self.blocks.sync_store()) {
            self.delete(new);
            // Another client replaced the records, and their blocks are deleted already.
            return if matches!(error, ObjectError::NotFound { .. }) || self.stop.is_set() {
                Ok(false)
            } else {
                Err(not_stored(&error))
            };
        }
        match self.index.replace(ino, index, &records[..plan.taken], plan.keep, new) {
            Ok(true) => {
                self.blocks.stats.times.compacted.add(u64::from(plan.size));
                Ok(true)
            }
            Ok(false) => {
                self.delete(new);
                Ok(false)
            }
            Err(error) => {
                // Only after an I/O error is it unknown whether the new slice is in use.
                if !matches!(error, FsError::Io(_) | FsError::Interrupted | FsError::Again) {
                    self.delete(new);
                }
                Err(error)
            }
        }
    }

    /// Writes the new slice, a few blocks at a time.
    fn copy(&self, plan: &Plan, id: u64) -> Result<(), ObjectError> {
        let runtime = self.blocks.runtime();
        let mut under_way: VecDeque<Uploading> = VecDeque::new();
        let finish =
            |task: Uploading| block_on(runtime, task).unwrap_or_else(|error| Err(self.interrupted(&error)));
        let mut result = Ok(());
        let mut pos = plan.pos;
        for key in self.blocks.layout.blocks(id, plan.size) {
            if self.stop.is_set() {
                result = Err(self.interrupted(&"this client ends"));
                break;
            }
            let charge = self.blocks.budget.charge(u64::from(key.size));
            let data = match self.gather(plan, pos, pos + key.size) {
                Ok(data) => data,
                Err(error) => {
                    result = Err(error);
                    break;
                }
            };
            pos += key.size;
            let blocks = Arc::clone(&self.blocks);
            under_way.push_back(runtime.spawn(async move {
                let result = blocks.put(key, &data).await;
                drop(charge);
                result
            }));
            if under_way.len() >= PARALLEL {
                result = under_way.pop_front().map_or(Ok(()), finish);
            }
            if result.is_err() {
                break;
            }
        }
        // Even after a failure, no upload may still run when the caller deletes the blocks.
        under_way.into_iter().map(finish).fold(result, Result::and)
    }

    /// The bytes of the plan between two offsets of the chunk.
    fn gather(&self, plan: &Plan, from: u32, to: u32) -> Result<Bytes, ObjectError> {
        let mut assembly = Assembly::new(from, to);
        let first = plan.pieces.partition_point(|piece| piece.end() <= from);
        for piece in plan.pieces[first..].iter().take_while(|piece| piece.pos < to) {
            assembly.fill(piece.pos, piece.end(), |from, to, found| {
                found.extend(self.blocks.layout.parts(cut(*piece, from, to)).map(Piece::Block));
            });
        }
        let mut out = Vec::new();
        let never = Interrupt::never();
        assembly.assemble(&mut out, |part| {
            self.blocks.read(part.block, part.from..part.from + part.len, &never)
        })?;
        if out.len() == 1 {
            return Ok(out.remove(0));
        }
        let mut joined = BytesMut::with_capacity((to - from) as usize);
        for piece in &out {
            joined.extend_from_slice(piece);
        }
        Ok(joined.freeze())
    }

    fn delete(&self, slice: Slice) {
        if let Err(error) = block_on(self.blocks.runtime(), self.blocks.delete_slice(slice.id, slice.size)) {
            tracing::warn!(%error, slice = slice.id, "blocks of an abandoned compaction stay behind for gc");
        }
    }

    fn interrupted(&self, reason: &dyn ToString) -> ObjectError {
        ObjectError::Unavailable {
            action: "write",
            key: "a compacted slice".into(),
            store: self.blocks.describe(),
            reason: reason.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn small_records_become_one_slice_without_the_holes_at_its_ends() {
        let records =
            [Slice::whole(100, 1, 10), Slice::hole(0, 105), Slice::whole(200, 2, 10), Slice::hole(205, 50)];
        let plan = plan(&records).unwrap();
        assert_eq!((plan.taken, plan.keep, plan.pos, plan.size), (4, 0, 105, 100));
        assert_eq!(
            plan.pieces,
            [
                Slice { pos: 105, id: 1, size: 10, off: 5, len: 5 },
                Slice { pos: 200, id: 2, size: 10, off: 0, len: 5 }
            ]
        );
    }

    #[test]
    fn a_large_first_record_stays() {
        let records =
            [Slice::whole(0, 1, 4 * MIB), Slice::whole(4 * MIB, 2, 10), Slice::whole(5 * MIB, 3, 10)];
        let plan1 = plan(&records).unwrap();
        assert_eq!((plan1.keep, plan1.pos, plan1.size), (1, 4 * MIB, MIB + 10));
        let covered = [records[0], Slice::whole(MIB, 2, 10), Slice::whole(5 * MIB, 3, 10)];
        assert_eq!(plan(&covered).unwrap().keep, 0, "partly hidden");
        let repeated = [records[0], records[1], records[0]];
        assert_eq!(plan(&repeated).unwrap().keep, 0, "repeated");
        let small =
            [Slice::whole(0, 1, MIB), Slice::whole(MIB, 2, 30 * MIB), Slice::whole(31 * MIB, 3, 30 * MIB)];
        assert_eq!(plan(&small).unwrap().keep, 0, "less than a fifth");
    }

    #[test]
    fn little_or_nothing_is_left_alone() {
        assert_eq!(plan(&[]), None);
        assert_eq!(plan(&[Slice::whole(0, 1, 10)]), None);
        assert_eq!(plan(&[Slice::whole(0, 1, MIB), Slice::whole(MIB, 2, 10)]), None, "one record left");
        let holes = plan(&[Slice::hole(5, 10), Slice::hole(0, 100)]).unwrap();
        assert_eq!((holes.pos, holes.size, holes.pieces.len()), (5, 1, 0));
    }
}
