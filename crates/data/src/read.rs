//! The reader of one open file.
//!
//! What must stay true: a read sees what this client wrote at once: unflushed data first, then the
//! records of the metadata. If a compaction deleted a block, the read looks up the records again
//! instead of failing. Read-ahead never delays a read, and never makes it fail.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_object::ObjectError;
use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino, Interrupt, Slice};

use crate::{
    assembly::{Assembly, Piece},
    blocks::BlockStore,
    compact::Compactor,
    layout::{Part, cut, visible},
    pool::Pool,
    read_ahead_windows::ReadAheadWindows,
    streams::Streams,
    write::Flusher,
};

/// Most resolved chunks that a reader keeps.
const MAX_RESOLVED: usize = 4;
/// How often a read is repeated because compactions delete its blocks.
const MAX_TRIES: usize = 32;
/// A read of less than a block's size divided by this does not fetch the whole block by itself.
const SMALL_SHARE: u32 = 4;

/// What all readers of a volume share.
#[derive(Debug)]
pub(crate) struct ReadContext {
    pub(crate) blocks: Arc<BlockStore>,
    pub(crate) index: crate::IndexRef,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) compactor: Arc<Compactor>,
    /// The threads that look up chunks for read-ahead.
    pub(crate) pool: Pool,
    pub(crate) readahead: u64,
    pub(crate) windows: ReadAheadWindows,
}

/// Reads one open file, and detects sequential reads. Any number of threads may use it at once.
#[derive(Debug)]
pub struct FileReader {
    ino: Ino,
    /// Its number in [`ReadAheadWindows`].
    number: u64,
    context: Arc<ReadContext>,
    streams: Mutex<Streams>,
    resolved: Mutex<Vec<Resolved>>,
    /// Whether a thread of the pool looks up chunks for it.
    looking: Arc<AtomicBool>,
}

/// The resolved content of a chunk.
#[derive(Clone, Debug)]
struct Resolved {
    index: u32,
    records: Arc<[Slice]>,
    shown: Arc<[Slice]>,
}

impl FileReader {
    pub(crate) fn new(ino: Ino, context: Arc<ReadContext>) -> Self {
        Self {
            ino,
            number: context.windows.enter(),
            context,
            streams: Mutex::default(),
            resolved: Mutex::default(),
            looking: Arc::default(),
        }
    }

    /// Reads up to `len` bytes from `offset` of a file that has `length` bytes, unflushed ones
    /// included. Blocks. The result is a list of consecutive pieces. It is shorter than `len` only
    /// at the end of the file.
    ///
    /// # Errors
    /// `EINTR` soon after `interrupt` is set, if the bytes are not read by then.
    pub fn read(&self, offset: u64, len: u32, length: u64, interrupt: &Interrupt) -> FsResult<Vec<Bytes>> {
        let end = offset.saturating_add(u64::from(len)).min(length);
        let mut out = Vec::new();
        if offset >= end {
            return Ok(out);
        }
        let ahead = self.observe(offset, end - offset);
        let mut ahead = ahead.map(|ahead| ahead.start..ahead.end.min(length));
        let mut at = offset;
        while at < end {
            let from = at % CHUNK_SIZE;
            let to = (from + (end - at)).min(CHUNK_SIZE);
            let index = (at / CHUNK_SIZE) as u32;
            at += to - from;
            let found = || {
                // Only now, because the chunk that it mostly needs is in the cache by now.
                if let Some(ahead) = ahead.take_if(|_| at >= end) {
                    self.read_ahead(ahead, offset..end);
                }
            };
            self.read_chunk((index, from as u32, to as u32), &mut out, interrupt, found)?;
        }
        Ok(out)
    }

    /// Records a read. Returns the range to fetch for it and ahead of it.
    fn observe(&self, offset: u64, len: u64) -> Option<Range<u64>> {
        let ReadContext { blocks, windows, readahead, .. } = &*self.context;
        let block = u64::from(blocks.layout.block_size);
        let most = windows.size(blocks.memory_capacity(), block, *readahead);
        let mut streams = self.streams.lock();
        let ahead = streams.observe(offset, len, block, most)?;
        windows.note(self.number, streams.running());
        Some(ahead)
    }

    /// Appends bytes of a chunk to `out`. Calls `found` each time it knows where they are, before
    /// it fetches them.
    fn read_chunk(
        &self,
        (index, from, to): (u32, u32, u32),
        out: &mut Vec<Bytes>,
        interrupt: &Interrupt,
        mut found: impl FnMut(),
    ) -> FsResult<()> {
        let blocks = &self.context.blocks;
        let begin = out.len();
        let mut missing: Vec<String> = Vec::new();
        loop {
            let mut assembly = self.assembly(index, from, to, interrupt)?;
            found();
            fetch_together(blocks, assembly.pieces());
            let read = |part: Part| blocks.read(part.block, part.from..part.from + part.len, interrupt);
            let Err(error) = assembly.assemble(out, read) else { return Ok(()) };
            if interrupt.is_set() {
                return Err(FsError::Interrupted);
            }
            let ObjectError::NotFound { key, .. } = &error else { return Err(self.failed(&error)) };
            // A compaction may have replaced the slice, perhaps one whose commit this client has
            // not seen yet. If fresh records still name the block, it is lost.
            if missing.contains(key) || missing.len() == MAX_TRIES {
                return Err(self.failed(&error));
            }
            missing.push(key.clone());
            out.truncate(begin);
            if let Some(writer) = self.context.flusher.find(self.ino) {
                writer.settle_frozen(interrupt)?;
            }
            self.context.index.slices(self.ino, index, true, interrupt)?;
        }
    }

