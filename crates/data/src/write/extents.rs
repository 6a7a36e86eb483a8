//! Unflushed data of one chunk: layers of runs. The runs of one layer do not overlap.
//!
//! What must stay true: blocks of a run that are being uploaded never change. Data that overwrites
//! them goes to a higher layer.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use sluice_object::Buffer;

use super::upload::Upload;
use crate::budget::{Budget, Charge};

/// Most layers of a chunk. A write that needs one more flushes first.
const MAX_LAYERS: usize = 3;
/// Memory of a run besides its bytes.
const RUN_OVERHEAD: u64 = 160;
/// Runs that grow to this size get a buffer for a full block, because they probably continue.
const SEQUENTIAL: usize = 128 << 10;

/// Consecutive bytes: full blocks that are being uploaded, and the rest in a buffer.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) pos: u32,
    /// Id of the slice that these blocks belong to.
    pub(super) slice: Option<u64>,
    /// Its first blocks: they are full, and are being uploaded.
    pub(super) uploading: Vec<Arc<Upload>>,
    pub(super) tail: Buffer,
    pub(super) charge: Charge,
    block_size: u32,
}

impl Run {
    pub(super) fn tail_pos(&self) -> u32 {
        self.pos + self.uploading.len() as u32 * self.block_size
    }

    pub(super) fn end(&self) -> u32 {
        self.tail_pos() + self.tail.len() as u32
    }

    fn append(&mut self, data: &[u8]) {
        let needed = self.tail.len() + data.len();
        if needed > self.tail.room() {
            let full = self.block_size as usize;
            let capacity = match () {
                () if !self.uploading.is_empty() => full,
                () if self.tail.is_empty() => needed,
                () if needed >= SEQUENTIAL => full,
                () => (needed * 2).min(full),
            };
            self.tail.make_room(capacity);
        }
        self.tail.append(data);
        self.recount();
    }

    fn recount(&mut self) {
        self.charge.resize(self.tail.memory() as u64 + RUN_OVERHEAD);
    }

    /// Takes the full block at the end of the run, and its share of the charge.
    pub(super) fn take_block(&mut self, budget: &Arc<Budget>) -> (Bytes, Charge) {
        let block = Bytes::from(std::mem::take(&mut self.tail));
        self.recount();
        let charge = budget.charge(block.len() as u64);
        (block, charge)
    }
}

/// The result of a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wrote {
    /// This many bytes were accepted.
    Taken(usize),
    /// This many bytes were accepted, and the tail of run `run` in layer `layer` is a full block
    /// that must be uploaded.
    Full { taken: usize, layer: usize, run: u32 },
    /// Nothing was accepted: the chunk must be flushed first.
    NeedsFlush,
}

/// The layers, lowest first. A higher layer hides the data of lower ones.
#[derive(Debug, Default)]
pub(super) struct Extents {
    pub(super) layers: Vec<BTreeMap<u32, Run>>,
}

impl Extents {
    /// Takes as much of `data`, written at `pos`, as fits without an upload.
    pub(super) fn write(&mut self, pos: u32, data: &[u8], block_size: u32, budget: &Arc<Budget>) -> Wrote {
        let end = pos + data.len() as u32;
        // Choose the lowest layer that can take the data and that no higher layer hides there.
        let mut chosen = None;
        for (number, layer) in self.layers.iter().enumerate().rev() {
            if !touches_uploading(layer, pos, end) {
                chosen = Some(number);
            }
            if overlapping(layer, pos, end).next().is_some() {
                break;
            }
        }
        let number = match chosen {
            Some(number) => number,
            None if self.layers.len() == MAX_LAYERS => return Wrote::NeedsFlush,
            None => {
                self.layers.push(BTreeMap::new());
                self.layers.len() - 1
            }
        };
        write_layer(&mut self.layers[number], number, pos, data, block_size, budget)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.layers.iter().all(BTreeMap::is_empty)
    }

    /// The end of its data.
    pub(super) fn end(&self) -> u32 {
        let ends = self.layers.iter().filter_map(|layer| layer.last_key_value());
        ends.map(|(_, run)| run.end()).max().unwrap_or(0)
    }

    /// Bytes of memory that are not being uploaded.
    pub(super) fn bytes(&self) -> u64 {
        self.layers.iter().flat_map(BTreeMap::values).map(|run| run.tail.memory() as u64 + RUN_OVERHEAD).sum()
    }
}

/// The runs of a layer with bytes between `pos` and `end`, from the last to the first.
pub(super) fn overlapping(layer: &BTreeMap<u32, Run>, pos: u32, end: u32) -> impl Iterator<Item = &Run> {
    layer.range(..end).rev().map(|(_, run)| run).take_while(move |run| run.end() > pos)
}

