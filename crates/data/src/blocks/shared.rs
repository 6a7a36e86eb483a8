//! Blocks in a cache group: reads blocks from other clients, and serves blocks to them.
//!
//! What must stay true: a request of another client is never forwarded to a third client. So two
//! clients with different lists of members cannot wait for each other. Each block is read from the
//! object store once, for local readers and for other clients.

use std::{ops::Range, pin::pin, sync::Arc};

use bytes::Bytes;
use futures::FutureExt as _;
use sluice_types::Interrupt;

use super::{BlockStore, Purpose, store_reads::Fetched};
use crate::{
    block_on::block_on,
    cache::{BEGUN, BlockFile, Cached, Served, resident::is_resident},
    layout::{BlockKey, pages},
    peers::OwnerAction,
    request_limit::until,
};

impl BlockStore {
    /// A part of a block from the client that owns it; `None` if there is no group, if this client
    /// owns the block, or if nobody gives it.
    pub(super) fn part_from_peers(
        &self,
        key: BlockKey,
        range: &Range<u32>,
        interrupt: &Interrupt,
    ) -> Option<Bytes> {
        let peers = self.peers.as_ref().filter(|peers| !peers.owns(key))?;
        let fetch = pin!(peers.fetch(key, range.clone()));
        block_on(&self.runtime, until(fetch, &mut || interrupt.is_set())).flatten()
    }

    /// Has the client that owns a block do something with it; `None` as
    /// [`Self::part_from_peers`].
    pub(crate) fn at_owner(&self, key: BlockKey, action: OwnerAction, interrupt: &Interrupt) -> Option<bool> {
        let peers = self.peers.as_ref().filter(|peers| !peers.owns(key))?;
        block_on(&self.runtime, until(peers.at_owner(key, action), &mut || interrupt.is_set())).flatten()
    }

    /// As [`Peers::owner_host`](crate::Peers::owner_host).
    pub(crate) fn owner_host(&self, key: BlockKey) -> Option<String> {
        self.peers.as_ref()?.owner_host(key)
    }

    /// Whether this client has to read the block for all others.
    pub(super) fn owns(&self, key: BlockKey) -> bool {
        self.peers.as_ref().is_some_and(|peers| peers.owns(key))
    }

    /// A whole block from the client that owns it or from the object store.
    pub(super) async fn fetch_whole(self: &Arc<Self>, key: BlockKey) -> Fetched {
        let Some(peers) = &self.peers else { return self.fetch(key, None).await };
        let fetched = {
            let _charge = self.budget.charge(u64::from(key.size));
            peers.fetch(key, 0..key.size).await
        };
        match fetched {
            Some(whole) => Ok(whole),
            None => self.read_store_once(key, false).await,
        }
    }

    /// A whole block from the object store, which is read once for all that wait. It is in memory
    /// before the read ends: who found it nowhere a moment ago and comes late finds it there. One
    /// that is read `for_others` is in a local file, too, if the disk does not keep up: otherwise
    /// it would be dropped, and read again for the next one.
    async fn read_store_once(self: &Arc<Self>, key: BlockKey, for_others: bool) -> Fetched {
        let read = self.store_reads.join(key, || {
            let this = Arc::clone(self);
            // It goes on if all that wait for it give up.
            let read = self.runtime.spawn(async move {
                let fetched = match this.memory.get(&key) {
                    Some(whole) => Ok(whole),
                    None => this.fetch(key, None).await,
                };
                if let Ok(whole) = &fetched {
                    this.remember(key, whole, BEGUN);
                    if for_others {
                        this.store_locally(key, whole).await;
                    }
                }
                this.store_reads.end(key);
                fetched
            });
            let (aborted, this) =
                (self.unavailable("read", key, "the client is shutting down"), Arc::clone(self));
            let ended = move |read: Result<Fetched, _>| {
                read.unwrap_or_else(|_| {
                    // It panicked, and the next one shall not wait for it.
                    this.store_reads.end(key);
                    Err(aborted)
                })
            };
            read.map(ended).boxed()
        });
        read.await
    }

