//! Counts how many chunks refer to each slice, from the chunks of a dump.
//!
//! What must stay true: the references in the dump itself are not used. They also count slices that
//! a compaction replaced and that wait in the trash. No dump contains these.

use roaring::RoaringTreemap;
use rustc_hash::FxHashMap;
use sluice_meta::schema::Row;
use sluice_types::Slice;

/// Counts references. Memory: about a bit for each slice, and a record for each one to which
/// several chunks refer.
#[derive(Default)]
pub(crate) struct SliceRefs {
    slices: RoaringTreemap,
    shared: FxHashMap<(u64, u32), i64>,
}

impl SliceRefs {
    /// Counts a reference. Returns the record of a slice that was not seen before. A hole has none.
    pub(crate) fn refer(&mut self, slice: &Slice) -> Option<Row> {
        if slice.id == 0 {
            return None;
        }
        if self.slices.insert(slice.id) {
            return Some(Row::SliceRef(slice.id, slice.size, 1));
        }
        *self.shared.entry((slice.id, slice.size)).or_insert(1) += 1;
        None
    }

    /// All slices.
    pub(crate) fn slices(&self) -> &RoaringTreemap {
        &self.slices
    }

    /// The records of slices to which several chunks refer.
    pub(crate) fn shared(self) -> impl Iterator<Item = Row> {
        self.shared.into_iter().map(|((id, size), refs)| Row::SliceRef(id, size, refs))
    }
}