    fn failed(&self, error: &ObjectError) -> FsError {
        let advice = match error {
            ObjectError::NotFound { .. } => {
                "; a client with --writeback may still have it in its cache directory: mount there again. Otherwise put \
                 the object back from a backup of the bucket, or remove the file"
            }
            ObjectError::Corrupt { .. } => {
                "; put the object back from a backup of the bucket, or remove the file"
            }
            _ => "",
        };
        FsError::io(format_args!("inode {} cannot be read: {error}{advice}", self.ino))
    }

    /// Finds the sources of the bytes of a range.
    fn assembly(&self, index: u32, from: u32, to: u32, interrupt: &Interrupt) -> FsResult<Assembly> {
        let mut assembly = Assembly::new(from, to);
        // Uncommitted data first: once it is gone from the writer, the records contain it.
        if let Some(writer) = self.context.flusher.find(self.ino) {
            writer.show(index, &mut assembly);
        }
        if let Some((from, to)) = assembly.span() {
            let records = self.context.index.slices(self.ino, index, false, interrupt)?;
            let shown = self.resolve(index, records);
            let first = shown.partition_point(|piece| piece.end() <= from);
            for piece in shown[first..].iter().take_while(|piece| piece.pos < to) {
                assembly.fill(piece.pos, piece.end(), |from, to, found| {
                    found.extend(self.context.blocks.layout.parts(cut(*piece, from, to)).map(Piece::Block));
                });
            }
        }
        Ok(assembly)
    }

    /// Resolves the records of a chunk.
    fn resolve(&self, index: u32, records: Arc<[Slice]>) -> Arc<[Slice]> {
        let mut remembered = self.resolved.lock();
        if let Some(known) = remembered.iter().find(|known| Arc::ptr_eq(&known.records, &records)) {
            return Arc::clone(&known.shown);
        }
        let count = records.len();
        let shown: Arc<[Slice]> = visible(&records).into();
        remembered.retain(|known| known.index != index);
        remembered.truncate(MAX_RESOLVED - 1);
        remembered.insert(0, Resolved { index, shown: Arc::clone(&shown), records });
        drop(remembered);
        self.context.compactor.after_read(self.ino, index, count);
        shown
    }

    /// Starts to fetch the blocks of `range`, except those that the read of `now` fetches as a
    /// whole anyway. Another thread looks up chunks that are not cached.
    fn read_ahead(&self, range: Range<u64>, now: Range<u64>) {
        let mut at = range.start;
        while at < range.end {
            let index = (at / CHUNK_SIZE) as u32;
            let Some(records) = self.context.index.known_slices(self.ino, index) else {
                self.look_ahead(at..range.end, now);
                return;
            };
            let to = range.end.min((u64::from(index) + 1) * CHUNK_SIZE);
            fetch_ahead(&self.context.blocks, &self.resolve(index, records), index, at..to, &now);
            at = to;
        }
    }

    /// As [`Self::read_ahead`], for chunks that have to be looked up; one lookup at a time.
    fn look_ahead(&self, range: Range<u64>, now: Range<u64>) {
        if self.looking.swap(true, Ordering::AcqRel) {
            return;
        }
        let (ino, context) = (self.ino, Arc::clone(&self.context));
        let looking = Looking(Arc::clone(&self.looking));
        self.context.pool.run(move || {
            let _looking = looking;
            let mut at = range.start;
            while at < range.end {
                let index = (at / CHUNK_SIZE) as u32;
                let to = range.end.min((u64::from(index) + 1) * CHUNK_SIZE);
                match context.index.slices(ino, index, false, &Interrupt::never()) {
                    Ok(records) => fetch_ahead(&context.blocks, &visible(&records), index, at..to, &now),
                    // A read of that range will report the error.
                    Err(error) => {
                        tracing::debug!(%ino, chunk = index, %error, "a chunk cannot be read ahead");
                        return;
                    }
                }
                at = to;
            }
        });
    }
}

impl Drop for FileReader {
    fn drop(&mut self) {
        self.context.windows.leave(self.number);
    }
}

/// Marks that a thread looks up chunks ahead of a reader, until this is dropped.
struct Looking(Arc<AtomicBool>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Starts to fetch the blocks of `range`, which lies in chunk `index`, except those that a read of
/// `now` fetches anyway.
fn fetch_ahead(blocks: &Arc<BlockStore>, shown: &[Slice], index: u32, range: Range<u64>, now: &Range<u64>) {
    let base = u64::from(index) * CHUNK_SIZE;
    let (from, end) = ((range.start - base) as u32, (range.end - base) as u32);
    let first = shown.partition_point(|piece| piece.end() <= from);
    for piece in shown[first..].iter().take_while(|piece| piece.pos < end) {
        let wanted = cut(*piece, piece.pos.max(from), piece.end().min(end));
        for part in blocks.layout.parts(wanted) {
            let begin = base + u64::from(part.pos);
            let read_now = now.start < begin + u64::from(part.len) && begin < now.end;
            let len_now = now.end.min(begin + u64::from(part.len)).saturating_sub(now.start.max(begin));
            if !read_now || len_now * u64::from(SMALL_SHARE) <= u64::from(part.block.size) {
                blocks.prefetch(part.block);
            }
        }
    }
}

/// Fetches several large parts at the same time, if they are not cached.
fn fetch_together(blocks: &Arc<BlockStore>, pieces: &[Piece]) {
    let parts = pieces.iter().filter_map(|piece| match piece {
        Piece::Block(part) if part.len > part.block.size / SMALL_SHARE => Some(part),
        _ => None,
    });
    for part in parts.skip(1) {
        blocks.prefetch(part.block);
    }
}
