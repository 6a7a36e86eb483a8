//! Checks whether the blocks of all slices are in the object store.
//!
//! What must stay true: the memory use is that of two sorts. It does not depend on the number of
//! objects or of missing objects.

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use sluice_data::{BlockKey, Layout};
use sluice_meta::sort::{Fields, Records, SortError, SortSpace, Sorted, Sorter};
use sluice_object::{ObjectError, ObjectStore};
use sluice_types::FsResult;

use crate::blocks::{Object, block_of, object_of, object_record};

/// Objects asked for at once.
const AT_ONCE: usize = 32;

/// What the size of an object tells.
#[derive(Clone, Copy)]
pub(super) enum Sizes {
    /// It is that of the block.
    Exact,
    /// It is more: the block is encrypted.
    AtLeast,
    /// Anything but zero: the block is compressed.
    Any,
}

impl Sizes {
    fn fit(self, block: BlockKey, stored: u64) -> bool {
        match self {
            Self::Exact => stored == u64::from(block.size),
            Self::AtLeast => stored > u64::from(block.size),
            Self::Any => stored > 0,
        }
    }
}

/// A block that is missing, or that cannot be right.
pub(super) struct Fault {
    pub(super) block: BlockKey,
    /// Bytes of the object that is there.
    stored: Option<u64>,
}

impl Fault {
    /// What is wrong with it.
    pub(super) fn what(&self) -> String {
        match self.stored {
            None => "is missing".into(),
            Some(stored) => format!("has {stored} bytes, which cannot be {} bytes of data", self.block.size),
        }
    }
}

/// Faults by block.
pub(super) struct Faults(Sorted);

impl Faults {
    /// Each fault.
    pub(super) fn all(&self) -> Result<impl Iterator<Item = Result<Fault>>, SortError> {
        let mut records = self.0.records()?;
        let next = move || -> Result<Option<Fault>> {
            Ok(records.next()?.map(|(record, _)| {
                let (block, stored) = object_of(record);
                let there = Fields(record.get(24..).unwrap_or_default()).u8() == 1;
                Fault { block, stored: there.then_some(stored) }
            }))
        };
        Ok(transposed(next))
    }
}

/// What to check, and against what.
pub(super) struct Check<'a> {
    pub(super) store: &'a dyn ObjectStore,
    pub(super) layout: Layout,
    pub(super) sizes: Sizes,
    pub(super) space: &'a SortSpace,
}

impl Check<'_> {
    /// All objects that are named as blocks, sorted.
    pub(super) async fn list(&self, progress: &(dyn Fn(u64) + Sync)) -> Result<Sorted> {
        let mut objects = Sorter::new(self.space);
        let mut listed = self.store.list("chunks/");
        while let Some(object) = listed.try_next().await.with_context(|| self.failed())? {
            if let Some(block) = block_of(&object, self.layout) {
                objects.add(&object_record((block, object.size)))?;
                progress(1);
            }
        }
        Ok(objects.sorted()?)
    }

    /// Checks all blocks of `slices`, which come by id, against the listed objects: a question for
    /// each that is not among them, since a listing may be behind.
    pub(super) async fn compare(
        &self,
        slices: impl Iterator<Item = FsResult<(u64, u32)>>,
        objects: &Sorted,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Faults> {
        let mut objects = Objects::new(objects)?;
        let suspects = wanted(slices, self.layout).filter_map(|block| {
            let found = block.and_then(|block| Ok((block, objects.find(block)?)));
            found
                .map(|(block, stored)| {
                    let fits = stored.is_some_and(|stored| self.sizes.fit(block, stored));
                    if stored.is_some() {
                        progress(1);
                    }
                    (!fits).then_some((block, stored))
                })
                .transpose()
        });
        let asked = stream::iter(suspects).map(|suspect| async {
            let (block, stored) = suspect?;
            if stored.is_some() {
                return Ok(Some(Fault { block, stored }));
            }
            let found = match self.store.head(&self.layout.name(block)).await {
                Ok(object) => Some(object.size),
                Err(ObjectError::NotFound { .. }) => None,
                Err(error) => return Err(error).with_context(|| self.failed()),
            };
            progress(1);
            let fits = found.is_some_and(|stored| self.sizes.fit(block, stored));
            anyhow::Ok((!fits).then_some(Fault { block, stored: found }))
        });
        let mut asked = asked.buffer_unordered(AT_ONCE);
        let mut faults = Sorter::new(self.space);
        while let Some(fault) = asked.try_next().await? {
            let Some(Fault { block, stored }) = fault else { continue };
            let record = object_record((block, stored.unwrap_or(0)));
            faults.add(&[&record[..], &[u8::from(stored.is_some())]].concat())?;
        }
        Ok(Faults(faults.sorted()?))
    }

    fn failed(&self) -> String {
        format!("{} cannot be checked", self.store.describe())
    }
}

