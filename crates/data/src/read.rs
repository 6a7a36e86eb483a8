//! The reader of one open file.
//!
//! What must stay true: what this client wrote shows at once, newest first: unflushed data, then the records of the
//! metadata. A block that a compaction took away is looked up again, not reported.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_object::ObjectError;
use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino, Slice};

use crate::{
    blocks::BlockStore,
    compact::Compactor,
    cover::{Cover, Piece},
    layout::{cut, visible},
    streams::Streams,
    write::Flusher,
};

/// Resolved chunks that a reader remembers.
const REMEMBERED: usize = 4;
/// How often a read is begun anew because compactions take its blocks away.
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
    pub(crate) readahead: u64,
}

/// Reads one open file and sees in which order it is read. Any number of threads may use it at once.
#[derive(Debug)]
pub struct FileReader {
    ino: Ino,
    context: Arc<ReadContext>,
    streams: Mutex<Streams>,
    resolved: Mutex<Vec<Resolved>>,
}

/// What a chunk's records show.
#[derive(Clone, Debug)]
struct Resolved {
    index: u32,
    records: Arc<[Slice]>,
    shown: Arc<[Slice]>,
}

impl FileReader {
    pub(crate) fn new(ino: Ino, context: Arc<ReadContext>) -> Self {
        Self { ino, context, streams: Mutex::default(), resolved: Mutex::default() }
    }

    /// Up to `len` bytes from `offset` on of a file that has `length` bytes, unflushed ones included. Blocks; the
    /// pieces, one after the other, are the answer, less than `len` bytes only at the end of the file.
    pub fn read(&self, offset: u64, len: u32, length: u64) -> FsResult<Vec<Bytes>> {
        let end = offset.saturating_add(u64::from(len)).min(length);
        let mut out = Vec::new();
        if offset >= end {
            return Ok(out);
        }
        let block = u64::from(self.context.blocks.layout.block_size);
        let ahead = self.streams.lock().observe(offset, end - offset, block, self.context.readahead);
        if let Some(ahead) = ahead {
            self.read_ahead(ahead.start..ahead.end.min(length), offset..end)?;
        }
        let mut at = offset;
        while at < end {
            let from = at % CHUNK_SIZE;
            let to = (from + (end - at)).min(CHUNK_SIZE);
            self.read_chunk((at / CHUNK_SIZE) as u32, from as u32, to as u32, &mut out)?;
            at += to - from;
        }
        Ok(out)
    }

    fn read_chunk(&self, index: u32, from: u32, to: u32, out: &mut Vec<Bytes>) -> FsResult<()> {
        let blocks = &self.context.blocks;
        let begin = out.len();
        let mut missing: Vec<String> = Vec::new();
        loop {
            let mut cover = self.cover(index, from, to)?;
            fetch_together(blocks, cover.pieces());
            let error =
                match cover.assemble(out, |part| blocks.read(part.block, part.from..part.from + part.len)) {
                    Ok(()) => return Ok(()),
                    Err(error) => error,
                };
            let ObjectError::NotFound { key, .. } = &error else { return Err(self.failed(&error)) };
            // A compaction may have replaced the slice, be it one whose commit this client has not yet taken note of.
            // Whoever still names the block after that has lost it.
            if missing.contains(key) || missing.len() == MAX_TRIES {
                return Err(self.failed(&error));
            }
            missing.push(key.clone());
            out.truncate(begin);
            if let Some(writer) = self.context.flusher.find(self.ino) {
                writer.settle_frozen();
            }
            self.context.index.slices(self.ino, index, true)?;
        }
    }

    fn failed(&self, error: &ObjectError) -> FsError {
        let advice = match error {
            ObjectError::NotFound { .. } | ObjectError::Corrupt { .. } => {
                "; put the object back from a backup of the bucket, or remove the file"
            }
            _ => "",
        };
        FsError::io(format_args!("inode {} cannot be read: {error}{advice}", self.ino))
    }

    /// Finds out where the bytes of a range are.
    fn cover(&self, index: u32, from: u32, to: u32) -> FsResult<Cover> {
        let mut cover = Cover::new(from, to);
        // First what is not committed: once it is gone from here, the records show it.
        if let Some(writer) = self.context.flusher.find(self.ino) {
            writer.show(index, &mut cover);
        }
        if let Some((from, to)) = cover.span() {
            let Resolved { shown, .. } = self.resolve(index)?;
            let first = shown.partition_point(|piece| piece.end() <= from);
            for piece in shown[first..].iter().take_while(|piece| piece.pos < to) {
                cover.fill(piece.pos, piece.end(), |from, to, found| {
                    found.extend(self.context.blocks.layout.parts(cut(*piece, from, to)).map(Piece::Block));
                });
            }
        }
        Ok(cover)
    }

    fn resolve(&self, index: u32) -> FsResult<Resolved> {
        let records = self.context.index.slices(self.ino, index, false)?;
        let mut remembered = self.resolved.lock();
        if let Some(known) = remembered.iter().find(|known| Arc::ptr_eq(&known.records, &records)) {
            return Ok(known.clone());
        }
        let count = records.len();
        let resolved = Resolved { index, shown: visible(&records).into(), records };
        remembered.retain(|known| known.index != index);
        remembered.truncate(REMEMBERED - 1);
        remembered.insert(0, resolved.clone());
        drop(remembered);
        self.context.compactor.after_read(self.ino, index, count);
        Ok(resolved)
    }

    /// Starts to fetch the blocks of `range`; those that the read of `now` fetches whole anyhow are left to it.
    fn read_ahead(&self, range: Range<u64>, now: Range<u64>) -> FsResult<()> {
        let mut at = range.start;
        while at < range.end {
            let index = (at / CHUNK_SIZE) as u32;
            let base = u64::from(index) * CHUNK_SIZE;
            let to = range.end.min(base + CHUNK_SIZE);
            let (from, end) = ((at - base) as u32, (to - base) as u32);
            let shown = self.resolve(index)?.shown;
            let first = shown.partition_point(|piece| piece.end() <= from);
            for piece in shown[first..].iter().take_while(|piece| piece.pos < end) {
                let wanted = cut(*piece, piece.pos.max(from), piece.end().min(end));
                for part in self.context.blocks.layout.parts(wanted) {
                    let begin = base + u64::from(part.pos);
                    let read_now = now.start < begin + u64::from(part.len) && begin < now.end;
                    let len_now =
                        now.end.min(begin + u64::from(part.len)).saturating_sub(now.start.max(begin));
                    if !read_now || len_now * u64::from(SMALL_SHARE) <= u64::from(part.block.size) {
                        self.context.blocks.prefetch(part.block);
                    }
                }
            }
            at = to;
        }
        Ok(())
    }
}

/// Several large parts that are far away come at the same time.
fn fetch_together(blocks: &Arc<BlockStore>, pieces: &[Piece]) {
    let parts = pieces.iter().filter_map(|piece| match piece {
        Piece::Block(part) if part.len > part.block.size / SMALL_SHARE => Some(part),
        _ => None,
    });
    for part in parts.skip(1) {
        blocks.prefetch(part.block);
    }
}
