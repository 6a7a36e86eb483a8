//! The writer of one file: gathers what is written, cuts it into slices, uploads and commits them.
//!
//! What must stay true: data is readable here from the moment a write returns until the metadata
//! shows it, commits of a file happen in the order in which its data was frozen, and a failure is
//! told to somebody, be it a panic. Nobody waits for the store or the metadata with the file's
//! lock.

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

use parking_lot::{Condvar, Mutex, MutexGuard};
use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino, Interrupt, MAX_FILE_SIZE, Time};

pub use self::open::OpenWriter;
use self::{
    batch::{Batch, Freezer, ids_needed, show_extents},
    context::fill_later,
    extents::{Extents, Wrote},
    failures::Failures,
    ids::Short,
    upload::Upload,
};
pub(crate) use self::{context::WriteContext, flusher::Flusher, ids::SliceIds};
use crate::{cover::Cover, flight::LOOK};

/// Batches of one file under way at most; a writer waits for the oldest beyond that.
const MAX_PENDING: usize = 800;
/// Ids that a write may need besides one for each block: every layer of a chunk can need one.
const FEW_IDS: usize = 4;
/// For how long an fsync goes on after a signal, which need not be one that kills.
const GRACE: Duration = Duration::from_secs(3);
/// How often records are added to a chunk that others fill as fast as it is compacted.
const ROOM_TRIES: usize = 5;

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

    /// Takes `data`, written at `offset` at time `mtime`. Readers of this client see it at once; it
    /// is stored when [`Self::flush`] says so. Waits while memory is short.
    ///
    /// # Errors
    /// `EFBIG` beyond the largest file. Otherwise what went wrong earlier with data that an earlier
    /// write took: it is told once, and this data is not taken.
    pub fn write(self: &Arc<Self>, offset: u64, data: &[u8], mtime: Time) -> FsResult<()> {
        self.take(offset, data, mtime, &Interrupt::never(), Failures::tell_new)
    }

    /// Takes `data` unless `tell` tells of failures.
    fn take(
        self: &Arc<Self>,
        offset: u64,
        data: &[u8],
        mtime: Time,
        interrupt: &Interrupt,
        tell: impl FnOnce(&mut Failures) -> FsResult<()>,
    ) -> FsResult<()> {
        if offset.checked_add(data.len() as u64).is_none_or(|end| end > MAX_FILE_SIZE) {
            return Err(FsError::FileTooBig);
        }
        let budget = &self.context.blocks.budget;
        if budget.used() >= budget.limit() {
            self.context.pressure.kick();
            budget.wait(interrupt)?;
        }
        let mut state = self.lock_to_write(data.len(), interrupt)?;
        tell(&mut state.failures)?;
        self.soils(&mut state);
        let (mut starting, mut rest, mut at, mut result) = (Vec::new(), data, offset, Ok(()));
        while let Err(Short(count)) = self.write_some(&mut state, &mut at, &mut rest, mtime, &mut starting) {
            // Others took the ids meanwhile.
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

    /// The lock, once there is room for more batches, and ids for a write of `len` bytes are in
    /// stock.
    fn lock_to_write(self: &Arc<Self>, len: usize, interrupt: &Interrupt) -> FsResult<MutexGuard<'_, State>> {
        let WriteContext { ids, index, blocks, .. } = &*self.context;
        let wanted = len / blocks.layout.block_size as usize + FEW_IDS;
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

    /// Takes what is left of the data of a write and says by `at` and `rest` how far it came.
    fn write_some(
        &self,
        state: &mut State,
        at: &mut u64,
        rest: &mut &[u8],
        mtime: Time,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<(), Short> {
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
                // A full run that is not sealed for want of an id is by the next write to it, or
                // when it is frozen.
                Wrote::Full { layer, run, .. } => {
                    if self.seal(active, layer, run, starting)? {
                        self.freeze(state, index, starting)?;
                    }
                }
                Wrote::Crowded => self.freeze(state, index, starting)?,
            }
        }
        Ok(())
    }

    /// Sends the full block at the end of a run on its way. Answers whether the run ends where the
    /// chunk does.
    fn seal(
        &self,
        active: &mut Active,
        layer: usize,
        run: u32,
        starting: &mut Vec<Arc<Upload>>,
    ) -> Result<bool, Short> {
        let blocks = &self.context.blocks;
        let Some(run) = active.extents.layers.get_mut(layer).and_then(|layer| layer.get_mut(&run)) else {
            return Ok(false);
        };
        let id = match run.slice {
            Some(id) => id,
            None => self.context.ids.take_one()?,
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

    /// Makes a batch of what a chunk gathered. Without ids nothing has changed.
    fn freeze(&self, state: &mut State, index: u32, starting: &mut Vec<Arc<Upload>>) -> Result<(), Short> {
        let Some(active) = state.active.get(&index) else { return Ok(()) };
        let ids = self.context.ids.take(ids_needed(&active.extents))?;
        let Some(active) = state.active.remove(&index) else { return Ok(()) };
        if active.extents.is_empty() {
            return Ok(());
        }
        let blocks = &self.context.blocks;
        let freezer = Freezer::new(blocks.layout, &blocks.budget, ids);
        state.frozen += 1;
        let (batch, mut fresh) = freezer.freeze(active.extents, state.frozen, index, active.mtime);
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
    ) -> Result<(), Short> {
        let chosen: Vec<u32> =
            state.active.iter().filter(|(_, active)| which(active)).map(|(index, _)| *index).collect();
        chosen.into_iter().try_for_each(|index| self.freeze(state, index, starting))
    }

    /// Freezes all there is. Answers the number of the last batch; that ids could not be had is
    /// kept for whoever asks next.
    fn freeze_all(self: &Arc<Self>, starting: &mut Vec<Arc<Upload>>) -> u64 {
        let WriteContext { ids, index, .. } = &*self.context;
        let mut state = self.state.lock();
        while let Err(Short(count)) = self.freeze_where(&mut state, |_| true, starting) {
            drop(state);
            self.start(std::mem::take(starting));
            let filled = ids.fill(count, index, &Interrupt::never());
            state = self.state.lock();
            if let Err(error) = filled {
                state.failures.add(error);
                break;
            }
        }
        state.frozen
    }

    /// Uploads and commits everything written so far, and waits for it.
    ///
    /// # Errors
    /// What went wrong with any data written since the last time an error was told to anybody. Who
    /// has the file open asks [`OpenWriter`].
    pub fn flush(self: &Arc<Self>) -> FsResult<()> {
        self.settle_all(&|| true)?;
        let mut state = self.state.lock();
        let reported = state.failures.tell_new();
        self.cleaned(&mut state);
        reported
    }

    /// As [`Self::flush`]; but whoever wrote is told of what failed all the same.
    pub fn flush_untold(self: &Arc<Self>) -> FsResult<()> {
        self.settle_all(&|| true)?;
        self.state.lock().failures.untold()
    }

    /// Uploads and commits everything written so far, and waits until that has ended, well or not.
    ///
    /// # Errors
    /// `EINTR` if it takes long and nobody waits for the answer any more, which `heard` says.
    fn settle_all(self: &Arc<Self>, heard: &dyn Fn() -> bool) -> FsResult<()> {
        let mut starting = Vec::new();
        let target = self.freeze_all(&mut starting);
        // The last block goes up on this thread: most files have one, and it would wait anyhow.
        let last = starting.pop();
        self.start(starting);
        let mut unheard = None;
        let mut gone = || !heard() && unheard.get_or_insert_with(Instant::now).elapsed() >= GRACE;
        if let Some(last) = last
            && !last.run(&self.context.blocks, &mut gone)
        {
            self.start(vec![last]);
        }
        self.settle(target, &mut gone)
    }

    /// [`Self::flush`], and makes sure that a power cut cannot take it back. `heard` says whether
    /// anybody still waits for the answer: if not, somebody else is told what failed.
    ///
    /// # Errors
    /// As there; `EINTR` if nobody waits for the answer any more before it is there. What was
    /// written is stored all the same.
    pub fn fsync(self: &Arc<Self>, heard: impl Fn() -> bool) -> FsResult<()> {
        self.settle_all(&heard)?;
        let mut state = self.state.lock();
        let heard = heard();
        let failed = if heard { state.failures.tell_new() } else { state.failures.untold() };
        self.cleaned(&mut state);
        drop(state);
        failed?;
        self.context.blocks.harden()?;
        self.context.blocks.tell_lost(self.context.blocks.lost().1, heard)
    }

    /// Waits until all that is on its way came to an end: from then on the metadata shows it, or it
    /// failed.
    pub(crate) fn settle_frozen(self: &Arc<Self>, interrupt: &Interrupt) -> FsResult<()> {
        let target = self.state.lock().frozen;
        self.settle(target, &mut || interrupt.is_set())
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

    /// Sends data on its way that is old or that nobody adds to.
    pub(crate) fn flush_old(self: &Arc<Self>, age: Duration, idle: Duration) {
        let Some(mut state) = self.state.try_lock() else { return };
        let mut starting = Vec::new();
        let old = |active: &Active| active.born.elapsed() >= age || active.touched.elapsed() >= idle;
        let frozen = self.freeze_where(&mut state, old, &mut starting);
        drop(state);
        self.start(starting);
        if let Err(short) = frozen {
            // Those left are frozen by one of the next looks.
            fill_later(&self.context, short);
        }
    }

    /// Bytes of memory that data takes which is not on its way.
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
    ///
    /// # Errors
    /// `EINTR` once `gone` says that nobody waits for it any more.
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
                self.changed.wait_for(&mut state, LOOK);
            }
        }
        state.waiters -= 1;
        if state.waiters == 0 {
            self.hand_over(&state);
        }
        result
    }
}

/// An upload that a task runs. However the task ends, the upload does, and whoever waits for it
/// goes on.
struct UnderWay(Arc<FileWriter>, Arc<Upload>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.1.abandon();
        self.0.stored();
    }
}

impl State {
    fn head_is_ready(&self) -> bool {
        self.pending.front().is_some_and(|batch| batch.outcome().is_some())
    }
}
