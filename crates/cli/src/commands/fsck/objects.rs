//! Whether the blocks of slices are in the object store.
//!
//! What must stay true: memory is one bit a block and twelve bytes a slice, however many other
//! objects there are.

use futures::{StreamExt, TryStreamExt, stream};
use sluice_data::{BlockKey, Layout, parse_name};
use sluice_object::{ObjectError, ObjectStore};

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

/// Checks all blocks of `slices`, sorted by id: one listing, and a question for each that it did
/// not show.
pub(super) async fn check(
    store: &dyn ObjectStore,
    layout: Layout,
    sizes: Sizes,
    slices: &[(u64, u32)],
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Vec<Fault>, ObjectError> {
    let mut blocks = Blocks::new(layout, slices);
    let mut faults = Vec::new();
    let mut listed = store.list("chunks/");
    while let Some(object) = listed.try_next().await? {
        let Some(block) = parse_name(&object.key) else { continue };
        if layout.name(block) == object.key && blocks.mark(block) {
            progress(1);
            if !sizes.fit(block, object.size) {
                faults.push(Fault { block, stored: Some(object.size) });
            }
        }
    }
    // A listing may be behind.
    let asked = stream::iter(blocks.unmarked()).map(|block| async move {
        let found = match store.head(&layout.name(block)).await {
            Ok(object) => Some(object.size),
            Err(ObjectError::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        Ok((!found.is_some_and(|stored| sizes.fit(block, stored))).then_some(Fault { block, stored: found }))
    });
    let mut asked = asked.buffer_unordered(AT_ONCE);
    while let Some(fault) = asked.try_next().await? {
        progress(1);
        faults.extend(fault);
    }
    faults.sort_by_key(|fault| fault.block);
    Ok(faults)
}

/// All blocks that must exist, one bit each.
struct Blocks<'a> {
    layout: Layout,
    slices: &'a [(u64, u32)],
    /// Number of the first block of each slice.
    first: Vec<u64>,
    seen: Vec<u64>,
}

impl<'a> Blocks<'a> {
    fn new(layout: Layout, slices: &'a [(u64, u32)]) -> Self {
        let mut count = 0;
        let mut first = Vec::with_capacity(slices.len());
        for (_, size) in slices {
            first.push(count);
            count += u64::from(size.div_ceil(layout.block_size));
        }
        Self { layout, slices, first, seen: vec![0; count.div_ceil(64) as usize] }
    }

    /// Marks a block as seen; whether it was wanted.
    fn mark(&mut self, block: BlockKey) -> bool {
        let from = self.slices.partition_point(|(id, _)| *id < block.id);
        for (at, (id, size)) in self.slices.iter().enumerate().skip(from) {
            if *id != block.id {
                break;
            }
            if block.index < size.div_ceil(self.layout.block_size)
                && self.layout.block(*id, *size, block.index) == block
            {
                let number = self.first[at] + u64::from(block.index);
                self.seen[(number / 64) as usize] |= 1 << (number % 64);
                return true;
            }
        }
        false
    }

    fn unmarked(&self) -> impl Iterator<Item = BlockKey> + '_ {
        self.slices.iter().zip(&self.first).flat_map(move |((id, size), first)| {
            self.layout.blocks(*id, *size).filter(move |block| {
                let number = first + u64::from(block.index);
                self.seen[(number / 64) as usize] >> (number % 64) & 1 == 0
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use sluice_object::MemStore;

    use super::*;

    const LAYOUT: Layout = Layout { block_size: 10, hash_prefix: false };

    fn faults(objects: &[(u64, u32, u32, usize)], sizes: Sizes) -> Vec<String> {
        let store = MemStore::new();
        let check = async {
            for (id, index, size, stored) in objects {
                let block = BlockKey { id: *id, index: *index, size: *size };
                store.put(&LAYOUT.name(block), vec![1; *stored].into()).await?;
            }
            check(&store, LAYOUT, sizes, &[(1, 25), (2, 10), (1 << 40, 3)], &|_| {}).await
        };
        let found =
            crate::volume::runtime().expect("a runtime").block_on(check).expect("a store in memory works");
        found
            .iter()
            .map(|fault| format!("{} {} {}", fault.block.id, fault.block.index, fault.what()))
            .collect()
    }

    #[test]
    fn missing_and_damaged_blocks_are_found_and_others_ignored() {
        let all = [(1, 0, 10, 10), (1, 1, 10, 10), (1, 2, 5, 5), (2, 0, 10, 10), (1 << 40, 0, 3, 3)];
        assert_eq!(faults(&all, Sizes::Exact), Vec::<String>::new());
        let more = [all.to_vec(), vec![(7, 0, 10, 1), (2, 1, 10, 1), (1, 2, 10, 10)]].concat();
        assert_eq!(faults(&more, Sizes::Exact), Vec::<String>::new());
        assert_eq!(faults(&all[1..], Sizes::Exact), ["1 0 is missing"]);
        let mut short = all;
        short[2].3 = 4;
        assert_eq!(faults(&short, Sizes::Exact), ["1 2 has 4 bytes, which cannot be 5 bytes of data"]);
        assert_eq!(faults(&short, Sizes::Any), Vec::<String>::new());
        assert_eq!(faults(&all, Sizes::AtLeast).len(), 5);
    }
}
