//! Blocks in local files: `<dir>/<volume>/raw/<object name>`, in one or several directories.
//!
//! What must stay true: a directory that fills up, breaks or vanishes costs speed and nothing else.

use std::{
    fs,
    ops::Range,
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
use sluice_types::Rng;

use super::{
    SecondChance,
    file::{self, BlockFile, Damaged},
    shelf::Shelf,
};
use crate::{
    config::{CacheConfig, DataConfig, Verify},
    error::DataError,
    layout::{BlockKey, Layout, parse_name},
    stats::Stats,
};

/// Blocks waiting to be written, per directory.
const QUEUE: usize = 4096;
/// Share of the buffer size that blocks waiting to be written may take.
const QUEUE_SHARE: u64 = 8;
/// Files kept open, all directories together.
const OPEN_FILES: u64 = 512;
/// How often free space is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// For how long a directory that failed is left alone.
const REST: Duration = Duration::from_secs(30);
/// Failures in a row after which a directory is left alone.
const FAILURES: u32 = 3;

/// The cache files of one volume.
#[derive(Debug)]
pub(crate) struct DiskCache {
    dirs: Vec<Arc<Dir>>,
    open: Arc<OpenFiles>,
    queued: Arc<AtomicU64>,
    queue_limit: u64,
    verify: Verify,
    stats: Arc<Stats>,
}

type OpenFiles = SecondChance<BlockKey, Arc<BlockFile>>;

/// One directory.
#[derive(Debug)]
struct Dir {
    root: PathBuf,
    layout: Layout,
    config: CacheConfig,
    /// Its share of the limits.
    bytes: u64,
    items: u64,
    shelf: Mutex<Shelf>,
    /// An open file keeps its space, so that what goes is closed.
    open: Arc<OpenFiles>,
    health: Mutex<Health>,
    /// Blocks to be written. One that is removed meanwhile is not in here any more, and then not kept.
    waiting: Mutex<FxHashMap<BlockKey, Bytes>>,
    /// The order in which they are written.
    queue: Mutex<Option<SyncSender<BlockKey>>>,
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

impl DiskCache {
    /// Opens the directories of `config` and starts to look what is there; `None` if there are none.
    pub(crate) fn open(
        config: &DataConfig,
        layout: Layout,
        stats: Arc<Stats>,
    ) -> Result<Option<Arc<Self>>, DataError> {
        let cache = &config.cache;
        if cache.dirs.is_empty() || cache.size == 0 {
            return Ok(None);
        }
        let count = cache.dirs.len() as u64;
        let queued = Arc::new(AtomicU64::new(0));
        let open = Arc::new(OpenFiles::new());
        let mut dirs = Vec::new();
        for path in &cache.dirs {
            let root = path.join(&config.volume).join("raw");
            fs::create_dir_all(&root).map_err(|why| DataError::CacheDir { path: path.clone(), why })?;
            let dir = Arc::new(Dir {
                root,
                layout,
                config: cache.clone(),
                bytes: cache.size / count,
                items: if cache.items == 0 { u64::MAX } else { (cache.items / count).max(1) },
                shelf: Mutex::new(Shelf::new(Rng::from_os())),
                open: Arc::clone(&open),
                health: Mutex::default(),
                waiting: Mutex::default(),
                queue: Mutex::new(None),
                queued: Arc::clone(&queued),
                stats: Arc::clone(&stats),
            });
            dir.start().map_err(DataError::Threads)?;
            dirs.push(dir);
        }
        let block = u64::from(config.block_size);
        Ok(Some(Arc::new(Self {
            dirs,
            open,
            queued,
            queue_limit: (config.buffer_size / QUEUE_SHARE).max(2 * block),
            verify: cache.verify,
            stats,
        })))
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.dirs.iter().any(|dir| dir.shelf.lock().contains(key))
    }

    /// Bytes `range` of a block, if it is here and sound.
    pub(crate) fn read(&self, key: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let dir = self.dirs.iter().find(|dir| dir.shelf.lock().touch(key))?;
        let started = Instant::now();
        let read = self.open_file(dir, key).and_then(|file| file.read(range, self.verify));
        match read {
            Ok(bytes) => {
                self.stats.cache_read_time.observe(started.elapsed());
                Some(bytes)
            }
            Err(error) => {
                let gone =
                    matches!(&error, Damaged::Io(error) if error.kind() == std::io::ErrorKind::NotFound);
                if !gone {
                    tracing::warn!(path = %dir.path(key).display(), %error, "a cache file is damaged and goes");
                    self.stats.cache_damaged.add(1);
                }
                dir.remove(key);
                None
            }
        }
    }

    fn open_file(&self, dir: &Dir, key: BlockKey) -> Result<Arc<BlockFile>, Damaged> {
        if let Some(file) = self.open.get(&key) {
            return Ok(file);
        }
        let file = Arc::new(BlockFile::open(&dir.path(key), key.size, self.verify)?);
        self.open.insert(key, Arc::clone(&file), 1, OPEN_FILES);
        Ok(file)
    }

    /// Takes a block to keep if that can be done without anybody waiting.
    pub(crate) fn offer(&self, key: BlockKey, data: Bytes) {
        let len = data.len() as u64;
        let dir = self.home(key);
        let crowded = self.queued.load(Ordering::Relaxed) + len > self.queue_limit;
        if crowded || dir.shelf.lock().contains(key) {
            self.stats.cache_drops.add(u64::from(crowded));
            return;
        }
        let queue = dir.queue.lock();
        let Some(queue) = queue.as_ref() else { return };
        dir.wait(key, data);
        if queue.try_send(key).is_err() {
            dir.forget(key);
            self.stats.cache_drops.add(1);
        }
    }

    /// Writes a block now, on this thread, if there is room.
    pub(crate) fn keep(&self, key: BlockKey, data: &Bytes) {
        let dir = self.home(key);
        if !dir.shelf.lock().contains(key) {
            dir.store(key, data);
        }
    }

    /// Makes the file at `path`, on the same file system, the cache file of `key`.
    pub(crate) fn adopt(&self, key: BlockKey, path: &Path) -> std::io::Result<()> {
        let dir = self.home(key);
        if !dir.has_room(key) {
            return fs::remove_file(path);
        }
        let target = dir.path(key);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::rename(path, &target).or_else(|_| fs::remove_file(path))?;
        dir.note(key);
        Ok(())
    }

    pub(crate) fn remove(&self, key: BlockKey) {
        for dir in &self.dirs {
            dir.remove(key);
        }
    }

    /// Ends the background threads once they have written what they were given.
    pub(crate) fn stop(&self) {
        for dir in &self.dirs {
            dir.queue.lock().take();
        }
    }

    /// The directory where a block goes: of all, the one that draws the highest lot for it, so that a directory
    /// more or less moves few blocks.
    fn home(&self, key: BlockKey) -> &Arc<Dir> {
        let lot = |dir: &&Arc<Dir>| {
            let mut lot = [0; 12];
            lot[..8].copy_from_slice(&key.id.to_le_bytes());
            lot[8..].copy_from_slice(&key.index.to_le_bytes());
            crc32c::crc32c_append(crc32c::crc32c(dir.root.as_os_str().as_encoded_bytes()), &lot)
        };
        self.dirs.iter().max_by_key(lot).unwrap_or(&self.dirs[0])
    }
}

impl Dir {
    fn path(&self, key: BlockKey) -> PathBuf {
        self.root.join(self.layout.name(key))
    }

    /// Starts the thread that first looks what is here and then writes what it is given.
    fn start(self: &Arc<Self>) -> std::io::Result<()> {
        let (sender, receiver) = mpsc::sync_channel(QUEUE);
        *self.queue.lock() = Some(sender);
        let dir = Arc::clone(self);
        thread::Builder::new().name("sluice-scan".into()).spawn({
            let dir = Arc::clone(self);
            move || dir.scan()
        })?;
        thread::Builder::new().name("sluice-cache".into()).spawn(move || {
            for key in receiver {
                let Some(data) = dir.waiting.lock().get(&key).cloned() else { continue };
                dir.store(key, &data);
                if !dir.forget(key) {
                    // It was removed while it was written.
                    dir.remove(key);
                }
            }
        })?;
        Ok(())
    }

    /// Holds a block until it is written.
    fn wait(&self, key: BlockKey, data: Bytes) {
        self.queued.fetch_add(data.len() as u64, Ordering::Relaxed);
        if let Some(twice) = self.waiting.lock().insert(key, data) {
            self.queued.fetch_sub(twice.len() as u64, Ordering::Relaxed);
        }
    }

    /// Holds a block no longer; says whether it was held.
    fn forget(&self, key: BlockKey) -> bool {
        let held = self.waiting.lock().remove(&key);
        if let Some(data) = &held {
            self.queued.fetch_sub(data.len() as u64, Ordering::Relaxed);
        }
        held.is_some()
    }

    /// Indexes the files that an earlier process left.
    fn scan(&self) {
        let mut rest = vec![self.root.clone()];
        while let Some(path) = rest.pop() {
            let Ok(entries) = fs::read_dir(&path) else { continue };
            for entry in entries.flatten() {
                let (path, name) = (entry.path(), entry.file_name());
                let name = name.to_string_lossy();
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    rest.push(path);
                } else if file::is_temporary(&name) {
                    // It may be one that is being written just now.
                    let age = entry.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed());
                    if age.is_ok_and(|age| age.is_ok_and(|age| age > Duration::from_mins(1))) {
                        let _ = fs::remove_file(path);
                    }
                } else if let Some(key) = parse_name(&name).filter(|key| path == self.path(*key)) {
                    self.note(key);
                }
            }
        }
    }

    /// Writes a block, if there is room or room can be made.
    fn store(&self, key: BlockKey, data: &Bytes) {
        if !self.is_well() || !self.has_room(key) {
            self.stats.cache_drops.add(1);
            return;
        }
        let started = Instant::now();
        let checksums = self.config.verify != Verify::None;
        match file::write(&self.path(key), data, checksums, self.config.mode) {
            Ok(()) => {
                self.health.lock().failures = 0;
                self.stats.cache_writes.add(1);
                self.stats.cache_write_bytes.add(data.len() as u64);
                self.stats.cache_write_time.observe(started.elapsed());
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
            // Others may need the space more.
            for _ in 0..8 {
                self.evict();
            }
        }
    }

    /// Makes room for a block if it can.
    fn has_room(&self, key: BlockKey) -> bool {
        let more = file::disk_bytes(key.size);
        loop {
            let shelf = self.shelf.lock();
            let fits = shelf.bytes() + more <= self.bytes && (shelf.len() as u64) < self.items;
            drop(shelf);
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
        if health.looked.is_none_or(|at| at.elapsed() > LOOK) {
            health.looked = Some(Instant::now());
            let share =
                |free: u64, all: u64| all > 0 && (free as f64) < self.config.free_space_ratio * all as f64;
            health.full = rustix::fs::statvfs(&self.root)
                .is_ok_and(|stat| share(stat.f_bavail, stat.f_blocks) || share(stat.f_favail, stat.f_files));
        }
        health.full
    }

    fn evict(&self) -> bool {
        let Some(victim) = self.shelf.lock().evict(self.config.eviction) else { return false };
        self.open.remove(&victim);
        let _ = fs::remove_file(self.path(victim));
        self.stats.cache_evictions.add(1);
        self.stats.cache_blocks.sub(1);
        self.stats.cache_bytes.sub(file::disk_bytes(victim.size));
        true
    }

    fn note(&self, key: BlockKey) {
        let bytes = file::disk_bytes(key.size);
        if self.shelf.lock().add(key, bytes) {
            self.stats.cache_blocks.add(1);
            self.stats.cache_bytes.add(bytes);
        }
    }

    fn remove(&self, key: BlockKey) {
        self.forget(key);
        if self.shelf.lock().remove(key) {
            self.open.remove(&key);
            let _ = fs::remove_file(self.path(key));
            self.stats.cache_blocks.sub(1);
            self.stats.cache_bytes.sub(file::disk_bytes(key.size));
        }
    }
}
