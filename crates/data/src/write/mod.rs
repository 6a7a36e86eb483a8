//! The writer of one file: collects written data, cuts it into slices, uploads and commits them.
//!
//! What must stay true: data is readable here from the moment a write returns until the metadata
//! contains it. Commits of a file happen in the order in which its data was frozen. Every failure
//! is reported, even a panic. No thread waits for the store or the metadata while it holds the
//! file's lock.

mod batch;
mod commit;
mod context;
mod dirty;
mod extents;
mod failures;
mod flusher;
mod ids;
mod open;
mod pressure;
mod upload;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Mutex, MutexGuard};
use sluice_types::{CHUNK_SIZE, Condvar, FsError, FsResult, Ino, Interrupt, MAX_FILE_SIZE, Time};

pub use self::open::OpenWriter;
use self::{
    batch::{Batch, Freezer, ids_needed, show_extents},
    context::fill_later,
    extents::{Extents, Wrote},
    failures::Failures,
    ids::MissingIds,
    upload::Upload,
};
pub(crate) use self::{context::WriteContext, flusher::Flusher, ids::SliceIds};
use crate::{assembly::Assembly, flight::CALLER_CHECK};

/// Batches of one file under way at most; a writer waits for the oldest beyond that.
const MAX_PENDING: usize = 800;
/// Ids that a write may need besides one for each block: one for each layer of a chunk.
const EXTRA_IDS: usize = 4;
/// How long an fsync continues after a signal, because not every signal kills the program.
const INTERRUPT_DELAY: Duration = Duration::from_secs(3);
/// How often a commit is tried on a chunk that others fill as fast as it is compacted.
const ROOM_TRIES: usize = 5;

/// The one writer of a file in this client, shared by all its handles.
#[derive(Debug)]
pub struct FileWriter {
    ino: Ino,
    context: Arc<WriteContext>,
    state: Mutex<State>,
    /// Signalled when a batch was committed, or its last block was stored.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    active: BTreeMap<u32, Active>,
    pending: VecDeque<Arc<Batch>>,
    /// Numbers of the last batch that was frozen, and of the last one that ended.
    frozen: u64,
    ended: u64,
    /// The newest time of a batch, while there is data that is not frozen. Chunks are not frozen in
    /// the order of their writes, and a commit must not set back the time of the file.
    newest: Option<Time>,
    committing: bool,
    /// Number of threads in [`FileWriter::settle`], which commit themselves.
    waiters: u32,
    failures: Failures,
    /// Whether the index knows that the file has uncommitted data.
    dirty: bool,
}

/// Unfrozen data of one chunk.
#[derive(Debug)]
struct Active {
    extents: Extents,
    born: Instant,
    touched: Instant,
    mtime: Time,
}

impl FileWriter {
    pub(crate) fn new(ino: Ino, context: Arc<WriteContext>) -> Arc<Self> {
        Arc::new(Self { ino, context, state: Mutex::default(), changed: Condvar::default() })
    }

    /// The file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Accepts `data`, written at `offset` at time `mtime`. Readers of this client see it at once.
    /// It is stored when [`Self::flush`] returns. Waits while memory is short.
    ///
    /// # Errors
    /// `EFBIG` beyond the largest file. Otherwise the failure of an earlier write's data. It is
    /// reported once, and the new data is not accepted.
    pub fn write(self: &Arc<Self>, offset: u64, data: &[u8], mtime: Time) -> FsResult<()> {
        self.take(offset, data, mtime, &Interrupt::never(), Failures::report_new)
    }

