//! The blocks that a member serves.

use std::{future::Future, ops::Range, pin::Pin, sync::Weak};

use bytes::Bytes;
use sluice_data::{BlockKey, Cached, CachedFile, DataStore, Served};
use sluice_types::Interrupt;

/// A future without a name.
pub type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a member can do for others.
pub trait Blocks: Send + Sync + 'static {
    /// Bytes `range` of a block if it is cached: copied to a place in the buffer `out`, which grows
    /// if it is too short, or shared. Appends to `sums` the CRC-32C of each of their
    /// [`pages`](sluice_data::pages). Reads a local file at most, and waits for its disk only with
    /// `wait`. Appends nothing unless the bytes are here.
    fn serve(
        &self,
        block: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served>;

    /// As [`Self::serve`] without a copy, if it can be. Never waits.
    fn file(&self, block: BlockKey, range: &Range<u32>) -> Cached<CachedFile> {
        let _ = (block, range);
        Cached::Missing
    }

    /// All of a block, from the object store if it must be.
    fn read(&self, block: BlockKey) -> Boxed<Result<Bytes, String>>;

    /// Keeps a block that was uploaded elsewhere, if there is room.
    fn accept(&self, block: BlockKey, whole: &Bytes);

    /// Whether a block is cached.
    fn has(&self, block: BlockKey) -> bool;

    /// Reads a block into the cache. Blocks. Returns whether there was room.
    ///
    /// # Errors
    /// A message, if the object store does not give it.
    fn warm(&self, block: BlockKey) -> Result<bool, String>;

    /// Drops a block from the cache. Blocks.
    fn evict(&self, block: BlockKey);
}

/// The blocks of a mounted volume, as long as it is mounted.
impl Blocks for Weak<DataStore> {
    fn serve(
        &self,
        block: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served> {
        self.upgrade().map_or(Cached::Missing, |store| store.serve(block, range, out, sums, wait))
    }

    fn file(&self, block: BlockKey, range: &Range<u32>) -> Cached<CachedFile> {
        self.upgrade().map_or(Cached::Missing, |store| store.cached_file(block, range))
    }

    fn read(&self, block: BlockKey) -> Boxed<Result<Bytes, String>> {
        let store = self.upgrade();
        Box::pin(async move {
            let store = store.ok_or_else(gone)?;
            store.read_for_peer(block).await.map_err(|error| error.to_string())
        })
    }

    fn accept(&self, block: BlockKey, whole: &Bytes) {
        if let Some(store) = self.upgrade() {
            store.accept(block, whole);
        }
    }

    fn has(&self, block: BlockKey) -> bool {
        self.upgrade().is_some_and(|store| store.location(block).is_some())
    }

    fn warm(&self, block: BlockKey) -> Result<bool, String> {
        let store = self.upgrade().ok_or_else(gone)?;
        store.notice_removal();
        store.warm_here(block, &Interrupt::never()).map_err(|error| error.to_string())
    }

    fn evict(&self, block: BlockKey) {
        if let Some(store) = self.upgrade() {
            store.evict(block);
        }
    }
}

fn gone() -> String {
    "the volume is being unmounted".into()
}
