//! The writer of one file: gathers what is written, cuts it into slices, uploads and commits them.
//!
//! What must stay true: data is readable here from the moment a write returns until the metadata shows it, commits
//! of a file happen in the order in which its data was frozen, and a failure is told to somebody.

mod batch;
mod extents;
mod failures;
mod flusher;
mod upload;

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino, MAX_FILE_SIZE, Time};

pub use self::failures::OpenWriter;
pub(crate) use self::flusher::Flusher;
use self::{
    batch::{Batch, Freezer, ids_needed, show_extents},
    extents::{Extents, Wrote},
    failures::Failures,
    upload::Upload,
};
use crate::{blocks::BlockStore, compact::Compactor, cover::Cover, pool::Pool};

/// Batches of one file under way at most; a writer waits for the oldest beyond that.
const MAX_PENDING: usize = 800;

/// What all writers of a volume share.
#[derive(Debug)]
pub(crate) struct WriteContext {
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) index: crate::IndexRef,
    pub(crate) pool: Pool,
    pub(crate) compactor: Arc<Compactor>,
    pub(crate) flusher: Arc<Flusher>,
}

/// The one writer of a file in this client, shared by all its handles.
#[derive(Debug)]
pub struct FileWriter {
    ino: Ino,
    context: Arc<WriteContext>,
    state: Mutex<State>,
    /// A batch was committed, or the last block of one was stored.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    active: BTreeMap<u32, Active>,
    pending: VecDeque<Arc<Batch>>,
    /// Numbers of the last batch frozen, and of the last one that came to an end.
    frozen: u64,
    ended: u64,
    committing: bool,
    /// Threads in [`FileWriter::settle`], which commit themselves.
    waiters: u32,
    failures: Failures,
    /// Whether the index was told that there is data which it does not have.
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
        Arc::new(Self { ino, context, state: Mutex::default(), changed: Condvar::new() })
    }

    /// The file.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// Takes `data`, written at `offset` at time `mtime`. Readers of this client see it at once; it is stored when
    /// [`Self::flush`] says so. Waits while memory is short.
    ///
    /// # Errors
    /// `EFBIG` beyond the largest file. Otherwise what went wrong earlier with data that an earlier write took: it
    /// is told once, and this data is not taken.
    pub fn write(self: &Arc<Self>, offset: u64, data: &[u8], mtime: Time) -> FsResult<()> {
        self.take(offset, data, mtime, Failures::tell_new)
    }

    /// Takes `data` unless `tell` tells of failures.
    fn take(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
        mtime: Time,
        tell: impl FnOnce(&mut Failures) -> FsResult<()>,
    ) -> FsResult<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(FsError::FileTooBig);
        }
        let budget = &self.context.blocks.budget;
        if budget.used() >= budget.limit() {
            self.context.flusher.kick();
            budget.wait();
        }
        let mut state = self.state.lock();
        while state.pending.len() >= MAX_PENDING {
            let oldest = state.ended + 1;
            drop(state);
            self.settle(oldest);
            state = self.state.lock();
        }
        tell(&mut state.failures)?;
        if !state.dirty {
            state.dirty = true;
            self.context.index.dirty(self.ino, true);
        }
        let (mut starting, mut rest, mut at, mut result) = (Vec::new(), data, offset, Ok(()));
        while !rest.is_empty() && result.is_ok() {
            let pos = at % CHUNK_SIZE;
            let step = (CHUNK_SIZE - pos).min(rest.len() as u64) as usize;
            let index = (at / CHUNK_SIZE) as u32;
            result = self.write_chunk(&mut state, index, pos as u32, &rest[..step], mtime, &mut starting);
            rest = &rest[step..];
            at += step as u64;
        }
        drop(state);
        self.context.blocks.stats.write_bytes.add(data.len() as u64);
        self.start(starting);
        result
    }

    fn write_chunk(
        &self,
        state: &mut State,
        index: u32,
        mut pos: u32,
        mut data: &[u8],
        mtime: Time,
        starting: &mut Vec<Arc<Upload>>,
    ) -> FsResult<()> {
        let blocks = &self.context.blocks;
        let block_size = blocks.layout.block_size;
        let now = Instant::now();
        while !data.is_empty() {
            let active = state.active.entry(index).or_insert_with(|| Active {
                extents: Extents::default(),
                born: now,
                touched: now,
                mtime,
            });
            active.touched = now;
            active.mtime = active.mtime.max(mtime);
            let taken = match active.extents.write(pos, data, block_size, &blocks.budget) {
                Wrote::Taken(taken) => taken,
                Wrote::Full { taken, layer, run } => {
                    let at_end = self.seal(active, layer, run, starting)?;
                    if at_end {
                        starting.append(&mut self.freeze(state, index)?);
                    }
                    taken
                }
                Wrote::Crowded => {
                    starting.append(&mut self.freeze(state, index)?);
                    0
                }
            };
            pos += taken as u32;
            data = &data[taken..];
        }
        Ok(())
    }

    /// Sends the full block at the end of a run on its way. Answers whether the run ends where the chunk does.
    fn seal(
        &self,
        active: &mut Active,
        layer: usize,
        run: u32,
        starting: &mut Vec<Arc<Upload>>,
    ) -> FsResult<bool> {
        let blocks = &self.context.blocks;
        let Some(run) = active.extents.layers.get_mut(layer).and_then(|layer| layer.get_mut(&run)) else {
            return Ok(false);
        };
        let id = match run.slice {
            Some(id) => id,
            None => self.context.index.new_slice_id()?,
        };
        run.slice = Some(id);
        let number = run.sealed.len() as u32;
        let key = crate::BlockKey { id, index: number, size: blocks.layout.block_size };
        let (data, charge) = run.take_block(&blocks.budget);
        let upload = Upload::new(key, data, charge);
        run.sealed.push(Arc::clone(&upload));
        starting.push(upload);
        Ok(u64::from(run.end()) == CHUNK_SIZE)
    }

    /// Makes a batch of what a chunk gathered. On an error nothing has changed.
    fn freeze(&self, state: &mut State, index: u32) -> FsResult<Vec<Arc<Upload>>> {
        let Some(active) = state.active.get(&index) else { return Ok(Vec::new()) };
        let needed = ids_needed(&active.extents);
        let ids = (0..needed).map(|_| self.context.index.new_slice_id()).collect::<FsResult<Vec<u64>>>()?;
        let Some(active) = state.active.remove(&index) else { return Ok(Vec::new()) };
        if active.extents.is_empty() {
            return Ok(Vec::new());
        }
        let blocks = &self.context.blocks;
        let freezer = Freezer::new(blocks.layout, &blocks.budget, ids);
        state.frozen += 1;
        let (batch, starting) = freezer.freeze(active.extents, state.frozen, index, active.mtime);
        state.pending.push_back(Arc::new(batch));
        Ok(starting)
    }

    /// Freezes all chunks for which `which` holds; an error is kept for whoever asks next.
    fn freeze_where(&self, state: &mut State, which: impl Fn(&Active) -> bool) -> Vec<Arc<Upload>> {
        let chosen: Vec<u32> =
            state.active.iter().filter(|(_, active)| which(active)).map(|(index, _)| *index).collect();
        let mut starting = Vec::new();
        for index in chosen {
            match self.freeze(state, index) {
                Ok(mut uploads) => starting.append(&mut uploads),
                Err(error) => state.failures.add(error),
            }
        }
        starting
    }

    /// Uploads and commits everything written so far, and waits for it.
    ///
    /// # Errors
    /// What went wrong with any data written since the last time an error was told to anybody. Who has the file open asks
    /// [`OpenWriter`].
    pub fn flush(self: &Arc<Self>) -> FsResult<()> {
        self.settle_all();
        let mut state = self.state.lock();
        let told = state.failures.tell_new();
        self.cleaned(&mut state);
        told
    }

    /// As [`Self::flush`]; but whoever wrote is told of what failed all the same.
    pub fn flush_untold(self: &Arc<Self>) -> FsResult<()> {
        self.settle_all();
        self.state.lock().failures.untold()
    }

    /// Uploads and commits everything written so far, and waits until that has ended, well or not.
    fn settle_all(self: &Arc<Self>) {
        let mut state = self.state.lock();
        let mut starting = self.freeze_where(&mut state, |_| true);
        let target = state.frozen;
        drop(state);
        // The last block goes up on this thread: most files have one, and it would wait anyhow.
        let last = starting.pop();
        self.start(starting);
        if let Some(last) = last {
            last.run(&self.context.blocks);
        }
        self.settle(target);
    }

    /// [`Self::flush`], and makes sure that a power cut cannot take it back. `heard` says in the end whether anybody still waits
    /// for the answer: if not, somebody else is told what failed.
    pub fn fsync(self: &Arc<Self>, heard: impl FnOnce() -> bool) -> FsResult<()> {
        self.settle_all();
        let mut state = self.state.lock();
        let heard = heard();
        let failed = if heard { state.failures.tell_new() } else { state.failures.untold() };
        self.cleaned(&mut state);
        drop(state);
        failed?;
        self.context.blocks.harden()?;
        self.context.blocks.tell_lost(self.context.blocks.lost().1, heard)
    }

    /// Waits until all that is on its way came to an end: from then on the metadata shows it, or it failed.
    pub(crate) fn settle_frozen(self: &Arc<Self>) {
        let target = self.state.lock().frozen;
        self.settle(target);
    }

    /// First offset behind all data that the metadata does not show yet; 0 if it shows everything.
    pub fn dirty_end(&self) -> u64 {
        let state = self.state.lock();
        let active = state.active.iter().map(|(index, active)| (*index, active.extents.end()));
        let pending = state.pending.iter().map(|batch| (batch.index, batch.end()));
        let ends = active.chain(pending).map(|(index, end)| u64::from(index) * CHUNK_SIZE + u64::from(end));
        ends.max().unwrap_or(0)
    }

    /// Gives what the metadata does not show yet of chunk `index` to `cover`.
    pub(crate) fn show(&self, index: u32, cover: &mut Cover) {
        let layout = self.context.blocks.layout;
        let state = self.state.lock();
        if let Some(active) = state.active.get(&index) {
            show_extents(&active.extents, layout, cover);
        }
        for batch in state.pending.iter().rev().filter(|batch| batch.index == index) {
            batch.show(layout, cover);
        }
    }

    /// Whether there is nothing to flush and no error to tell.
    pub(crate) fn is_clean(&self) -> bool {
        self.state.lock().is_clean()
    }

    /// Tells the index once it has everything, and nobody has to be told of a failure.
    fn cleaned(&self, state: &mut State) {
        if state.dirty && state.is_clean() {
            state.dirty = false;
            self.context.index.dirty(self.ino, false);
        }
    }

    /// Sends data on its way that is old or that nobody adds to.
    pub(crate) fn flush_old(self: &Arc<Self>, age: Duration, idle: Duration) {
        let Some(mut state) = self.state.try_lock() else { return };
        let starting = self.freeze_where(&mut state, |active| {
            active.born.elapsed() >= age || active.touched.elapsed() >= idle
        });
        drop(state);
        self.start(starting);
    }

    /// Bytes of memory that data takes which is not on its way.
    fn active_bytes(&self) -> u64 {
        let state = self.state.lock();
        state.active.values().map(|active| active.extents.bytes()).sum()
    }

    fn start(self: &Arc<Self>, uploads: Vec<Arc<Upload>>) {
        for upload in uploads {
            let writer = Arc::clone(self);
            self.context.blocks.runtime().spawn(async move {
                upload.run_async(&writer.context.blocks).await;
                writer.stored();
            });
        }
    }

    /// A block came to its end: whoever waits commits, else the pool does.
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

    /// Waits until batch `target` and all before it came to an end; commits what is ready itself.
    fn settle(self: &Arc<Self>, target: u64) {
        let mut state = self.state.lock();
        state.waiters += 1;
        while state.ended < target {
            if !state.committing && state.head_is_ready() {
                state = self.commit_head(state);
            } else {
                self.changed.wait(&mut state);
            }
        }
        state.waiters -= 1;
        if state.waiters == 0 {
            self.hand_over(&state);
        }
    }

    fn commit_head<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(batch) = state.pending.front().cloned() else { return state };
        state.committing = true;
        drop(state);
        let result = self.commit(&batch);
        state = self.state.lock();
        state.committing = false;
        state.pending.pop_front();
        state.ended = batch.seq;
        if let Err(error) = result {
            tracing::error!(ino = %self.ino, chunk = batch.index, %error, "written data could not be stored");
            self.context.blocks.stats.commit_errors.add(1);
            state.failures.add(error);
        }
        self.cleaned(&mut state);
        self.changed.notify_all();
        state
    }

    fn commit(&self, batch: &Batch) -> FsResult<()> {
        let WriteContext { index, compactor, blocks, .. } = &*self.context;
        if let Some(Err(error)) = batch.outcome() {
            self.discard(batch.slices().collect());
            return Err(error);
        }
        for (number, records) in batch.commits.iter().enumerate() {
            match index.commit(self.ino, batch.index, records, batch.mtime) {
                Ok(count) => {
                    blocks.stats.commits.add(1);
                    blocks.stats.committed_records.add(records.len() as u64);
                    compactor.after_commit(self.ino, batch.index, records.len(), count as usize);
                }
                Err(error) => {
                    // An I/O error leaves open whether the records are there: better a leaked block than a lost one.
                    if !matches!(error, FsError::Io(_) | FsError::Interrupted | FsError::Again) {
                        let refused: Vec<u64> =
                            batch.commits[number..].iter().flatten().map(|record| record.id).collect();
                        self.discard(batch.slices().filter(|(id, _)| refused.contains(id)).collect());
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn discard(&self, slices: Vec<(u64, u32)>) {
        let blocks = Arc::clone(&self.context.blocks);
        self.context.blocks.runtime().spawn(async move {
            for (id, size) in slices {
                if let Err(error) = blocks.delete_slice(id, size).await {
                    tracing::warn!(%error, slice = id, "blocks of a refused write stay behind for gc");
                }
            }
        });
    }
}

impl State {
    fn is_clean(&self) -> bool {
        self.active.is_empty() && self.pending.is_empty() && !self.failures.are_new()
    }

    fn head_is_ready(&self) -> bool {
        self.pending.front().is_some_and(|batch| batch.outcome().is_some())
    }
}