fn touches_uploading(layer: &BTreeMap<u32, Run>, pos: u32, end: u32) -> bool {
    overlapping(layer, pos, end).any(|run| !run.uploading.is_empty() && pos < run.tail_pos())
}

fn write_layer(
    layer: &mut BTreeMap<u32, Run>,
    number: usize,
    pos: u32,
    data: &[u8],
    block_size: u32,
    budget: &Arc<Budget>,
) -> Wrote {
    let before = layer.range(..=pos).next_back().filter(|(_, run)| run.end() >= pos).map(|(start, _)| *start);
    let start = before.unwrap_or(pos);
    let run = layer.entry(start).or_insert_with(|| Run {
        pos,
        slice: None,
        uploading: Vec::new(),
        tail: Buffer::default(),
        charge: budget.charge(RUN_OVERHEAD),
        block_size,
    });
    let at = (pos - run.tail_pos()) as usize;
    let over = data.len().min(run.tail.len() - at);
    run.tail[at..at + over].copy_from_slice(&data[..over]);
    let room = block_size as usize - run.tail.len();
    let added = room.min(data.len() - over);
    let taken = over + added;
    if added > 0 {
        make_way(layer, start, pos + taken as u32);
    }
    let Some(run) = layer.get_mut(&start) else { return Wrote::NeedsFlush };
    if added > 0 {
        run.append(&data[over..taken]);
    }
    if run.tail.len() == block_size as usize {
        Wrote::Full { taken, layer: number, run: start }
    } else {
        Wrote::Taken(taken)
    }
}

/// Cuts the runs after run `start` so that none of them begins before `end`. None has blocks that
/// are being uploaded there.
fn make_way(layer: &mut BTreeMap<u32, Run>, start: u32, end: u32) {
    while let Some((&next, _)) = layer.range(start + 1..end).next() {
        let Some(mut run) = layer.remove(&next) else { return };
        if run.end() > end {
            run.tail.drop_front((end - next) as usize);
            run.pos = end;
            run.recount();
            layer.insert(end, run);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BLOCK: u32 = 16;

    fn write_all(extents: &mut Extents, budget: &Arc<Budget>, mut pos: u32, mut data: &[u8]) -> bool {
        while !data.is_empty() {
            match extents.write(pos, data, BLOCK, budget) {
                Wrote::Taken(taken) => {
                    pos += taken as u32;
                    data = &data[taken..];
                }
                Wrote::Full { taken, layer, run } => {
                    let run = extents.layers[layer].get_mut(&run).unwrap();
                    let (block, charge) = run.take_block(budget);
                    run.uploading.push(Upload::new(
                        crate::BlockKey { id: 1, index: 0, size: BLOCK },
                        block,
                        charge,
                    ));
                    pos += taken as u32;
                    data = &data[taken..];
                }
                Wrote::NeedsFlush => return false,
            }
        }
        true
    }

    fn paint(extents: &Extents) -> Vec<u8> {
        let mut shown = vec![0; 256];
        for run in extents.layers.iter().flat_map(|layer| layer.values()) {
            let mut bytes: Vec<u8> = run.uploading.iter().flat_map(|upload| upload.data().unwrap()).collect();
            bytes.extend_from_slice(&run.tail);
            shown[run.pos as usize..run.end() as usize].copy_from_slice(&bytes);
        }
        shown
    }

    proptest! {
        #[test]
        fn what_was_written_last_shows(writes in prop::collection::vec((0u32..200, 1usize..50), 1..40)) {
            let budget = Budget::new(1 << 20, std::array::from_fn(|_| Arc::default()));
            let mut extents = Extents::default();
            let mut model = vec![0; 256];
            for (value, (pos, len)) in (1u8..).zip(writes) {
                if !write_all(&mut extents, &budget, pos, &vec![value; len]) {
                    extents = Extents::default();
                    model.fill(0);
                    prop_assert!(write_all(&mut extents, &budget, pos, &vec![value; len]));
                }
                model[pos as usize..pos as usize + len].fill(value);
                prop_assert_eq!(paint(&extents), &model[..]);
                for layer in &extents.layers {
                    let runs: Vec<_> = layer.values().map(|run| (run.pos, run.end())).collect();
                    prop_assert!(runs.windows(2).all(|pair| pair[0].1 <= pair[1].0), "{:?}", runs);
                }
            }
            drop(extents);
            prop_assert_eq!(budget.used(), 0);
        }
    }
}
