//! One directory of cache files with its limits. A separate thread writes the blocks.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_object::direct::{self, Direct};
use sluice_types::{Rng, job};

use super::{
    dir_index::DirIndex,
    file::{self, OpenFiles},
    upkeep::{Expiry, Stop},
};
use crate::{
    config::{CacheConfig, Verify},
    free_space::free_ratio,
    layout::{BlockKey, Layout},
    stats::Stats,
};

/// Blocks waiting to be written.
const QUEUE: usize = 4096;
/// If so many times the size of a block waits to be written, blocks come faster than they are
/// written.
const BEHIND: u64 = 2;
/// How often free space is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a directory that failed is not used.
const REST: Duration = Duration::from_secs(30);
/// Failures in a row after which a directory is not used for a while.
const FAILURES: u32 = 3;

/// One directory.
#[derive(Debug)]
pub(super) struct Dir {
    root: PathBuf,
    layout: Layout,
    config: CacheConfig,
    /// Its share of the limits.
    bytes: u64,
    items: u64,
    index: Mutex<DirIndex>,
    /// Open files, which are closed when they are removed, because an open file keeps its space.
    open: Arc<OpenFiles>,
    health: Mutex<Health>,
    /// Held while somebody looks whether the directory was removed.
    noticing: Mutex<()>,
    /// Blocks to be written. One that is removed meanwhile is not in here any more, and then not
    /// kept.
    waiting: Mutex<FxHashMap<BlockKey, Bytes>>,
    /// How large blocks are written that come too fast.
    direct: Direct,
    /// The order in which they are written.
    queue: Mutex<Option<SyncSender<BlockKey>>>,
    stopped: Stop,
    /// Bytes of all that wait, all directories together.
    queued: Arc<AtomicU64>,
    stats: Arc<Stats>,
}

#[derive(Debug, Default)]
struct Health {
    failures: u32,
    resting: Option<Instant>,
    looked: Option<Instant>,
    full: bool,
}

