//! The two sides of the comparison: the objects that there are, and the slices that records name.

use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use sluice_data::parse_name;
use sluice_meta::{engine::Scan, schema::Row};
use sluice_object::{ObjectError, ObjectMeta};
use sluice_types::{FsError, FsResult};

use super::{
    Collector, Found,
    compare::{Objects, SliceState, Slices, object_record, slice_record},
};
use crate::progress::Progress;

/// Takes a slice by id and size, with what a record says of it.
type AddSlice<'a> = dyn FnMut(u64, u32, SliceState) + 'a;

impl Collector<'_> {
    /// All objects that are older than `oldest`, Unix seconds. What is not named as a block of this
    /// volume is nobody's business.
    pub(super) fn list(&self, oldest: i64, found: &mut Found) -> Result<Objects> {
        let progress = Progress::new("list objects", None);
        let mut objects: Objects = self.sorter();
        let list = async {
            let mut listed = self.store.list("chunks/");
            while let Some(object) = listed.try_next().await? {
                self.go_on()?;
                let Some(block) = parse_name(&object.key) else { continue };
                if self.layout.name(block) != object.key {
                    continue;
                }
                progress.add(1);
                found.scanned += 1;
                match self.with_time(object).await? {
                    Some(ObjectMeta { size, modified: Some(time), .. }) if time.sec < oldest => {
                        objects.add(object_record((block, size))).with_context(|| self.no_room())?;
                    }
                    Some(object) => found.skipped.add(object.size),
                    None => found.scanned -= 1,
                }
            }
            Ok(objects)
        };
        let listed: Result<Objects> = self.runtime.block_on(list);
        progress.finish();
        listed.with_context(|| {
            format!(
                "the objects in {} cannot be listed, and nothing was deleted of them",
                self.store.describe()
            )
        })
    }

    /// An object with its time, which some listings leave out; `None` if it is gone.
    async fn with_time(&self, object: ObjectMeta) -> Result<Option<ObjectMeta>, ObjectError> {
        if object.modified.is_some_and(|time| time.sec != 0) {
            return Ok(Some(object));
        }
        match self.store.head(&object.key).await {
            Ok(object) => Ok(Some(object)),
            Err(ObjectError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// All slices that records name, in the order that [`super`] tells. `rows` is how many records
    /// the survey before read, which is about what this one will, and then how many this one did.
    pub(super) fn survey(&self, rows: &mut Option<u64>) -> Result<Slices> {
        let progress = Progress::new("list slices", *rows);
        let mut slices: Slices = self.sorter();
        let mut full = None;
        let mut each = |scan: Scan, see: &dyn Fn(Row, &mut AddSlice<'_>)| {
            self.meta.each_page(scan, &self.interrupt, |rows| {
                progress.add(rows.len() as u64);
                let mut add = |id, size, state| {
                    if full.is_none() {
                        full = slices.add(slice_record(id, size, state)).err();
                    }
                };
                for row in rows {
                    see(row, &mut add);
                }
                if full.is_some() { Err(FsError::NoSpace) } else { Ok(()) }
            })
        };
        let mut survey = || -> FsResult<()> {
            each(Scan::Chunks, &|row, add| {
                if let Row::Chunk(_, _, records) = row {
                    let shown = records.iter().filter(|record| !record.is_hole());
                    shown.for_each(|slice| add(slice.id, slice.size, SliceState::Valid));
                }
            })?;
            each(Scan::DelSlices, &|row, add| {
                if let Row::DelSlices(_, _, slices) = row {
                    for (id, size) in slices {
                        add(id, size, SliceState::Compacted);
                    }
                }
            })?;
            each(Scan::SliceRefs, &|row, add| {
                if let Row::SliceRef(id, size, references) = row {
                    add(id, size, if references > 0 { SliceState::Referred } else { SliceState::Pending });
                }
            })
        };
        let surveyed = survey();
        *rows = Some(progress.finish().0);
        if let Some(error) = full {
            bail!(anyhow::Error::new(error).context(self.no_room()));
        }
        surveyed.context("the slices in the metadata cannot be listed, and no object was deleted")?;
        Ok(slices)
    }
}