    /// Accepts `data`, unless `check` returns a failure.
    fn take(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
        mtime: Time,
        interrupt: &Interrupt,
        check: impl FnOnce(&mut Failures) -> FsResult<()>,
    ) -> FsResult<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(FsError::FileTooBig);
        }
        let budget = &self.context.blocks.budget;
        if budget.used() >= budget.limit() {
            self.context.pressure.wake();
            budget.wait(interrupt)?;
        }
        budget.pace(data.len() as u64);
        let mut state = self.lock_to_write(data.len(), interrupt)?;
        check(&mut state.failures)?;
        self.mark_dirty(&mut state);
        let (mut starting, mut rest, mut at, mut result) = (Vec::new(), data, offset, Ok(()));
        while let Err(MissingIds(count)) =
            self.write_some(&mut state, &mut at, &mut rest, mtime, &mut starting)
        {
            // Other threads took the ids meanwhile.
            drop(state);
            self.start(std::mem::take(&mut starting));
            result = self.context.ids.fill(count, &self.context.index, interrupt);
            state = self.state.lock();
            if result.is_err() {
                break;
            }
        }
        drop(state);
        self.context.blocks.stats.write_bytes.add((data.len() - rest.len()) as u64);
        self.start(starting);
        result
    }

    /// Takes the lock when there is room for more batches, and there are ids for a write of `len`
    /// bytes.
    fn lock_to_write(self: &Arc<Self>, len: usize, interrupt: &Interrupt) -> FsResult<MutexGuard<'_, State>> {
        let WriteContext { ids, index, blocks, .. } = &*self.context;
        let wanted = len / blocks.layout.block_size as usize + EXTRA_IDS;
        loop {
            let state = self.state.lock();
            if state.pending.len() >= MAX_PENDING {
                let oldest = state.ended + 1;
                drop(state);
                self.settle(oldest, &mut || interrupt.is_set())?;
            } else if ids.has(wanted) {
                return Ok(state);
            } else {
                drop(state);
                ids.fill(wanted, index, interrupt)?;
            }
        }
    }

    /// Accepts the rest of the data of a write. `at` and `rest` say how far it came.
    fn write_some(
        &self,
        state: &mut State,
        at: &mut u64,
        rest: &mut &[u8],
        mtime: Time,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<(), MissingIds> {
        let blocks = &self.context.blocks;
        let block_size = blocks.layout.block_size;
        let now = Instant::now();
        while !rest.is_empty() {
            let (index, pos) = ((*at / CHUNK_SIZE) as u32, *at % CHUNK_SIZE);
            let data = &rest[..(CHUNK_SIZE - pos).min(rest.len() as u64) as usize];
            let active = state.active.entry(index).or_insert_with(|| Active {
                extents: Extents::default(),
                born: now,
                touched: now,
                mtime,
            });
            active.touched = now;
            active.mtime = active.mtime.max(mtime);
            let wrote = active.extents.write(pos as u32, data, block_size, &blocks.budget);
            if let Wrote::Taken(taken) | Wrote::Full { taken, .. } = wrote {
                *at += taken as u64;
                *rest = &rest[taken..];
            }
            match wrote {
                Wrote::Taken(_) => {}
                // If there is no id for the slice, the next write to the run starts the upload, or
                // the freeze does.
                Wrote::Full { layer, run, .. } => {
                    if self.upload_full_block(active, layer, run, starting)? {
                        self.freeze(state, index, starting)?;
                    }
                }
                Wrote::NeedsFlush => self.freeze(state, index, starting)?,
            }
        }
        Ok(())
    }

    /// Starts to upload the full block at the end of a run. Returns whether the run ends at the end
    /// of the chunk.
    fn upload_full_block(
        &self,
        active: &mut Active,
        layer: usize,
        run: u32,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<bool, MissingIds> {
        let blocks = &self.context.blocks;
        let Some(run) = active.extents.layers.get_mut(layer).and_then(|layer| layer.get_mut(&run)) else {
            return Ok(false);
        };
        let id = match run.slice {
            Some(id) => id,
            None => self.context.ids.take_one()?,
        };
        run.slice = Some(id);
        let number = run.uploading.len() as u32;
        let key = crate::BlockKey { id, index: number, size: blocks.layout.block_size };
        let (data, charge) = run.take_block(&blocks.budget);
        let upload = Upload::new(key, data, charge);
        run.uploading.push(Arc::clone(&upload));
        starting.push(upload);
        Ok(u64::from(run.end()) == CHUNK_SIZE)
    }

    /// Makes a batch of the collected data of a chunk. Without ids, nothing changes.
    fn freeze(
        &self,
        state: &mut State,
        index: u32,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<(), MissingIds> {
        let Some(active) = state.active.get(&index) else { return Ok(()) };
        let ids = self.context.ids.take(ids_needed(&active.extents))?;
        let Some(active) = state.active.remove(&index) else { return Ok(()) };
        if active.extents.is_empty() {
            state.newest = state.newest.filter(|_| !state.active.is_empty());
            return Ok(());
        }
        let blocks = &self.context.blocks;
        let freezer = Freezer::new(blocks.layout, &blocks.budget, ids);
        state.frozen += 1;
        let mtime = state.newest.map_or(active.mtime, |newest| newest.max(active.mtime));
        state.newest = (!state.active.is_empty()).then_some(mtime);
        let (batch, mut fresh) = freezer.freeze(active.extents, state.frozen, index, mtime);
        state.pending.push_back(Arc::new(batch));
        starting.append(&mut fresh);
        Ok(())
    }

    /// Freezes all chunks for which `which` holds, until ids run out.
    fn freeze_where(
        &self,
        state: &mut State,
        which: impl Fn(&Active) -> bool,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<(), MissingIds> {
        let chosen: Vec<u32> =
            state.active.iter().filter(|(_, active)| which(active)).map(|(index, _)| *index).collect();
        chosen.into_iter().try_for_each(|index| self.freeze(state, index, starting))
    }

    /// Freezes all data. Returns the number of the last batch. If there are no ids, the data is
    /// lost, as that of a batch that cannot be stored: a caller that got an error must not find it
    /// in the file later.
    fn freeze_all(self: &Arc<Self>, starting: &mut Vec<Arc<Upload>>) -> u64 {
        let WriteContext { ids, index, .. } = &*self.context;
        let mut state = self.state.lock();
        while let Err(MissingIds(count)) = self.freeze_where(&mut state, |_| true, starting) {
            drop(state);
            self.start(std::mem::take(starting));
            let filled = ids.fill(count, index, &Interrupt::never());
            state = self.state.lock();
            if let Err(error) = filled {
                refuse_all(&mut state, &error);
            }
        }
        state.frozen
    }

    /// Uploads and commits all data written so far, and waits for it.
    ///
    /// # Errors
    /// What failed with any data written since an error was last reported to anybody. For one open
    /// file, use [`OpenWriter`].
    pub fn flush(self: &Arc<Self>) -> FsResult<()> {
        self.flush_for(&Interrupt::never())
    }

    /// [`Self::flush`], as long as a caller waits for it.
    ///
    /// # Errors
    /// As there; `EINTR` after `interrupt`. The data is still stored later.
    pub fn flush_for(self: &Arc<Self>, interrupt: &Interrupt) -> FsResult<()> {
        self.settle_all(&|| !interrupt.is_set())?;
        let mut state = self.state.lock();
        let reported = state.failures.report_new();
        self.mark_clean(&mut state);
        reported
    }

    /// As [`Self::flush`], but a failure is still reported to the writer later.
    pub fn flush_without_reporting(self: &Arc<Self>) -> FsResult<()> {
        self.settle_all(&|| true)?;
        self.state.lock().failures.unreported()
    }

    /// Uploads and commits all data written so far, and waits until that has ended, with or without
    /// an error.
    ///
    /// # Errors
    /// `EINTR` if it takes long and no caller waits for the answer any more, which `caller_waits`
    /// returns.
    fn settle_all(self: &Arc<Self>, caller_waits: &dyn Fn() -> bool) -> FsResult<()> {
        let mut starting = Vec::new();
        let target = self.freeze_all(&mut starting);
        // This thread uploads the last block itself, because most files have only one, and the
        // thread would wait anyway.
        let last = starting.pop();
        self.start(starting);
        let mut unheard_since = None;
        let mut gone =
            || !caller_waits() && unheard_since.get_or_insert_with(Instant::now).elapsed() >= INTERRUPT_DELAY;
        if let Some(last) = last
            && !last.run(&self.context.blocks, &mut gone)
        {
            self.start(vec![last]);
        }
        self.settle(target, &mut gone)
    }

    /// [`Self::flush`], and makes the data survive a power cut. `caller_waits` returns whether a
    /// caller still waits for the answer. If not, a failure is reported by a later call.
    ///
    /// # Errors
    /// As there; `EINTR` if no caller waits any more before the end. The data is still stored
    /// later.
    pub fn fsync(self: &Arc<Self>, caller_waits: impl Fn() -> bool) -> FsResult<()> {
        self.settle_all(&caller_waits)?;
        let mut state = self.state.lock();
        let caller_waits = caller_waits();
        let failed = if caller_waits { state.failures.report_new() } else { state.failures.unreported() };
        self.mark_clean(&mut state);
        drop(state);
        failed?;
        self.context.blocks.harden()?;
        self.context.blocks.tell_lost(self.context.blocks.lost().1, caller_waits)
    }

    /// Waits until all frozen data is committed, or has failed.
    pub(crate) fn settle_frozen(self: &Arc<Self>, interrupt: &Interrupt) -> FsResult<()> {
        let target = self.state.lock().frozen;
        self.settle(target, &mut || interrupt.is_set())
    }

    /// Fills `assembly` with the data of chunk `index` that the metadata does not contain yet.
    pub(crate) fn show(&self, index: u32, assembly: &mut Assembly) {
        let layout = self.context.blocks.layout;
        let state = self.state.lock();
        if let Some(active) = state.active.get(&index) {
            show_extents(&active.extents, layout, assembly);
        }
        for batch in state.pending.iter().rev().filter(|batch| batch.index == index) {
            batch.show(layout, assembly);
        }
    }

    /// Whether there is nothing to flush and no error to report.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.lock().is_clean()
    }

    /// Starts to upload data that is old, or to which no more was added for a while.
    pub(crate) fn flush_old(self: &Arc<Self>, age: Duration, idle: Duration) {
        let Some(mut state) = self.state.try_lock() else { return };
        let mut starting = Vec::new();
        let old = |active: &Active| active.born.elapsed() >= age || active.touched.elapsed() >= idle;
        let frozen = self.freeze_where(&mut state, old, &mut starting);
        drop(state);
        self.start(starting);
        if let Err(short) = frozen {
            // The rest is frozen by one of the next checks.
            fill_later(&self.context, short);
        }
    }

    /// Bytes of memory of data that is not being uploaded.
    fn active_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.active.values().map(|active| active.extents.bytes()).sum()
    }

    fn start(self: &Arc<Self>, uploads: Vec<Arc<Upload>>) {
        for upload in uploads {
            let under_way = UnderWay(Arc::clone(self), upload);
            self.context.blocks.runtime().spawn(async move {
                let UnderWay(writer, upload) = &under_way;
                upload.run_async(&writer.context.blocks).await;
            });
        }
    }

    /// The upload of a block ended. A waiting thread commits its batch, else the pool does.
    fn stored(self: &Arc<Self>) {
        let state = self.state.lock();
        if state.waiters > 0 {
            self.changed.notify_all();
        } else {
            self.hand_over(&state);
        }
    }

    fn hand_over(self: &Arc<Self>, state: &State) {
        if !state.committing && state.head_is_ready() {
            let writer = Arc::clone(self);
            self.context.pool.run(move || {
                let mut state = writer.state.lock();
                while !state.committing && state.head_is_ready() {
                    state = writer.commit_head(state);
                }
            });
        }
    }

    /// Waits until batch `target` and all before it have ended. Commits ready batches itself.
    ///
    /// # Errors
    /// `EINTR` if `gone` returns that no caller waits any more.
    fn settle(self: &Arc<Self>, target: u64, gone: &mut dyn FnMut() -> bool) -> FsResult<()> {
        let mut state = self.state.lock();
        let mut result = Ok(());
        state.waiters += 1;
        while state.ended < target && result.is_ok() {
            if !state.committing && state.head_is_ready() {
                state = self.commit_head(state);
            } else if gone() {
                result = Err(FsError::Interrupted);
            } else {
                self.changed.wait_for(&mut state, CALLER_CHECK);
            }
        }
        state.waiters -= 1;
        if state.waiters == 0 {
            self.hand_over(&state);
        }
        result
    }
}

/// An upload that a task runs. If the task ends early, the upload fails, so that waiting threads
/// continue.
struct UnderWay(Arc<FileWriter>, Arc<Upload>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.1.abandon();
        self.0.stored();
    }
}

/// Makes batches that fail out of all data that is not frozen.
fn refuse_all(state: &mut State, error: &FsError) {
    for (index, active) in std::mem::take(&mut state.active) {
        state.frozen += 1;
        let batch = Batch::refused(active.extents, state.frozen, index, active.mtime, error.clone());
        state.pending.push_back(Arc::new(batch));
    }
    state.newest = None;
}

impl State {
    fn head_is_ready(&self) -> bool {
        self.pending.front().is_some_and(|batch| batch.outcome().is_some())
    }
}
