//! The two inputs of the comparison: the existing objects, and the slices to which records refer.

use anyhow::{Context, Result};
use futures::TryStreamExt;
use sluice_meta::{
    engine::Scan,
    schema::Row,
    sort::{SortError, Sorted, Sorter},
};
use sluice_object::{ObjectError, ObjectMeta, unfinished};
use sluice_types::FsResult;

use super::{
    Collector, Found,
    compare::{SliceState, slice_record},
};
use crate::{
    blocks::{block_of, object_record},
    progress::Progress,
    volume,
};

/// Takes a slice by id and size, with what a record says of it.
type AddSlice<'a> = dyn FnMut(u64, u32, SliceState) -> Result<(), SortError> + 'a;

impl Collector<'_> {
    /// All objects that are older than `oldest`, Unix seconds. What dead writers left unfinished is
    /// leaked: no record can name it.
    pub(super) fn list(&self, oldest: i64, found: &mut Found) -> Result<Sorted> {
        let progress = Progress::new("list objects", None);
        let mut objects = Sorter::new(&self.space);
        let list = async {
            let mut listed = self.store.list("chunks/");
            while let Some(object) = listed.try_next().await? {
                self.go_on()?;
                let block = block_of(&object, self.layout);
                if block.is_none() && unfinished(&object.key).is_none() {
                    continue;
                }
                progress.add(1);
                found.scanned += 1;
                match self.with_time(object).await? {
                    Some(ObjectMeta { key, size, modified: Some(time) }) if time.sec < oldest => {
                        if let Some(block) = block {
                            objects.add(&object_record((block, size)))?;
                            continue;
                        }
                        found.leaked.add(size);
                        if self.args.delete {
                            found.undeleted += u64::from(!self.delete(&key).await);
                        }
                    }
                    Some(object) => found.skipped.add(object.size),
                    None => found.scanned -= 1,
                }
            }
            if found.scanned == 0 {
                volume::find_marker(self.store.as_ref()).await?;
            }
            Ok(objects.sorted()?)
        };
        let listed: Result<Sorted> = self.runtime.block_on(list);
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
    pub(super) fn survey(&self, rows: &mut Option<u64>) -> Result<Sorter> {
        let progress = Progress::new("list slices", *rows);
        let mut slices = Sorter::new(&self.space);
        let mut each = |scan: Scan, see: &dyn Fn(Row, &mut AddSlice<'_>) -> Result<(), SortError>| {
            self.meta.each_page(scan, &self.interrupt, |rows| {
                progress.add(rows.len() as u64);
                let mut add = |id, size, state| slices.add(&slice_record(id, size, state));
                rows.into_iter().try_for_each(|row| see(row, &mut add)).map_err(Into::into)
            })
        };
        let mut survey = || -> FsResult<()> {
            each(Scan::Chunks, &|row, add| {
                let Row::Chunk(_, _, records) = row else { return Ok(()) };
                let mut shown = records.iter().filter(|record| !record.is_hole());
                shown.try_for_each(|slice| add(slice.id, slice.size, SliceState::Valid))
            })?;
            each(Scan::DelSlices, &|row, add| {
                let Row::DelSlices(_, _, slices) = row else { return Ok(()) };
                slices.into_iter().try_for_each(|(id, size)| add(id, size, SliceState::Compacted))
            })?;
            each(Scan::SliceRefs, &|row, add| {
                let Row::SliceRef(id, size, references) = row else { return Ok(()) };
                add(id, size, if references > 0 { SliceState::Referred } else { SliceState::Pending })
            })
        };
        let surveyed = survey();
        *rows = Some(progress.finish().0);
        surveyed.context("the slices in the metadata cannot be listed, and no object was deleted")?;
        Ok(slices)
    }
}