impl Dir {
    pub(super) fn new(
        root: PathBuf,
        layout: Layout,
        config: &CacheConfig,
        (open, queued, stats): (Arc<OpenFiles>, Arc<AtomicU64>, Arc<Stats>),
    ) -> Self {
        let count = config.dirs.len() as u64;
        Self {
            root,
            layout,
            config: config.clone(),
            bytes: config.size / count,
            items: if config.items == 0 { u64::MAX } else { (config.items / count).max(1) },
            index: Mutex::new(DirIndex::new(Rng::from_os())),
            open,
            health: Mutex::default(),
            noticing: Mutex::new(()),
            waiting: Mutex::default(),
            direct: Direct::new(1, direct::LARGE),
            queue: Mutex::new(None),
            stopped: Stop::default(),
            queued,
            stats,
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn contains(&self, key: BlockKey) -> bool {
        self.index.lock().contains(key)
    }

    /// A block that waits to be written.
    pub(super) fn waiting(&self, key: BlockKey) -> Option<Bytes> {
        self.waiting.lock().get(&key).cloned()
    }

    /// Whether a block is here; it was used.
    pub(super) fn touch(&self, key: BlockKey) -> bool {
        self.index.lock().touch(key)
    }

    /// A number that grows with each use.
    #[cfg(test)]
    pub(super) fn tick(&self) -> u64 {
        self.index.lock().tick()
    }

    /// Queues a block to be written, if there is room in the queue.
    pub(super) fn offer(&self, key: BlockKey, data: Bytes) -> bool {
        let queue = self.queue.lock();
        let Some(queue) = queue.as_ref() else { return false };
        self.wait(key, data);
        let taken = queue.try_send(key).is_ok();
        if !taken {
            self.forget(key);
            self.stats.cache_drops.add(1);
        }
        taken
    }

    /// Ends the writing thread once it has written what it was given, and the upkeep.
    pub(super) fn stop(&self) {
        self.queue.lock().take();
        self.stopped.set();
    }

    pub(super) fn path(&self, key: BlockKey) -> PathBuf {
        self.root.join(self.layout.name(key))
    }

    /// Starts the threads: one looks what is here, the other writes what it is given.
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        *self.queue.lock() = Some(sender);
        let dir = Arc::clone(self);
        thread::Builder::new().name("sluice-scan".into()).spawn({
            let dir = Arc::clone(self);
            job("sluice-scan", move || dir.keep_up())
        })?;
        let keep = job("sluice-cache", move || {
            for key in receiver {
                let Some(data) = dir.waiting.lock().get(&key).cloned() else { continue };
                dir.store(key, &data);
                if !dir.forget(key) {
                    // It was removed while it was written.
                    dir.remove(key);
                }
            }
        });
        thread::Builder::new().name("sluice-cache".into()).spawn(keep)?;
        Ok(())
    }

    /// Holds a block until it is written.
    pub(super) fn wait(&self, key: BlockKey, data: Bytes) {
        self.queued.fetch_add(data.len() as u64, Ordering::Relaxed);
        if let Some(twice) = self.waiting.lock().insert(key, data) {
            self.queued.fetch_sub(twice.len() as u64, Ordering::Relaxed);
        }
    }

    /// Drops a queued block. Returns whether it was queued.
    fn forget(&self, key: BlockKey) -> bool {
        let held = self.waiting.lock().remove(&key);
        if let Some(data) = &held {
            self.queued.fetch_sub(data.len() as u64, Ordering::Relaxed);
        }
        held.is_some()
    }

    /// Scans the directory, again from time to time, and drops blocks that were not used for long.
    fn keep_up(&self) {
        self.scan();
        let CacheConfig { expire, scan_interval, .. } = self.config;
        let begun = Instant::now();
        let next = |interval: Duration, from: Instant| (!interval.is_zero()).then(|| from + interval);
        let mut expiry = Expiry::new(expire);
        let (mut scan, mut look) = (next(scan_interval, begun), next(expire, begun));
        while let Some(due) = scan.into_iter().chain(look).min() {
            if !self.stopped.wait_until(due) {
                return;
            }
            let now = Instant::now();
            if look.is_some_and(|due| due <= now) {
                self.expire(&mut expiry, now);
                look = next(expiry.interval(), now);
            }
            if scan.is_some_and(|due| due <= now) {
                self.scan();
                // A search that takes long is not begun again at once.
                scan = next(scan_interval, Instant::now());
            }
        }
    }

    /// Indexes the files that an earlier process or another one left, and drops those that are
    /// gone.
    fn scan(&self) {
        let known = self.index.lock().keys();
        for key in known {
            if self.stopped.is_set() {
                return;
            }
            if !self.path(key).exists() {
                self.remove(key);
            }
        }
        file::each_block(&self.root, |path, key| self.found(path, key));
    }

    /// Drops the blocks of a directory that somebody removed. A scan finds single files that went.
    pub(super) fn notice_removal(&self) {
        // Whoever finds the directory again waits until what it held is dropped.
        let _one = self.noticing.lock();
        if self.root.exists() {
            return;
        }
        let known = self.index.lock().keys();
        if !known.is_empty() {
            tracing::warn!(dir = %self.root.display(), "the cache directory was removed, and what it held is dropped");
        }
        for key in known {
            // Some may have been written again meanwhile.
            if !self.path(key).exists() {
                self.remove(key);
            }
        }
    }

    /// Drops blocks that were not used for as long as `expiry` says.
    fn expire(&self, expiry: &mut Expiry, now: Instant) {
        let Some(tick) = expiry.look(now, self.index.lock().tick()) else { return };
        let unused = self.index.lock().unused_since(tick);
        for key in unused {
            self.stats.cache_evictions.add(1);
            self.remove(key);
        }
    }

    /// Notes a file that was seen, unless it went meanwhile.
    fn found(&self, path: &Path, key: BlockKey) {
        // One that is known was not used by being seen.
        if path != self.path(key) || self.contains(key) {
            return;
        }
        self.note(key);
        // A removal deletes the file first. So either the file is missing here, or the removal
        // drops this entry.
        if !path.exists() {
            self.remove(key);
        }
    }

    /// Writes a block, if there is room or room can be made.
    pub(super) fn store(&self, key: BlockKey, data: &Bytes) {
        if !self.is_well() || !self.has_room(key) {
            self.stats.cache_drops.add(1);
            return;
        }
        let started = Instant::now();
        let checksums = self.config.verify != Verify::None;
        // Pages of the page cache are only worth their time if there is time.
        let behind = self.queued.load(Ordering::Relaxed) >= BEHIND * data.len() as u64;
        let fill = |file: &mut fs::File| {
            if behind { self.direct.write(file, data) } else { file.write_all(data) }
        };
        match file::write_with(&self.path(key), data, checksums, self.config.mode, fill) {
            Ok(()) => {
                self.health.lock().failures = 0;
                self.stats.cache_writes.add(1);
                self.stats.cache_write_bytes.add(data.len() as u64);
                self.stats.times.cache_write.observe(started.elapsed());
                self.note(key);
            }
            Err(error) => self.failed(&error),
        }
    }

    fn is_well(&self) -> bool {
        let mut health = self.health.lock();
        if health.resting.is_some_and(|since| since.elapsed() > REST) {
            health.resting = None;
        }
        health.resting.is_none()
    }

    fn failed(&self, error: &std::io::Error) {
        let mut health = self.health.lock();
        health.failures += 1;
        let full = error.kind() == std::io::ErrorKind::StorageFull;
        if full || health.failures >= FAILURES {
            tracing::warn!(dir = %self.root.display(), %error, "the cache directory is left alone for a while");
            health.resting = Some(Instant::now());
        }
        drop(health);
        self.stats.cache_drops.add(1);
        if full {
            // Other programs may need the space.
            for _ in 0..8 {
                self.evict();
            }
        }
    }

    /// Makes room for a block if it can.
    pub(super) fn has_room(&self, key: BlockKey) -> bool {
        let more = file::disk_bytes(key.size);
        loop {
            let index = self.index.lock();
            let fits = index.bytes() + more <= self.bytes && (index.len() as u64) < self.items;
            drop(index);
            if fits && !self.is_full() {
                return true;
            }
            if !self.evict() {
                return false;
            }
            self.health.lock().looked = None;
        }
    }

    /// Whether the file system has less free space than it should keep.
    fn is_full(&self) -> bool {
        let mut health = self.health.lock();
        if health.looked.is_none_or(|at| at.elapsed() > CHECK_INTERVAL) {
            health.looked = Some(Instant::now());
            health.full = free_ratio(&self.root).is_ok_and(|free| free < self.config.free_space_ratio);
        }
        health.full
    }

    fn evict(&self) -> bool {
        let Some(victim) = self.index.lock().evict(self.config.eviction) else { return false };
        self.open.remove(&victim);
        self.stats.cache_evictions.add(1);
        self.gone(victim);
        // A scan may have found it before its file was removed.
        self.remove(victim);
        true
    }

    pub(super) fn note(&self, key: BlockKey) {
        let bytes = file::disk_bytes(key.size);
        if self.index.lock().add(key, bytes) {
            self.stats.cache_blocks.add(1);
            self.stats.cache_bytes.add(bytes);
        }
    }

    pub(super) fn remove(&self, key: BlockKey) {
        self.forget(key);
        // Also one that no scan has found yet.
        let _ = fs::remove_file(self.path(key));
        if self.index.lock().remove(key) {
            self.open.remove(&key);
            self.gone(key);
        }
    }

    fn gone(&self, key: BlockKey) {
        self.stats.cache_blocks.sub(1);
        self.stats.cache_bytes.sub(file::disk_bytes(key.size));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_used_for_long_goes() {
        let place = tempfile::tempdir().unwrap();
        let config = CacheConfig { dirs: vec![place.path().into()], ..CacheConfig::default() };
        let layout = Layout { block_size: 4096, hash_prefix: false };
        let shared = (Arc::new(OpenFiles::new()), Arc::default(), Arc::default());
        let dir = Dir::new(place.path().join("raw"), layout, &config, shared);
        let [old, used] = [1, 2].map(|id| BlockKey { id, index: 0, size: 3 });
        for key in [old, used] {
            dir.store(key, &Bytes::from_static(b"abc"));
        }
        let begun = Instant::now();
        let mut expiry = Expiry::new(Duration::from_mins(1));
        dir.expire(&mut expiry, begun);
        assert!(dir.touch(used));
        dir.expire(&mut expiry, begun + Duration::from_secs(59));
        dir.scan();
        assert!(dir.contains(old) && dir.contains(used));
        dir.expire(&mut expiry, begun + Duration::from_mins(1));
        assert!(!dir.contains(old) && dir.contains(used));
        assert!(!dir.path(old).exists() && dir.path(used).exists());
    }

    #[test]
    fn blocks_that_come_too_fast_are_written_whole() {
        let place = tempfile::tempdir().unwrap();
        let config = CacheConfig { dirs: vec![place.path().into()], ..CacheConfig::default() };
        let layout = Layout { block_size: 4 << 20, hash_prefix: false };
        let shared = (Arc::new(OpenFiles::new()), Arc::default(), Arc::default());
        let dir = Dir::new(place.path().join("raw"), layout, &config, shared);
        for (id, size) in [(1, 4 << 20), (2, (1 << 20) + 5)] {
            let mut data = sluice_object::Buffer::with_length(size as usize);
            data.iter_mut().zip(0_u32..).for_each(|(byte, at)| *byte = (at % 251) as u8);
            let (data, key) = (Bytes::from(data), BlockKey { id, index: 0, size });
            for behind in [key, BlockKey { id: 9, ..key }] {
                dir.wait(behind, data.clone());
            }
            dir.store(key, &data);
            let file = file::BlockFile::open(&dir.path(key), size, Verify::Full, true).unwrap();
            assert!(file.read(&(0..size), Verify::Full).unwrap() == data, "{size}");
        }
    }

    #[test]
    fn what_was_removed_before_or_while_it_was_found_is_not_here() {
        let place = tempfile::tempdir().unwrap();
        let config = CacheConfig { dirs: vec![place.path().into()], ..CacheConfig::default() };
        let layout = Layout { block_size: 4096, hash_prefix: false };
        let shared = (Arc::new(OpenFiles::new()), Arc::default(), Arc::default());
        let dir = Dir::new(place.path().join("raw"), layout, &config, shared);
        let (before, meanwhile) =
            (BlockKey { id: 1, index: 0, size: 3 }, BlockKey { id: 2, index: 0, size: 3 });
        for key in [before, meanwhile] {
            file::write(&dir.path(key), &Bytes::from_static(b"abc"), false, 0o600).unwrap();
        }
        dir.remove(before);
        dir.scan();
        assert!(!dir.contains(before) && dir.contains(meanwhile));

        let (added, gone) = (BlockKey { id: 3, index: 0, size: 3 }, dir.path(meanwhile));
        file::write(&dir.path(added), &Bytes::from_static(b"abc"), false, 0o600).unwrap();
        fs::remove_file(&gone).unwrap();
        dir.scan();
        assert!(dir.contains(added) && !dir.contains(meanwhile), "another process changed the directory");
        dir.remove(added);

        let path = dir.path(meanwhile);
        dir.note(meanwhile);
        dir.remove(meanwhile);
        dir.found(&path, meanwhile);
        assert!(!dir.contains(meanwhile));
        assert_eq!((dir.stats.cache_blocks.get(), dir.stats.cache_bytes.get()), (0, 0));
    }
}
