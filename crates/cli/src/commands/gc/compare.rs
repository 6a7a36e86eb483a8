//! Compares the objects with the slices to which records refer.
//!
//! What must stay true: an object counts as leaked only if no record of a slice includes the block
//! of this object.

use sluice_data::{BlockKey, Layout};
use sluice_meta::sort::{Fields, Sorted};

use crate::blocks::{Object, needs, object_of};

/// Bytes of a slice's record: id, size, state.
const SLICE: usize = 13;

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

/// A slice as a record.
pub(super) fn slice_record(id: u64, size: u32, state: SliceState) -> [u8; SLICE] {
    let mut record = [0; SLICE];
    record[..8].copy_from_slice(&id.to_be_bytes());
    record[8..12].copy_from_slice(&size.to_be_bytes());
    record[12] = state as u8;
    record
}

/// Calls `each` with every object and what records say of it; `None` says that none names it.
pub(super) fn compare(
    objects: &Sorted,
    slices: &Sorted,
    layout: Layout,
    mut each: impl FnMut(Object, Option<SliceState>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (mut objects, mut slices) = (objects.records()?, slices.records()?);
    let mut next_slice = || anyhow::Ok(slices.next()?.map(|(record, _)| slice_of(record)));
    let mut next = next_slice()?;
    let mut of_id: Vec<Slice> = Vec::new();
    let mut id = 0;
    while let Some((record, _)) = objects.next()? {
        let object = object_of(record);
        if object.0.id != id {
            id = object.0.id;
            of_id.clear();
            while let Some(slice) = next.filter(|slice| slice.id <= id) {
                if slice.id == id {
                    of_id.push(slice);
                }
                next = next_slice()?;
            }
        }
        each(object, state_of(object.0, &of_id, layout))?;
    }
    Ok(())
}

/// A slice that a record names.
#[derive(Clone, Copy)]
struct Slice {
    id: u64,
    size: u32,
    state: u8,
}

fn slice_of(record: &[u8]) -> Slice {
    let mut fields = Fields(record);
    Slice { id: fields.u64(), size: fields.u32(), state: fields.u8() }
}

fn state_of(block: BlockKey, slices: &[Slice], layout: Layout) -> Option<SliceState> {
    let naming = slices.iter().filter(|slice| needs(slice.size, block, layout));
    let first = naming.map(|slice| slice.state).min();
    first.map(|state| match state {
        0 => SliceState::Valid,
        1 => SliceState::Pending,
        2 => SliceState::Compacted,
        _ => SliceState::Referred,
    })
}

#[cfg(test)]
mod tests {
    use sluice_meta::sort::{SortSpace, Sorter};

    use super::*;
    use crate::blocks::object_record;

    const LAYOUT: Layout = Layout { block_size: 10, hash_prefix: false };

    #[test]
    fn an_object_is_what_the_best_record_of_exactly_its_block_says() {
        let space = SortSpace { bytes: 100, ..SortSpace::default() };
        let (mut objects, mut slices) = (Sorter::new(&space), Sorter::new(&space));
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
            objects
                .add(&object_record((BlockKey { id: *id, index: *index, size: *size }, 7)))
                .expect("added");
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
            slices.add(&slice_record(id, size, state)).expect("added");
        }
        let mut found = Vec::new();
        compare(
            &objects.sorted().expect("sorted"),
            &slices.sorted().expect("sorted"),
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
