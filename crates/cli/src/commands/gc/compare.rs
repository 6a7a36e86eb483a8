//! Objects against the slices that records name.
//!
//! What must stay true: an object counts as leaked only if no record of its slice asks for exactly
//! this block.

use sluice_data::{BlockKey, Layout};

use super::runs::{Sorted, Sorter};

/// Bytes of an object's record: slice, block, size in the name, stored bytes.
const OBJECT: usize = 24;
/// Bytes of a slice's record: id, size, state.
const SLICE: usize = 13;

/// Objects to be sorted by slice.
pub(super) type Objects = Sorter<OBJECT>;
/// Slices to be sorted by id.
pub(super) type Slices = Sorter<SLICE>;

/// What records say of a slice; of several, the first counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum SliceState {
    /// Some chunk shows it.
    Valid = 0,
    /// Nothing shows it any more, and it waits to be deleted.
    Pending = 1,
    /// A compaction replaced it, and it is kept as long as the trash.
    Compacted = 2,
    /// A reference is counted; who has it was not met.
    Referred = 3,
}

/// An object: the block that it is named after, and its bytes.
pub(super) type Object = (BlockKey, u64);

/// An object as a record.
pub(super) fn object_record((block, stored): Object) -> [u8; OBJECT] {
    let mut record = [0; OBJECT];
    record[..8].copy_from_slice(&block.id.to_be_bytes());
    record[8..12].copy_from_slice(&block.index.to_be_bytes());
    record[12..16].copy_from_slice(&block.size.to_be_bytes());
    record[16..].copy_from_slice(&stored.to_be_bytes());
    record
}

/// The object of a record.
pub(super) fn object_of(record: &[u8; OBJECT]) -> Object {
    let block = BlockKey { id: u64_at(record, 0), index: u32_at(record, 8), size: u32_at(record, 12) };
    (block, u64_at(record, 16))
}

/// A slice as a record.
pub(super) fn slice_record(id: u64, size: u32, state: SliceState) -> [u8; SLICE] {
    let mut record = [0; SLICE];
    record[..8].copy_from_slice(&id.to_be_bytes());
    record[8..12].copy_from_slice(&size.to_be_bytes());
    record[12] = state as u8;
    record
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    record[at..at + 4].iter().fold(0, |value, byte| value << 8 | u32::from(*byte))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from(u32_at(record, at)) << 32 | u64::from(u32_at(record, at + 4))
}

/// Calls `each` with every object and what records say of it; `None` says that none names it.
pub(super) fn compare(
    mut objects: Sorted<OBJECT>,
    mut slices: Sorted<SLICE>,
    layout: Layout,
    mut each: impl FnMut(Object, Option<SliceState>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut next = slices.next()?;
    let mut of_id: Vec<[u8; SLICE]> = Vec::new();
    let mut id = 0;
    while let Some(record) = objects.next()? {
        let object = object_of(&record);
        if object.0.id != id {
            id = object.0.id;
            of_id.clear();
            while let Some(slice) = next.filter(|slice| u64_at(slice, 0) <= id) {
                if u64_at(&slice, 0) == id {
                    of_id.push(slice);
                }
                next = slices.next()?;
            }
        }
        each(object, state_of(object.0, &of_id, layout))?;
    }
    Ok(())
}

fn state_of(block: BlockKey, slices: &[[u8; SLICE]], layout: Layout) -> Option<SliceState> {
    let needs = |slice: &&[u8; SLICE]| {
        let size = u32_at(&slice[..], 8);
        block.index < size.div_ceil(layout.block_size) && layout.block(block.id, size, block.index) == block
    };
    let first = slices.iter().filter(needs).map(|slice| slice[12]).min();
    first.map(|state| match state {
        0 => SliceState::Valid,
        1 => SliceState::Pending,
        2 => SliceState::Compacted,
        _ => SliceState::Referred,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: Layout = Layout { block_size: 10, hash_prefix: false };

    #[test]
    fn an_object_is_what_the_best_record_of_exactly_its_block_says() {
        let dir = std::env::temp_dir();
        let (mut objects, mut slices) = (Objects::new(&dir, 48), Slices::new(&dir, 26));
        let expected = [
            ((1, 0, 10), Some(SliceState::Valid)),
            ((1, 1, 5), Some(SliceState::Valid)),
            ((1, 1, 10), None),
            ((1, 2, 5), None),
            ((2, 0, 10), Some(SliceState::Pending)),
            ((3, 0, 3), None),
            ((4, 0, 3), Some(SliceState::Compacted)),
            ((5, 0, 3), Some(SliceState::Valid)),
            ((6, 0, 3), Some(SliceState::Referred)),
            ((u64::MAX, 0, 1), Some(SliceState::Compacted)),
        ];
        for ((id, index, size), _) in expected.iter().rev() {
            objects.add(object_record((BlockKey { id: *id, index: *index, size: *size }, 7))).expect("added");
        }
        for (id, size, state) in [
            (5, 3, SliceState::Compacted),
            (u64::MAX, 1, SliceState::Compacted),
            (4, 3, SliceState::Referred),
            (6, 3, SliceState::Referred),
            (4, 3, SliceState::Compacted),
            (2, 20, SliceState::Pending),
            (2, 20, SliceState::Compacted),
            (5, 3, SliceState::Valid),
            (1, 15, SliceState::Valid),
            (1, 15, SliceState::Valid),
        ] {
            slices.add(slice_record(id, size, state)).expect("added");
        }
        let mut found = Vec::new();
        compare(
            objects.sorted().expect("sorted"),
            slices.sorted().expect("sorted"),
            LAYOUT,
            |object, state| {
                assert_eq!(object.1, 7);
                found.push(((object.0.id, object.0.index, object.0.size), state));
                Ok(())
            },
        )
        .expect("compared");
        assert_eq!(found, expected);
    }
}