    /// Queues a block to be written to a local file. If the queue has no room, it is written now.
    async fn store_locally(&self, key: BlockKey, whole: &Bytes) {
        let disk = self.disk.as_ref().filter(|disk| !disk.offer(key, whole.clone()));
        let Some(disk) = disk.map(Arc::clone) else { return };
        let whole = whole.clone();
        let _ = tokio::task::spawn_blocking(move || disk.keep(key, &whole)).await;
    }

    /// Bytes `range` of a cached block: copied to a place in a buffer, which grows if it is too
    /// short, or shared. Appends to `sums` the checksum of each page of them, cut at the ends of
    /// `range`. Nothing is appended if it is not cached, or if it is on a disk that had to be
    /// waited for and `wait` is unset.
    pub(crate) fn serve(
        &self,
        key: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served> {
        let from_disk = self.disk.as_ref().map(|disk| disk.serve(key, range, out, sums, wait));
        match from_disk {
            Some(Cached::Here(served)) => {
                match served {
                    Served::Copied => self.note_hit(range),
                    Served::Shared(_) => self.note_memory_hit(range),
                }
                return Cached::Here(served);
            }
            Some(Cached::Cold) => return Cached::Cold,
            Some(Cached::Missing) | None => {}
        }
        let staged = || self.staging.as_ref().is_some_and(|staging| staging.contains(key));
        let bytes = if wait { self.cached(key, range) } else { self.cached_in_memory(key, range) };
        if bytes.is_none() && !wait && staged() {
            return Cached::Cold;
        }
        let Some(bytes) = bytes else { return Cached::Missing };
        sums.extend(pages(range).map(|page| {
            let part = (page.start - range.start) as usize..(page.end - range.start) as usize;
            crc32c::crc32c(&bytes[part])
        }));
        Cached::Here(Served::Shared(bytes))
    }

    /// The file of a block, if all pages of `range` are whole, have checksums there and are in
    /// memory.
    pub(crate) fn file(&self, key: BlockKey, range: &Range<u32>) -> Cached<Arc<BlockFile>> {
        let Some(disk) = &self.disk else { return Cached::Missing };
        let file = match disk.file(key, false) {
            Cached::Here(file) if file.sums(range).is_some() => file,
            Cached::Here(_) => return Cached::Missing,
            other => return other,
        };
        if !is_resident(file.file(), u64::from(range.start)..u64::from(range.end)) {
            return Cached::Cold;
        }
        self.note_hit(range);
        Cached::Here(file)
    }

    fn cached_in_memory(&self, key: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let part = range.start as usize..range.end as usize;
        if let Some(whole) = self.memory.get(&key) {
            self.note_memory_hit(range);
            return Some(whole.slice(part));
        }
        let waiting = self.disk.as_ref()?.waiting(key)?;
        self.note_hit(range);
        Some(waiting.slice(part))
    }

    fn note_memory_hit(&self, range: &Range<u32>) {
        self.stats.memory_hits.add(1);
        self.stats.memory_hit_bytes.add(u64::from(range.end - range.start));
    }

    fn note_hit(&self, range: &Range<u32>) {
        self.stats.cache_hits.add(1);
        self.stats.cache_hit_bytes.add(u64::from(range.end - range.start));
    }

    /// A whole block for another client. It stays in the caches.
    pub(crate) async fn read_for_peer(self: &Arc<Self>, key: BlockKey) -> Fetched {
        if let Some(whole) = self.cached_whole(key).await {
            return Ok(whole);
        }
        // The member that had the block before answers at once, and asks nobody.
        let former = match &self.peers {
            Some(peers) => peers.fetch_from_former(key).await,
            None => None,
        };
        let whole = match former {
            Some(whole) => whole,
            None => self.read_store_once(key, true).await?,
        };
        self.keep(key, &whole, Purpose::Part);
        Ok(whole)
    }

    /// Keeps a block that another client uploaded.
    pub(crate) fn accept(&self, key: BlockKey, whole: &Bytes) {
        self.keep(key, whole, Purpose::Part);
    }

    async fn cached_whole(self: &Arc<Self>, key: BlockKey) -> Option<Bytes> {
        let this = Arc::clone(self);
        tokio::task::spawn_blocking(move || this.cached(key, &(0..key.size))).await.ok().flatten()
    }
}
