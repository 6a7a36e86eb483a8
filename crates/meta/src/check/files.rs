//! Finds the files that refer to slices.

use sluice_types::{FsResult, Ino};

use crate::{
    batch::Interrupt,
    engine::Scan,
    meta::Meta,
    schema::Row,
    sort::{Fields, Records, SortSpace, Sorted, Sorter},
};

impl Meta {
    /// Which files refer to which slices, deleted files included. Slices to which no chunk refers
    /// are left out.
    pub fn files_of_slices(&self, space: &SortSpace, interrupt: &Interrupt) -> FsResult<SliceFiles> {
        let mut sorter = Sorter::new(space);
        self.each_readable_page(Scan::Chunks, interrupt, |page| {
            for row in page.rows {
                let Row::Chunk(ino, _, records) = row else { continue };
                for slice in records.iter().filter(|record| !record.is_hole()) {
                    let (id, size) = (slice.id.to_be_bytes(), slice.size.to_be_bytes());
                    sorter.add(&[&id[..], &size, &ino.0.to_be_bytes()].concat())?;
                }
            }
            Ok(())
        })?;
        Ok(SliceFiles(sorter.sorted()?))
    }
}

/// Files by the slices to which they refer.
pub struct SliceFiles(Sorted);

impl SliceFiles {
    /// Each slice (id and size) with each file that refers to it, sorted by id.
    pub fn all(&self) -> FsResult<impl Iterator<Item = FsResult<(u64, u32, Ino)>>> {
        let mut records = self.0.records()?;
        Ok(std::iter::from_fn(move || next(&mut records).transpose()))
    }
}

fn next(records: &mut Records<'_>) -> FsResult<Option<(u64, u32, Ino)>> {
    Ok(records.next()?.map(|(record, _)| {
        let mut fields = Fields(record);
        (fields.u64(), fields.u32(), Ino(fields.u64()))
    }))
}