/// The listed objects, looked for in the order of their blocks.
struct Objects<'a> {
    records: Records<'a>,
    next: Option<Object>,
}

impl<'a> Objects<'a> {
    fn new(objects: &'a Sorted) -> Result<Self> {
        let mut objects = Self { records: objects.records()?, next: None };
        objects.advance()?;
        Ok(objects)
    }

    fn advance(&mut self) -> Result<()> {
        self.next = self.records.next()?.map(|(record, _)| object_of(record));
        Ok(())
    }

    /// Bytes of the object of `block`, which comes after all that were looked for before.
    fn find(&mut self, block: BlockKey) -> Result<Option<u64>> {
        while let Some((at, stored)) = self.next {
            if at >= block {
                return Ok((at == block).then_some(stored));
            }
            self.advance()?;
        }
        Ok(None)
    }
}

/// All blocks of `slices`, in order and each once.
fn wanted(
    slices: impl Iterator<Item = FsResult<(u64, u32)>>,
    layout: Layout,
) -> impl Iterator<Item = Result<BlockKey>> {
    let mut slices = slices.peekable();
    let mut of_id: Box<dyn Iterator<Item = BlockKey>> = Box::new(std::iter::empty());
    transposed(move || {
        loop {
            if let Some(block) = of_id.next() {
                return Ok(Some(block));
            }
            let Some((id, size)) = slices.next().transpose()? else { return Ok(None) };
            of_id = Box::new(layout.blocks(id, size));
            // Several sizes of one slice, which only damage makes.
            let mut sizes = vec![size];
            while let Some(Ok((_, size))) =
                slices.next_if(|next| next.as_ref().is_ok_and(|(next, _)| *next == id))
            {
                sizes.push(size);
            }
            if sizes.len() > 1 {
                let mut blocks: Vec<_> = sizes.into_iter().flat_map(|size| layout.blocks(id, size)).collect();
                blocks.sort_unstable();
                blocks.dedup();
                of_id = Box::new(blocks.into_iter());
            }
        }
    })
}

/// Calls `next` until it has no more.
fn transposed<T>(mut next: impl FnMut() -> Result<Option<T>>) -> impl Iterator<Item = Result<T>> {
    std::iter::from_fn(move || next().transpose())
}

#[cfg(test)]
mod tests {
    use sluice_object::MemStore;

    use super::*;

    const LAYOUT: Layout = Layout { block_size: 10, hash_prefix: false };
    const SLICES: [(u64, u32); 4] = [(1, 25), (2, 10), (2, 12), (1 << 40, 3)];

    fn faults(objects: &[(u64, u32, u32, usize)], sizes: Sizes) -> Vec<String> {
        let found = [1 << 20, 0].map(|bytes| {
            let (store, space) = (MemStore::new(), SortSpace { bytes, ..SortSpace::default() });
            let check = Check { store: &store, layout: LAYOUT, sizes, space: &space };
            let checked = async {
                for (id, index, size, stored) in objects {
                    let block = BlockKey { id: *id, index: *index, size: *size };
                    store.put(&LAYOUT.name(block), vec![1; *stored].into()).await?;
                }
                let listed = check.list(&|_| {}).await?;
                check.compare(SLICES.into_iter().map(Ok), &listed, &|_| {}).await
            };
            let found =
                crate::volume::runtime().expect("a runtime").block_on(checked).expect("a store in memory");
            let words = |fault: Fault| format!("{} {} {}", fault.block.id, fault.block.index, fault.what());
            found.all().expect("sorted").map(|fault| words(fault.expect("read"))).collect::<Vec<_>>()
        });
        assert_eq!(found[0], found[1], "sorted in memory and on disk");
        found[0].clone()
    }

    #[test]
    fn missing_and_damaged_blocks_are_found_and_others_ignored() {
        let all =
            [(1, 0, 10, 10), (1, 1, 10, 10), (1, 2, 5, 5), (2, 0, 10, 10), (2, 1, 2, 2), (1 << 40, 0, 3, 3)];
        assert_eq!(faults(&all, Sizes::Exact), Vec::<String>::new());
        let more = [all.to_vec(), vec![(7, 0, 10, 1), (2, 1, 10, 1), (1, 2, 10, 10)]].concat();
        assert_eq!(faults(&more, Sizes::Exact), Vec::<String>::new());
        assert_eq!(faults(&all[1..], Sizes::Exact), ["1 0 is missing"]);
        let mut short = all;
        short[2].3 = 4;
        assert_eq!(faults(&short, Sizes::Exact), ["1 2 has 4 bytes, which cannot be 5 bytes of data"]);
        assert_eq!(faults(&short, Sizes::Any), Vec::<String>::new());
        assert_eq!(faults(&all, Sizes::AtLeast).len(), 6);
        assert_eq!(faults(&[], Sizes::Any).len(), 6);
    }
}
