//! A batch: frozen data of one chunk, cut into slices and blocks. The blocks are stored first. Then
//! the records are committed.
//!
//! What must stay true: the records are in the order of their commits, in which later ones hide
//! earlier ones. Every byte stays readable until the metadata contains it.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use rustc_hash::FxHashMap;
use sluice_object::Buffer;
use sluice_types::{FsError, FsResult, Slice, Time};

use super::{
    extents::{Extents, Run, overlapping},
    upload::Upload,
};
use crate::{
    assembly::{Assembly, Piece},
    budget::Budget,
    error::not_stored,
    layout::{Layout, cut, visible},
};

/// Most records of one slice, and of one commit.
pub(super) const MAX_RECORDS: usize = 1000;

#[derive(Debug)]
pub(super) struct Batch {
    /// Position in the file's order of commits.
    pub(super) seq: u64,
    pub(super) index: u32,
    pub(super) mtime: Time,
    /// The records to commit, one call for each list.
    pub(super) commits: Vec<Vec<Slice>>,
    /// The content for readers.
    shown: Vec<Slice>,
    /// Blocks by slice, in order.
    uploads: FxHashMap<u64, Vec<Arc<Upload>>>,
    /// Why its data will not be stored, whatever happens to the blocks that are under way.
    refused: Option<FsError>,
}

/// Makes slices out of extents.
pub(super) struct Freezer<'a> {
    pub(super) layout: Layout,
    pub(super) budget: &'a Arc<Budget>,
    pub(super) ids: Vec<u64>,
    uploads: FxHashMap<u64, Vec<Arc<Upload>>>,
    commits: Vec<Vec<Slice>>,
    fresh: Vec<Arc<Upload>>,
}

/// How many slice ids [`Freezer::freeze`] will use at most.
pub(super) fn ids_needed(extents: &Extents) -> usize {
    let loose = |run: &&Run| run.slice.is_none();
    extents.layers.iter().map(|layer| layer.values().filter(loose).count().div_ceil(MAX_RECORDS)).sum()
}

impl<'a> Freezer<'a> {
    pub(super) fn new(layout: Layout, budget: &'a Arc<Budget>, ids: Vec<u64>) -> Self {
        Self { layout, budget, ids, uploads: FxHashMap::default(), commits: Vec::new(), fresh: Vec::new() }
    }

    /// Makes a batch. Begins the uploads of blocks that are not being uploaded yet.
    pub(super) fn freeze(
        mut self,
        extents: Extents,
        seq: u64,
        index: u32,
        mtime: Time,
    ) -> (Batch, Vec<Arc<Upload>>) {
        for layer in extents.layers {
            let (streams, loose): (Vec<Run>, Vec<Run>) =
                layer.into_values().partition(|run| run.slice.is_some());
            for run in streams {
                self.stream(run);
            }
            let mut loose = loose.into_iter().peekable();
            while loose.peek().is_some() {
                self.pack(loose.by_ref().take(MAX_RECORDS).collect());
            }
        }
        let all: Vec<Slice> = self.commits.concat();
        let batch = Batch {
            seq,
            index,
            mtime,
            shown: visible(&all),
            commits: self.commits,
            uploads: self.uploads,
            refused: None,
        };
        (batch, self.fresh)
    }

    /// A run whose first blocks are being uploaded becomes a slice of its own.
    fn stream(&mut self, mut run: Run) {
        let Some(id) = run.slice else { return };
        let size = run.end() - run.pos;
        self.uploads.insert(id, std::mem::take(&mut run.uploading));
        if !run.tail.is_empty() {
            self.upload(id, size, std::mem::take(&mut run.tail));
        }
        self.record(&[Slice::whole(run.pos, id, size)]);
    }

    /// Short runs share one slice, in the order of their offsets. Adjacent runs share a record.
    fn pack(&mut self, runs: Vec<Run>) {
        let Some(id) = self.ids.pop() else { return };
        let size: u32 = runs.iter().map(|run| run.tail.len() as u32).sum();
        let mut records: Vec<Slice> = Vec::with_capacity(runs.len());
        let mut block = Buffer::default();
        let (mut off, alone) = (0, runs.len() == 1);
        for mut run in runs {
            let len = run.tail.len() as u32;
            match records.last_mut() {
                Some(last) if last.end() == run.pos => last.len += len,
                _ => records.push(Slice { pos: run.pos, id, size, off, len }),
            }
            if alone {
                block = std::mem::take(&mut run.tail);
                break;
            }
            let mut rest = &run.tail[..];
            while !rest.is_empty() {
                if block.is_empty() {
                    block = Buffer::with_room((size - off).min(self.layout.block_size) as usize);
                }
                let step = rest.len().min(self.layout.block_size as usize - block.len());
                block.append(&rest[..step]);
                rest = &rest[step..];
                off += step as u32;
                if block.len() == self.layout.block_size as usize {
                    self.upload(id, size, std::mem::take(&mut block));
                }
            }
        }
        if !block.is_empty() {
            self.upload(id, size, block);
        }
        self.record(&records);
    }

