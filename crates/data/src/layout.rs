//! Where a chunk's bytes are: object names, blocks of a slice, and the content of a list of
//! records.
//!
//! What must stay true: names and block lengths are those of the volume format to the byte, since
//! other clients look for the same objects.

use std::ops::Range;

use sluice_types::Slice;

/// One block of a slice: the key of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockKey {
    /// The slice.
    pub id: u64,
    /// Number of the block in the slice, from 0.
    pub index: u32,
    /// Bytes before compression and encryption. Part of the name.
    pub size: u32,
}

/// Bytes of one block that are visible at an offset of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Offset in the chunk.
    pub pos: u32,
    /// The block.
    pub block: BlockKey,
    /// First byte of the block that is shown.
    pub from: u32,
    /// Bytes shown.
    pub len: u32,
}

/// How a volume cuts slices into objects and names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes of a full block.
    pub block_size: u32,
    /// Whether names start with a hash of the slice id.
    pub hash_prefix: bool,
}

impl Layout {
    /// Name of the object that keeps `block`, relative to the volume's prefix.
    pub fn name(&self, block: BlockKey) -> String {
        let BlockKey { id, index, size } = block;
        if self.hash_prefix {
            format!("chunks/{:02X}/{}/{id}_{index}_{size}", id % 256, id / 1_000_000)
        } else {
            format!("chunks/{}/{}/{id}_{index}_{size}", id / 1_000_000, id / 1000)
        }
    }

    /// Block `index` of slice `id`, which has `size` bytes in all.
    pub fn block(&self, id: u64, size: u32, index: u32) -> BlockKey {
        let start = u64::from(index) * u64::from(self.block_size);
        let left = u64::from(size).saturating_sub(start);
        BlockKey { id, index, size: left.min(u64::from(self.block_size)) as u32 }
    }

    /// All blocks of slice `id`, which has `size` bytes.
    pub fn blocks(self, id: u64, size: u32) -> impl Iterator<Item = BlockKey> {
        (0..size.div_ceil(self.block_size)).map(move |index| self.block(id, size, index))
    }

    /// The blocks with the bytes of `record`, in order. None for a hole.
    pub fn parts(self, record: Slice) -> impl Iterator<Item = Part> {
        let (mut pos, mut off) = (record.pos, record.off);
        let end = if record.is_hole() { record.off } else { record.off + record.len };
        std::iter::from_fn(move || {
            if off >= end {
                return None;
            }
            let index = off / self.block_size;
            let from = off % self.block_size;
            let len = (self.block_size - from).min(end - off);
            let part = Part { pos, block: self.block(record.id, record.size, index), from, len };
            pos += len;
            off += len;
            Some(part)
        })
    }
}

/// Bytes of a block that one checksum covers, in cache files and between clients.
pub(crate) const PAGE: u32 = 32 << 10;

/// The parts of a range of a block that have a checksum each: the pages of 32 KiB, cut at its ends.
pub fn pages(range: &Range<u32>) -> impl Iterator<Item = Range<u32>> + use<> {
    let (mut at, end) = (range.start, range.end);
    std::iter::from_fn(move || {
        (at < end).then(|| {
            let next = (at / PAGE + 1).saturating_mul(PAGE).min(end);
            std::mem::replace(&mut at, next)..next
        })
    })
}

/// The block that an object's name stands for, whatever directories lead to it.
pub fn parse_name(name: &str) -> Option<BlockKey> {
    let mut fields = name.rsplit('/').next()?.split('_');
    let id = fields.next()?.parse().ok()?;
    let index = fields.next()?.parse().ok()?;
    let size = fields.next()?.parse().ok()?;
    fields.next().is_none().then_some(BlockKey { id, index, size })
}

