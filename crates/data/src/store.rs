//! The data path of one mounted volume.
//!
//! What must stay true: its methods block and are called from plain threads. Only the calls of the
//! object store are asynchronous, and no caller of this crate sees that.

use std::{
    fs::File,
    ops::Range,
    path::Path,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use sluice_object::{ObjectError, ObjectStore};
use sluice_types::{FsResult, Ino, Interrupt};
use tokio::runtime::{Builder, Handle, Runtime};
use tokio_util::task::TaskTracker;

use crate::{
    IndexRef,
    block_on::block_on,
    blocks::BlockStore,
    cache::{BlockFile, Cached, DiskCache, Served, file::each_block},
    compact::Compactor,
    config::DataConfig,
    error::{DataError, WarmError},
    index::ChunkIndex,
    layout::{BlockKey, Layout},
    peers::OwnerAction,
    pool::Pool,
    read::{FileReader, ReadContext},
    read_ahead_windows::ReadAheadWindows,
    staging::Staging,
    stats::Stats,
    write::{FileWriter, Flusher, OpenWriter, SliceIds, WriteContext},
};

/// Where a block is that another client has.
const GROUP: &str = "cache group";
/// Fewest threads of the runtime that talks to the object store. If there are more processors, each
/// has one, because they also encrypt connections and compress blocks.
const RUNTIME_THREADS: usize = 2;
/// Threads for background commits.
const COMMIT_THREADS: usize = 8;
/// Threads that look up chunks for read-ahead.
const AHEAD_THREADS: usize = 2;
/// Threads that compact.
const COMPACT_THREADS: usize = 2;

/// The data of one mounted volume. Dropping it stops the background work; what was not flushed is
/// lost.
#[derive(Debug)]
pub struct DataStore {
    blocks: Arc<BlockStore>,
    write: Arc<WriteContext>,
    read: Arc<ReadContext>,
    disk: Option<Arc<DiskCache>>,
    pools: [Pool; 3],
    runtime: Option<Runtime>,
}

impl DataStore {
    /// Whether an earlier mount may have left staged blocks in the cache directories of `config`.
    pub fn has_staged(config: &DataConfig) -> bool {
        config.staging_dirs().iter().any(|dir| {
            let mut found = false;
            each_block(dir, |_, _| found = true);
            found
        })
    }

    /// Opens the data path over `store`, with the records in `index`. Object I/O runs on `runtime`,
    /// or on a runtime of its own. Staged blocks of an earlier process are uploaded in the
    /// background.
    pub fn open(
        config: &DataConfig,
        store: Arc<dyn ObjectStore>,
        index: Arc<dyn ChunkIndex>,
        runtime: Option<Handle>,
    ) -> Result<Self, DataError> {
        config.check()?;
        let span = tracing::Span::current();
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let own = match &runtime {
            Some(_) => None,
            None => Some(
                Builder::new_multi_thread()
                    .worker_threads(processors.max(RUNTIME_THREADS))
                    .thread_name("sluice-object")
                    // As long as the thread lives, what it logs is logged for the caller.
                    .on_thread_start(move || std::mem::forget(span.clone().entered()))
                    .enable_all()
                    .build()
                    .map_err(DataError::Threads)?,
            ),
        };
        let Some(handle) = runtime.or_else(|| own.as_ref().map(|own| own.handle().clone())) else {
            return Err(DataError::Threads(std::io::ErrorKind::Unsupported.into()));
        };
        let stats = Arc::new(Stats::default());
        let layout = Layout { block_size: config.block_size, hash_prefix: config.hash_prefix };
        let disk = DiskCache::open(config, layout, Arc::clone(&stats))?;
        let staging = Staging::open(config, layout, disk.clone(), Arc::clone(&stats))?;
        let blocks = Arc::new(BlockStore::new(config, store, handle, stats, disk.clone(), staging));
        if let Some(staging) = blocks.staging() {
            staging.start(&blocks);
        }
        let index = IndexRef(index);
        let commits = Pool::new("sluice-commit", COMMIT_THREADS);
        let compactions = Pool::new("sluice-compact", COMPACT_THREADS);
        let aheads = Pool::new("sluice-ahead", AHEAD_THREADS);
        let compactor =
            Compactor::new(Arc::clone(&blocks), index.clone(), compactions.clone(), config.auto_compact);
        let flusher = Flusher::new(config.flush_age, config.flush_idle);
        let write = Arc::new(WriteContext {
            blocks: Arc::clone(&blocks),
            index: index.clone(),
            ids: SliceIds::default(),
            pool: commits.clone(),
            compactor: Arc::clone(&compactor),
            discards: TaskTracker::new(),
            pressure: flusher.pressure(),
        });
        flusher.start(&blocks, config.timetable.as_ref()).map_err(DataError::Threads)?;
        let readahead = config.readahead();
        let read = Arc::new(ReadContext {
            blocks: Arc::clone(&blocks),
            index,
            flusher,
            compactor,
            pool: aheads.clone(),
            readahead,
            windows: ReadAheadWindows::default(),
        });
        Ok(Self { blocks, write, read, disk, pools: [commits, aheads, compactions], runtime: own })
    }

    /// A reader for a file that is being opened.
    pub fn reader(&self, ino: Ino) -> FileReader {
        FileReader::new(ino, Arc::clone(&self.read))
    }

    /// The writer of `ino`, shared by all its handles. Keep it for as long as a handle is open for
    /// writing.
    pub fn writer(&self, ino: Ino) -> Arc<FileWriter> {
        self.read.flusher.writer(ino, &self.write)
    }

    /// The writer of `ino` for one open for writing.
    pub fn open_writer(&self, ino: Ino) -> OpenWriter {
        OpenWriter::new(self.writer(ino))
    }

    /// The writer of `ino`, if the file is open for writing or has something to flush.
    pub fn find_writer(&self, ino: Ino) -> Option<Arc<FileWriter>> {
        self.read.flusher.find(ino)
    }

    /// The end of the data of `ino` that the metadata does not contain yet. For this client, the
    /// file is at least this long.
    pub fn dirty_end(&self, ino: Ino) -> u64 {
        self.find_writer(ino).map_or(0, |writer| writer.dirty_end())
    }

    /// Flushes `ino` if there is anything to flush.
    pub fn flush(&self, ino: Ino) -> FsResult<()> {
        self.flush_for(ino, &Interrupt::never())
    }

    /// [`Self::flush`], as long as a caller waits for it. See [`FileWriter::flush_for`].
    pub fn flush_for(&self, ino: Ino, interrupt: &Interrupt) -> FsResult<()> {
        self.find_writer(ino).map_or(Ok(()), |writer| writer.flush_for(interrupt))
    }

    /// Flushes `ino` for another caller than the writer. A failure is still reported to the writer
    /// later.
    pub fn flush_without_reporting(&self, ino: Ino) -> FsResult<()> {
        self.find_writer(ino).map_or(Ok(()), |writer| writer.flush_without_reporting())
    }

    /// Makes flushed data of all files survive a power cut.
    pub fn harden(&self) -> FsResult<()> {
        self.blocks.harden()?;
        self.blocks.tell_lost(self.blocks.lost().1, true)
    }

    /// Flushes every file, also after an error. Returns the first error.
    pub fn flush_all(&self) -> FsResult<()> {
        self.read.flusher.flush_all()
    }

    /// Waits until all staged blocks are uploaded, at most `timeout`. Returns how many are left.
    pub fn flush_staging(&self, timeout: Duration) -> u64 {
        self.blocks.staging().map_or(0, |staging| staging.drain(timeout))
    }

    /// Ends background work that would leave objects behind which no record names, if the process
    /// ended meanwhile: compactions and deletions of refused writes. Waits at most `timeout`.
    /// Returns whether all of it ended. No write may follow.
    pub fn settle(&self, timeout: Duration) -> bool {
        let until = Instant::now() + timeout;
        let compacted = self.write.compactor.end(timeout);
        let discards = &self.write.discards;
        discards.close();
        let left = until.saturating_duration_since(Instant::now());
        let discarded = async { tokio::time::timeout(left, discards.wait()).await.is_ok() };
        block_on(self.blocks.runtime(), discarded) && compacted
    }

    /// Deletes all blocks of a slice that no record refers to any more.
    pub fn delete_slice(&self, id: u64, size: u32) -> Result<(), ObjectError> {
        block_on(self.blocks.runtime(), self.blocks.delete_slice(id, size))
    }

    /// Deletes all blocks of slices (id, size) that no record refers to any more, in parallel.
    /// Returns the results in their order.
    pub fn delete_slices(&self, slices: &[(u64, u32)]) -> Vec<Result<(), ObjectError>> {
        let runtime = self.blocks.runtime();
        let delete = |&(id, size): &(u64, u32)| {
            let blocks = Arc::clone(&self.blocks);
            runtime.spawn(async move { blocks.delete_slice(id, size).await })
        };
        let tasks: Vec<_> = slices.iter().map(delete).collect();
        block_on(runtime, async {
            let mut deleted = Vec::with_capacity(tasks.len());
            for task in tasks {
                deleted.push(task.await.unwrap_or_else(|error| {
                    Err(ObjectError::Unavailable {
                        action: "delete",
                        key: "(blocks of a slice)".into(),
                        store: "this client".into(),
                        reason: error.to_string(),
                    })
                }));
            }
            deleted
        })
    }

    /// Compacts one chunk to which no more records could be added.
    pub fn make_room(&self, ino: Ino, index: u32) -> FsResult<()> {
        self.write.compactor.make_room(ino, index)
    }

    /// Compacts one chunk. Returns whether its records changed.
    pub fn compact(&self, ino: Ino, index: u32) -> FsResult<bool> {
        self.write.compactor.compact(ino, index)
    }

    /// Fetches `block` into the local cache files or, if there are no cache directories, into
    /// memory, unless it is there. Returns whether there was room for it. All calls together hold
    /// at most half the buffer.
    ///
    /// # Errors
    /// The store's, and [`WarmError::Unavailable`] if `interrupt` was set meanwhile.
    pub fn warm(&self, block: BlockKey, interrupt: &Interrupt) -> Result<bool, WarmError> {
        Ok(self.blocks.warm(block, interrupt)?)
    }

    /// As [`Self::warm`], into the cache of this client, whoever owns the block.
    ///
    /// # Errors
    /// As [`Self::warm`].
    pub fn warm_here(&self, block: BlockKey, interrupt: &Interrupt) -> Result<bool, WarmError> {
        Ok(self.blocks.warm_here(block, interrupt)?)
    }

    /// Drops the blocks of cache directories that somebody removed. Until this call, they seem to
    /// be cached.
    pub fn notice_removal(&self) {
        self.blocks.notice_removal();
    }

    /// Where `block` is cached: the directory of its local file, or `memory` if there are no cache
    /// directories. A block that waits for its upload counts.
    pub fn location(&self, block: BlockKey) -> Option<&Path> {
        self.blocks.location(block)
    }

    /// Bytes `range` of `block` if they are cached here: copied to a place in the buffer `out`,
    /// which grows if it is too short, or shared. Appends to `sums` the CRC-32C of each of their
    /// [`pages`](crate::pages). Whoever gets them has to check these. Reads a local file at most,
    /// and waits for its disk only with `wait`. Appends nothing if they are not [`Cached::Here`];
    /// the bytes at that place may then have changed.
    pub fn serve(
        &self,
        block: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served> {
        self.blocks.serve(block, range, out, sums, wait)
    }

    /// As [`Self::serve`] without a copy and without a wait, for ranges of whole pages that are in
    /// a local file.
    pub fn cached_file(&self, block: BlockKey, range: &Range<u32>) -> Cached<CachedFile> {
        match self.blocks.file(block, range) {
            Cached::Here(file) => Cached::Here(CachedFile { file, range: range.clone() }),
            Cached::Cold => Cached::Cold,
            Cached::Missing => Cached::Missing,
        }
    }

    /// All of `block`, for another client: from the caches, or else from the object store, which is
    /// read once for all that ask. It stays in the caches.
    ///
    /// # Errors
    /// Those of the object store.
    pub async fn read_for_peer(&self, block: BlockKey) -> Result<Bytes, WarmError> {
        Ok(self.blocks.read_for_peer(block).await?)
    }

    /// Keeps `block`, which another client uploaded.
    pub fn accept(&self, block: BlockKey, whole: &Bytes) {
        self.blocks.accept(block, whole);
    }

    /// As [`Self::location`]. If another client owns `block`, `cache group` if that client has it,
    /// unless it waits for its upload here.
    pub fn find(&self, block: BlockKey, interrupt: &Interrupt) -> Option<&Path> {
        if let Some(staged) = self.blocks.staged(block) {
            return Some(staged);
        }
        match self.blocks.at_owner(block, OwnerAction::Find, interrupt) {
            Some(found) => found.then_some(Path::new(GROUP)),
            None => self.location(block),
        }
    }

    /// The machine whose client owns `block` in the cache group, by its name or address; `None`
    /// without a group.
    pub fn owner_host(&self, block: BlockKey) -> Option<String> {
        self.blocks.owner_host(block)
    }

    /// Drops `block` from the caches, unless it waits for its upload.
    pub fn evict(&self, block: BlockKey) {
        self.blocks.forget(block);
    }

    /// As [`Self::evict`], also from the cache of the client that owns `block`.
    pub fn evict_everywhere(&self, block: BlockKey, interrupt: &Interrupt) {
        self.evict(block);
        self.blocks.at_owner(block, OwnerAction::Evict, interrupt);
    }

    /// The counters since the volume was opened.
    pub fn stats(&self) -> &Stats {
        &self.blocks.stats
    }

    /// Bytes of memory in use by unflushed data and blocks in flight: now, and at most ever.
    pub fn buffered(&self) -> (u64, u64) {
        (self.blocks.budget.used(), self.blocks.budget.peak())
    }

    /// How a slice is cut into blocks and how these are named.
    pub fn layout(&self) -> Layout {
        self.blocks.layout
    }
}

/// A range of a block in a local file.
#[derive(Clone, Debug)]
pub struct CachedFile {
    file: Arc<BlockFile>,
    range: Range<u32>,
}

impl CachedFile {
    /// The file. The bytes of the block begin at its beginning.
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// The CRC-32C of each of the [`pages`](crate::pages).
    pub fn sums(&self) -> &[u32] {
        self.file.sums(&self.range).unwrap_or_default()
    }
}

impl Drop for DataStore {
    fn drop(&mut self) {
        self.read.flusher.stop();
        for pool in &self.pools {
            pool.close();
        }
        if let Some(staging) = self.blocks.staging() {
            staging.stop();
        }
        if let Some(disk) = &self.disk {
            disk.stop();
        }
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