    fn upload(&mut self, id: u64, size: u32, data: Buffer) {
        let blocks = self.uploads.entry(id).or_default();
        let key = self.layout.block(id, size, blocks.len() as u32);
        // A buffer with much spare capacity takes more memory than a cache counts for the block.
        let roomy = data.memory() - data.len() > data.len() / 4;
        let data = if roomy {
            let mut exact = Buffer::with_room(data.len());
            exact.append(&data);
            exact
        } else {
            data
        };
        let data = Bytes::from(data);
        let charge = self.budget.charge(data.len() as u64);
        let upload = Upload::new(key, data, charge);
        blocks.push(Arc::clone(&upload));
        self.fresh.push(upload);
    }

    fn record(&mut self, records: &[Slice]) {
        match self.commits.last_mut() {
            Some(last) if last.len() + records.len() <= MAX_RECORDS => last.extend_from_slice(records),
            _ => self.commits.push(records.to_vec()),
        }
    }
}

impl Batch {
    /// The batch of data that cannot be stored. It ends when the last upload under way ends, so
    /// that the blocks can be deleted.
    pub(super) fn refused(extents: Extents, seq: u64, index: u32, mtime: Time, error: FsError) -> Self {
        let runs = extents.layers.into_iter().flat_map(BTreeMap::into_values);
        let uploads = runs.filter_map(|run| Some((run.slice?, run.uploading))).collect();
        Self { seq, index, mtime, commits: Vec::new(), shown: Vec::new(), uploads, refused: Some(error) }
    }

    /// `None` while blocks are being uploaded; then whether all of them are stored.
    pub(super) fn outcome(&self) -> Option<FsResult<()>> {
        let mut result = Ok(());
        for upload in self.uploads.values().flatten() {
            if let Err(error) = upload.outcome()? {
                result = Err(not_stored(&error));
            }
        }
        Some(self.refused.clone().map_or(result, Err))
    }

    /// The slices, with their sizes.
    pub(super) fn slices(&self) -> impl Iterator<Item = (u64, u32)> {
        self.uploads.iter().map(|(id, blocks)| (*id, blocks.iter().map(|upload| upload.key.size).sum()))
    }

    /// The end of its data.
    pub(super) fn end(&self) -> u32 {
        self.shown.last().map_or(0, Slice::end)
    }

    /// Fills `assembly` with its data.
    pub(super) fn show(&self, layout: Layout, assembly: &mut Assembly) {
        let Some((from, to)) = assembly.span() else { return };
        let first = self.shown.partition_point(|piece| piece.end() <= from);
        for piece in self.shown[first..].iter().take_while(|piece| piece.pos < to) {
            assembly.fill(piece.pos, piece.end(), |from, to, found| {
                for part in layout.parts(cut(*piece, from, to)) {
                    let blocks = self.uploads.get(&piece.id);
                    let data = blocks.and_then(|blocks| blocks.get(part.block.index as usize)?.data());
                    found.push(match data {
                        Some(data) => Piece::Here(
                            part.pos,
                            data.slice(part.from as usize..(part.from + part.len) as usize),
                        ),
                        None => Piece::Block(part),
                    });
                }
            });
        }
    }
}

/// Fills `assembly` with data that is not frozen yet.
pub(super) fn show_extents(extents: &Extents, layout: Layout, assembly: &mut Assembly) {
    for layer in extents.layers.iter().rev() {
        let Some((from, to)) = assembly.span() else { return };
        for run in overlapping(layer, from, to) {
            assembly.fill(run.tail_pos(), run.end(), |from, to, found| {
                let start = run.tail_pos();
                let bytes = &run.tail[(from - start) as usize..(to - start) as usize];
                found.push(Piece::Here(from, Bytes::copy_from_slice(bytes)));
            });
            let Some(id) = run.slice else { continue };
            let head = Slice::whole(run.pos, id, run.tail_pos() - run.pos);
            assembly.fill(head.pos, head.end(), |from, to, found| {
                for part in layout.parts(cut(head, from, to)) {
                    found.push(match run.uploading[part.block.index as usize].data() {
                        Some(data) => Piece::Here(
                            part.pos,
                            data.slice(part.from as usize..(part.from + part.len) as usize),
                        ),
                        None => Piece::Block(part),
                    });
                }
            });
        }
    }
}