/// The content of a chunk's records: pieces of slices by ascending offset, without overlap, holes
/// left out. Bytes that no piece covers are zeros.
pub fn visible(records: &[Slice]) -> Vec<Slice> {
    let mut shown: Vec<Slice> = Vec::with_capacity(records.len());
    for record in records.iter().filter(|record| record.len > 0) {
        let first = shown.partition_point(|piece| piece.end() <= record.pos);
        let behind = shown.partition_point(|piece| piece.pos < record.end());
        let head = shown[first..behind].first().filter(|piece| piece.pos < record.pos);
        let head = head.map(|piece| cut(*piece, piece.pos, record.pos));
        let tail = shown[first..behind].last().filter(|piece| piece.end() > record.end());
        let tail = tail.map(|piece| cut(*piece, record.end(), piece.end()));
        shown.splice(first..behind, head.into_iter().chain([*record]).chain(tail));
    }
    shown.retain(|piece| !piece.is_hole());
    shown
}

/// The part of `piece` between chunk offsets `from` and `to`.
pub(crate) fn cut(piece: Slice, from: u32, to: u32) -> Slice {
    let off = if piece.is_hole() { 0 } else { piece.off + (from - piece.pos) };
    Slice { pos: from, off, len: to - from, ..piece }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PLAIN: Layout = Layout { block_size: 4 << 20, hash_prefix: false };

    #[test]
    fn names_are_those_of_the_format() {
        let block = PLAIN.block(12_345_678, 5 << 20, 1);
        assert_eq!(PLAIN.name(block), "chunks/12/12345/12345678_1_1048576");
        let hashed = Layout { hash_prefix: true, ..PLAIN };
        assert_eq!(hashed.name(block), "chunks/4E/12/12345678_1_1048576");
        assert_eq!(parse_name(&hashed.name(block)), Some(block));
        assert_eq!(parse_name("chunks/0/0/1_2"), None);
        assert_eq!(parse_name("chunks/0/0/1_2_3_4"), None);
    }

    #[test]
    fn blocks_cover_a_slice_exactly() {
        let sizes: Vec<u32> = PLAIN.blocks(1, (8 << 20) + 1).map(|block| block.size).collect();
        assert_eq!(sizes, [4 << 20, 4 << 20, 1]);
        assert_eq!(PLAIN.blocks(1, 4 << 20).count(), 1);
        assert_eq!(PLAIN.blocks(1, 0).count(), 0);
    }

    fn record() -> impl Strategy<Value = Slice> {
        (0u32..60, 1u32..40, 0u64..4, 0u32..10).prop_map(|(pos, len, id, off)| match id {
            0 => Slice::hole(pos, len),
            _ => Slice { pos, id, size: 64, off, len },
        })
    }

    proptest! {
        #[test]
        fn visible_pieces_equal_painting_byte_by_byte(records in prop::collection::vec(record(), 0..12)) {
            let mut model = [(0u64, 0u32); 128];
            for record in &records {
                for n in 0..record.len {
                    let value = if record.is_hole() { (0, 0) } else { (record.id, record.off + n) };
                    model[(record.pos + n) as usize] = value;
                }
            }
            let pieces = visible(&records);
            prop_assert!(pieces.windows(2).all(|pair| pair[0].end() <= pair[1].pos), "in order, none overlapping");
            let mut painted = [(0u64, 0u32); 128];
            for piece in &pieces {
                prop_assert!(piece.len > 0 && !piece.is_hole());
                for n in 0..piece.len {
                    painted[(piece.pos + n) as usize] = (piece.id, piece.off + n);
                }
            }
            prop_assert_eq!(painted, model);
        }

        #[test]
        fn parts_show_the_same_bytes_as_their_record(off in 0u32..50, len in 1u32..50, block_size in 1u32..20) {
            let layout = Layout { block_size, hash_prefix: false };
            let record = Slice { pos: 7, id: 1, size: 100, off, len };
            let mut expected = (7, off);
            for part in layout.parts(record) {
                prop_assert_eq!((part.pos, part.block.index * block_size + part.from), expected);
                prop_assert!(part.from + part.len <= part.block.size);
                prop_assert!(layout.blocks(1, 100).any(|block| block == part.block));
                expected = (expected.0 + part.len, expected.1 + part.len);
            }
            prop_assert_eq!(expected, (7 + len, off + len));
        }
    }
}
