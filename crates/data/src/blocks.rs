//! Reads and writes blocks by key: in memory, in local files and in the object store.
//!
//! What must stay true: a read of a cached block runs on the calling thread, holds no lock over
//! I/O, and switches to no other thread. At most one fetch of a block runs at a time.

mod delete;
mod keep;
mod misses;
mod put;
mod shared;
mod store_reads;

use std::{
    ops::Range,
    path::Path,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use sluice_object::{Compression, ObjectError, ObjectStore};
use sluice_types::{FsError, FsResult, Interrupt};
use tokio::{
    runtime::Handle,
    sync::{Semaphore, SemaphorePermit},
};

use self::misses::Misses;
use crate::{
    block_on::block_on,
    budget::Budget,
    cache::{DiskCache, SecondChance},
    config::DataConfig,
    flight::{Flights, Leader, Role},
    layout::{BlockKey, Layout},
    peers::{OwnerAction, Peers},
    request_limit::{RequestLimit, until},
    staging::Staging,
    stats::Stats,
};

/// Share of the buffer size for buffers that are kept while nobody uses them.
const IDLE_SHARE: u64 = 8;
/// How often a block with wrong bytes is fetched before it counts as damaged.
const TRIES_DAMAGED: u32 = 3;
/// Pauses between tries of an upload: the first one, doubling up to the last.
const PAUSES: Range<Duration> = Duration::from_millis(50)..Duration::from_secs(5);
/// Reads of at most this share of a block are fetched by range.
const RANGED_SHARE: u32 = 4;
/// Blocks of at most this size are never fetched from other clients by range, if so many of them
/// fit into the memory cache. They hold a small file, of which a program mostly reads more than
/// one part. A request takes longer than so many bytes do.
const WHOLE: (u32, u64) = (64 << 10, 64);
/// So many checks of the memory after the last read-ahead, that memory is given back.
const AHEAD_CHECKS: u8 = 8;

/// What a block is fetched for, which decides where it is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A read of the whole block.
    Read,
    /// A read that will come.
    Ahead,
    /// A read of a part of it, which was served by range.
    Part,
    /// The local cache files alone. The caller writes the file.
    Warm,
}

/// All blocks of the volume.
#[derive(Debug)]
pub(crate) struct BlockStore {
    pub(crate) layout: Layout,
    pub(crate) stats: Arc<Stats>,
    pub(crate) budget: Arc<Budget>,
    store: Arc<dyn ObjectStore>,
    runtime: Handle,
    memory: SecondChance<BlockKey, Bytes>,
    /// Checks of the memory until nothing counts as read ahead any more.
    ahead: AtomicU8,
    disk: Option<Arc<DiskCache>>,
    staging: Option<Arc<Staging>>,
    peers: Option<Arc<dyn Peers>>,
    store_reads: store_reads::StoreReads,
    flights: Arc<Flights>,
    uploads: RequestLimit,
    downloads: RequestLimit,
    /// Downloads of whole blocks, which take memory.
    wholes: RequestLimit,
    deletes: RequestLimit,
    prefetches: Arc<Semaphore>,
    misses: Misses,
    /// Blocks that are fetched for the cache files or written to them.
    warms: Semaphore,
    compression: Compression,
    prefetch: bool,
    large_writes: bool,
    full_reads: bool,
    /// The store, if an fsync syncs it.
    synced: Option<Arc<dyn ObjectStore>>,
    give_up: Duration,
}

impl BlockStore {
    pub(crate) fn new(
        config: &DataConfig,
        store: Arc<dyn ObjectStore>,
        runtime: Handle,
        stats: Arc<Stats>,
        disk: Option<Arc<DiskCache>>,
        staging: Option<Arc<Staging>>,
    ) -> Self {
        Self {
            layout: Layout { block_size: config.block_size, hash_prefix: config.hash_prefix },
            stats,
            budget: Budget::new(
                config.buffer_size - sluice_object::keep_idle(config.buffer_size / IDLE_SHARE),
                disk.as_ref().map(|disk| disk.in_memory()).unwrap_or_default(),
            ),
            synced: config.sync_store.then(|| Arc::clone(&store)),
            store,
            runtime,
            memory: SecondChance::new(),
            ahead: AtomicU8::new(0),
            disk,
            staging,
            peers: config.peers.clone(),
            store_reads: store_reads::StoreReads::default(),
            flights: Arc::default(),
            uploads: RequestLimit::new(config.max_uploads),
            downloads: RequestLimit::new(config.max_downloads),
            wholes: RequestLimit::new(config.wholes()),
            deletes: RequestLimit::new(config.max_deletes),
            prefetches: Arc::new(Semaphore::new(config.prefetch)),
            misses: Misses::new(),
            warms: Semaphore::new(config.warms()),
            compression: config.compression,
            prefetch: config.prefetch > 0,
            large_writes: config.cache.large_writes,
            full_reads: config.cache.full_reads,
            give_up: config.give_up,
        }
    }

    pub(crate) fn runtime(&self) -> &Handle {
        &self.runtime
    }

    pub(crate) fn describe(&self) -> String {
        self.store.describe()
    }

    /// Makes stored data survive a power cut, also data that waits for its upload. Blocks; must not
    /// be called from the runtime's own threads.
    pub(crate) fn harden(&self) -> FsResult<()> {
        self.sync_store().map_err(FsError::io)?;
        let Some(staging) = &self.staging else { return Ok(()) };
        for key in staging.sync().map_err(FsError::io)? {
            let account = self.account_for(staging, key, staging.is_uploading(key));
            block_on(&self.runtime, account).map_err(FsError::io)?;
        }
        Ok(())
    }

    /// Makes all objects survive a power cut. Blocks, as [`Self::harden`] does.
    pub(crate) fn sync_store(&self) -> Result<(), ObjectError> {
        self.synced.as_ref().map_or(Ok(()), |store| block_on(&self.runtime, store.sync()))
    }

    /// Finds out what happened to a staged block whose file is gone. Another mount on this machine
    /// may have uploaded it, or this one may be uploading it.
    pub(crate) async fn account_for(
        &self,
        staging: &Staging,
        key: BlockKey,
        uploading: bool,
    ) -> Result<(), ObjectError> {
        match self.store.head(&self.layout.name(key)).await {
            Ok(_) if uploading => {}
            Ok(_) => staging.uploaded(key),
            Err(ObjectError::NotFound { .. }) if uploading => {
                return Err(self.unavailable("write", key, "its staged file is gone before it was uploaded"));
            }
            Err(ObjectError::NotFound { .. }) => staging.lose(key, "its file was removed before its upload"),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// How many staged blocks were lost, of all files, and how many of them were reported.
    pub(crate) fn lost(&self) -> (u64, u64) {
        self.staging.as_ref().map_or((0, 0), |staging| staging.lost())
    }

    /// Fails if more staged blocks were lost than the first `since`. If the caller still waits
    /// (`heard`), they count as reported.
    pub(crate) fn tell_lost(&self, since: u64, heard: bool) -> FsResult<()> {
        let (lost, _) = self.lost();
        if let Some(staging) = self.staging.as_ref().filter(|_| heard) {
            staging.reported(lost);
        }
        if lost > since {
            return Err(FsError::io("blocks that waited for their upload were lost; the log names them"));
        }
        Ok(())
    }

    pub(crate) fn staging(&self) -> Option<&Arc<Staging>> {
        self.staging.as_ref()
    }

    /// Bytes `range` of block `key`. Blocks until it has them or `interrupt` is set; must not be
    /// called from the runtime's own threads.
    pub(crate) fn read(
        self: &Arc<Self>,
        key: BlockKey,
        range: Range<u32>,
        interrupt: &Interrupt,
    ) -> Result<Bytes, ObjectError> {
        if let Some(bytes) = self.cached(key, &range) {
            return Ok(bytes);
        }
        self.stats.cache_misses.add(1);
        self.stats.cache_miss_bytes.add(u64::from(range.end - range.start));
        let little = (range.end - range.start) <= key.size / RANGED_SHARE;
        let ranged = self.store.ranged() && self.compression == Compression::None;
        // The owner of a block reads all of it, since others will ask for it.
        let little = little && self.flights.find(key).is_none() && !self.owns(key) && !self.comes_whole(key);
        if little && let Some(bytes) = self.part_from_peers(key, &range, interrupt) {
            return Ok(bytes);
        }
        if little && ranged {
            // Reads here and there in much data would fetch all of it.
            if self.prefetch && self.misses.again(key) {
                self.prefetch_quietly(key);
            }
            let fetch = pin!(self.fetch(key, Some(&range)));
            let fetched = block_on(&self.runtime, until(fetch, &mut || interrupt.is_set()));
            return fetched.unwrap_or_else(|| Err(self.in_vain(key)));
        }
        let whole = self.fetch_shared(key, Purpose::Read, interrupt)?;
        Ok(whole.slice(range.start as usize..range.end as usize))
    }

    /// Whether all of a small block is asked of other clients, whatever part of it is read.
    fn comes_whole(&self, key: BlockKey) -> bool {
        let (most, count) = WHOLE;
        self.peers.is_some() && key.size <= most && self.memory_capacity() >= u64::from(key.size) * count
    }

    /// Fetches a block, or waits for the fetch that is under way. Blocks until it is there or
    /// `interrupt` is set.
    fn fetch_shared(
        self: &Arc<Self>,
        key: BlockKey,
        purpose: Purpose,
        interrupt: &Interrupt,
    ) -> Result<Bytes, ObjectError> {
        let fetched = match self.flights.join(key) {
            Role::Leader(leader) => {
                let mut flight = Box::pin(Arc::clone(self).lead(leader, purpose));
                let fetched = block_on(&self.runtime, until(flight.as_mut(), &mut || interrupt.is_set()));
                if fetched.is_none() {
                    // Others may wait for it.
                    self.runtime.spawn(flight);
                }
                fetched
            }
            Role::Follower(flight) => flight.wait(self.give_up * 2, interrupt),
        };
        fetched.unwrap_or_else(|| Err(self.in_vain(key)))
    }

    /// Bytes `range` of block `key` if they are in memory or in a local file.
    pub(crate) fn cached(&self, key: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let len = u64::from(range.end - range.start);
        if let Some(whole) = self.memory.get(&key) {
            self.stats.memory_hits.add(1);
            self.stats.memory_hit_bytes.add(len);
            return Some(whole.slice(range.start as usize..range.end as usize));
        }
        let staged = self.staging.as_ref().and_then(|staging| staging.read(key, range));
        let found = staged.or_else(|| self.disk.as_ref().and_then(|disk| disk.read(key, range)))?;
        self.stats.cache_hits.add(1);
        self.stats.cache_hit_bytes.add(len);
        Some(found)
    }

    /// Whether a read of `key` needs no object store, or it is being fetched already.
    pub(crate) fn is_near(&self, key: BlockKey) -> bool {
        self.memory.contains(&key)
            || self.staging.as_ref().is_some_and(|staging| staging.contains(key))
            || self.disk.as_ref().is_some_and(|disk| disk.is_near(key))
            || self.flights.find(key).is_some()
    }

    /// Makes sure that `key` is cached by its owner: in a local file or, if there are no cache
    /// directories, in memory. Returns whether there was room for it. Blocks until then or until
    /// `interrupt` is set; must not be called from the runtime's own threads.
    pub(crate) fn warm(self: &Arc<Self>, key: BlockKey, interrupt: &Interrupt) -> Result<bool, ObjectError> {
        // Others do not have it before its upload.
        if self.staged(key).is_some() {
            return Ok(true);
        }
        if let Some(warmed) = self.at_owner(key, OwnerAction::Warm, interrupt) {
            return Ok(warmed);
        }
        self.warm_here(key, interrupt)
    }

    /// As [`Self::warm`], without the group: what another client asks for is never asked of a third
    /// one.
    pub(crate) fn warm_here(
        self: &Arc<Self>,
        key: BlockKey,
        interrupt: &Interrupt,
    ) -> Result<bool, ObjectError> {
        if self.location(key).is_some() {
            return Ok(true);
        }
        // All that are warmed up hold no more memory than all that are read, and under a limit of
        // bandwidth they keep readers waiting no longer than a moment.
        let place = block_on(&self.runtime, until(pin!(self.warms.acquire()), &mut || interrupt.is_set()));
        let Some(Ok(_place)) = place else { return Err(self.in_vain(key)) };
        let Some(disk) = &self.disk else {
            self.fetch_shared(key, Purpose::Warm, interrupt)?;
            return Ok(self.memory.contains(&key));
        };
        let near = self.memory.get(&key).or_else(|| disk.read(key, &(0..key.size)));
        let whole = match near {
            Some(whole) => whole,
            None => self.fetch_shared(key, Purpose::Warm, interrupt)?,
        };
        disk.keep(key, &whole);
        Ok(disk.contains(key))
    }

    /// The directory in which `key` waits for its upload.
    pub(crate) fn staged(&self, key: BlockKey) -> Option<&Path> {
        self.staging.as_ref().and_then(|staging| staging.location(key))
    }

    /// Drops the blocks of cache directories that somebody removed.
    pub(crate) fn notice_removal(&self) {
        if let Some(disk) = &self.disk {
            disk.notice_removal();
        }
    }

    /// Where `key` is cached: the directory of its local file, or `memory` if there are no cache
    /// directories.
    pub(crate) fn location(&self, key: BlockKey) -> Option<&Path> {
        if let Some(staged) = self.staged(key) {
            return Some(staged);
        }
        match &self.disk {
            Some(disk) => disk.location(key),
            None => self.memory.contains(&key).then(|| Path::new("memory")),
        }
    }

    /// Starts to fetch `key` into the caches, unless it is there or memory is short.
    pub(crate) fn prefetch(self: &Arc<Self>, key: BlockKey) {
        let crowded = self.budget.used() * 5 > self.budget.limit() * 4;
        if crowded || self.is_near(key) {
            return;
        }
        if let Role::Leader(leader) = self.flights.join(key) {
            self.stats.prefetches.add(1);
            self.ahead.store(AHEAD_CHECKS, Ordering::Relaxed);
            self.runtime.spawn(Arc::clone(self).lead(leader, Purpose::Ahead));
        }
    }

    /// As [`Self::prefetch`], but only a few at a time: for reads that may not need the block
    /// again.
    fn prefetch_quietly(self: &Arc<Self>, key: BlockKey) {
        let Ok(permit) = Arc::clone(&self.prefetches).try_acquire_owned() else { return };
        if let Role::Leader(leader) = self.flights.join(key) {
            self.stats.prefetches.add(1);
            let fetch = Arc::clone(self).lead(leader, Purpose::Part);
            self.runtime.spawn(async move {
                let fetched = fetch.await;
                drop((fetched, permit));
            });
        }
    }

    /// Fetches a block for all who wait for it.
    async fn lead(self: Arc<Self>, leader: Leader, purpose: Purpose) -> Result<Bytes, ObjectError> {
        let key = leader.key();
        // After the caller's check, another fetch may have ended.
        let fetched = if let Some(whole) = self.memory.get(&key) {
            Ok(whole)
        } else {
            let fetched = self.fetch_whole(key).await;
            if let Ok(whole) = &fetched {
                self.keep(key, whole, purpose);
            }
            fetched
        };
        leader.complete(fetched.clone());
        fetched
    }

    /// Gets `key`, or `range` of it, from the store. The result has the right length.
    async fn fetch(&self, key: BlockKey, range: Option<&Range<u32>>) -> Result<Bytes, ObjectError> {
        let _whole = match range {
            None => Some(self.permit(&self.wholes, "read", key).await?),
            Some(_) => None,
        };
        let _permit = self.permit(&self.downloads, "read", key).await?;
        let _charge = self.budget.charge(u64::from(range.map_or(key.size, |range| range.end - range.start)));
        let name = self.layout.name(key);
        let wanted = range.map_or(key.size, |range| range.end - range.start) as usize;
        let mut tries = 0;
        loop {
            tries += 1;
            let started = Instant::now();
            let got = match range {
                Some(range) => {
                    self.store.get(&name, Some(u64::from(range.start)..u64::from(range.end))).await
                }
                None => self.store.get_whole(&name, u64::from(key.size)).await,
            };
            self.stats.gets.add(1);
            self.stats.times.get.observe(started.elapsed());
            let decoded = got.and_then(|stored| {
                self.stats.get_bytes.add(stored.len() as u64);
                self.compression.decode(stored, wanted).map_err(|error| self.damaged(key, &error.to_string()))
            });
            let error = match decoded {
                Ok(bytes) => {
                    self.downloads.served();
                    self.wholes.served();
                    return Ok(bytes);
                }
                Err(error) => error,
            };
            self.stats.object_errors.add(1);
            if !matches!(error, ObjectError::Corrupt { .. }) || tries == TRIES_DAMAGED {
                return Err(error);
            }
        }
    }

    /// Waits for a permit to send a request to the store.
    async fn permit<'a>(
        &self,
        limit: &'a RequestLimit,
        action: &'static str,
        key: BlockKey,
    ) -> Result<SemaphorePermit<'a>, ObjectError> {
        limit.permit(self.give_up).await.map_err(|reason| self.unavailable(action, key, reason))
    }

    fn damaged(&self, key: BlockKey, reason: &str) -> ObjectError {
        ObjectError::Corrupt {
            key: self.layout.name(key),
            store: self.store.describe(),
            reason: reason.into(),
        }
    }

    /// Nobody waits any more, or it took too long.
    fn in_vain(&self, key: BlockKey) -> ObjectError {
        self.unavailable("read", key, "it did not come while it was waited for")
    }

    fn unavailable(&self, action: &'static str, key: BlockKey, reason: &str) -> ObjectError {
        ObjectError::Unavailable {
            action,
            key: self.layout.name(key),
            store: self.store.describe(),
            reason: reason.into(),
        }
    }
}
