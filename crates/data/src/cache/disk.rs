//! Blocks in local files: `<dir>/<volume>/raw/<object name>`, in one or several directories.
//!
//! What must stay true: if a directory fills up, fails or disappears, reads get slower, but nothing
//! else happens.

use std::{
    fs,
    io::ErrorKind,
    ops::Range,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use bytes::Bytes;

use super::{
    Cached, Served,
    dir::Dir,
    file::{BlockFile, Damaged, OpenFiles},
    kept::Kept,
};
use crate::{
    config::{DataConfig, Verify},
    error::DataError,
    layout::{BlockKey, Layout},
    stats::Stats,
};

/// Share of the buffer size that blocks waiting to be written may take.
const QUEUE_SHARE: u64 = 8;
/// Share of the files that the process may open that are kept open, all directories together.
const OPEN_SHARE: u64 = 4;
/// Most files kept open. The kernel needs about 1 KiB of memory for each.
const MOST_OPEN: u64 = 32 << 10;

/// The cache files of one volume.
#[derive(Debug)]
pub(crate) struct DiskCache {
    dirs: Vec<Arc<Dir>>,
    open: Arc<OpenFiles>,
    /// Files kept open at most.
    most_open: u64,
    kept: Kept,
    queued: Arc<AtomicU64>,
    queue_limit: u64,
    verify: Verify,
    stats: Arc<Stats>,
}

impl DiskCache {
    /// Opens the directories of `config` and starts to scan them; `None` if there are none.
    pub(crate) fn open(
        config: &DataConfig,
        layout: Layout,
        stats: Arc<Stats>,
    ) -> Result<Option<Arc<Self>>, DataError> {
        let cache = &config.cache;
        if cache.dirs.is_empty() || cache.size == 0 {
            return Ok(None);
        }
        let queued = Arc::new(AtomicU64::new(0));
        let open = Arc::new(OpenFiles::new());
        let mut dirs = Vec::new();
        for path in &cache.dirs {
            let root = path.join(&config.volume).join("raw");
            fs::create_dir_all(&root).map_err(|why| DataError::CacheDir { path: path.clone(), why })?;
            let shared = (Arc::clone(&open), Arc::clone(&queued), Arc::clone(&stats));
            let dir = Arc::new(Dir::new(root, layout, cache, shared));
            dir.start().map_err(DataError::Threads)?;
            dirs.push(dir);
        }
        let block = u64::from(config.block_size);
        Ok(Some(Arc::new(Self {
            dirs,
            open,
            most_open: most_open(),
            kept: Kept::new(),
            queued,
            queue_limit: (config.buffer_size / QUEUE_SHARE).max(2 * block),
            verify: cache.verify,
            stats,
        })))
    }

    /// Bytes in memory: of all blocks that wait to be written, and of all that are kept for other
    /// clients.
    pub(crate) fn in_memory(&self) -> [Arc<AtomicU64>; 2] {
        [&self.queued, self.kept.bytes()].map(Arc::clone)
    }

    /// Whether a block is here: in a file, or queued to be written.
    pub(crate) fn is_near(&self, key: BlockKey) -> bool {
        self.contains(key) || self.home(key).waiting(key).is_some()
    }

    /// Drops the blocks of directories that somebody removed.
    pub(crate) fn notice_removal(&self) {
        self.dirs.iter().for_each(|dir| dir.notice_removal());
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.location(key).is_some()
    }

    /// The directory that has a block.
    pub(crate) fn location(&self, key: BlockKey) -> Option<&Path> {
        self.dirs.iter().find(|dir| dir.contains(key)).map(|dir| dir.root())
    }

    /// Bytes `range` of a block, if it is here and its checksums are right.
    pub(crate) fn read(&self, key: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let Some(dir) = self.dirs.iter().find(|dir| dir.touch(key)) else {
            let waiting = self.home(key).waiting(key)?;
            return Some(waiting.slice(range.start as usize..range.end as usize));
        };
        self.with_file(dir, key, |file| file.read(range, self.verify))
    }

    /// As [`BlockFile::serve`], if the block is in a file, or in memory beside it. `sums` stay as
    /// they were if it is not.
    pub(crate) fn serve(
        &self,
        key: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served> {
        if let Some(bytes) = self.kept.serve(key, range, sums) {
            if self.kept.is_noted() {
                self.dirs.iter().any(|dir| dir.touch(key));
            }
            return Cached::Here(Served::Shared(bytes));
        }
        let Some(dir) = self.dirs.iter().find(|dir| dir.touch(key)) else { return Cached::Missing };
        let first = sums.len();
        let served = self.try_file(dir, key, wait, |file| {
            file.serve(range, out, sums, wait)?;
            self.kept.was_read(key, file);
            Ok(Served::Copied)
        });
        if !matches!(served, Cached::Here(_)) {
            sums.truncate(first);
        }
        served
    }

    /// Keeps no more than so many bytes of small blocks in memory, for other clients.
    pub(crate) fn limit_kept(&self, bytes: u64) {
        self.kept.set_limit(bytes);
    }

    /// The open file of a block, if it has one.
    pub(crate) fn file(&self, key: BlockKey, wait: bool) -> Cached<Arc<BlockFile>> {
        let Some(dir) = self.dirs.iter().find(|dir| dir.touch(key)) else { return Cached::Missing };
        match self.open_file(dir, key, wait) {
            Ok(file) => Cached::Here(file),
            Err(error) if is_cold(&error) => Cached::Cold,
            Err(_) => Cached::Missing,
        }
    }

    /// A block that waits to be written.
    pub(crate) fn waiting(&self, key: BlockKey) -> Option<Bytes> {
        self.home(key).waiting(key)
    }

    /// What `work` makes of the file of a block; a damaged one is removed.
    fn with_file<T>(
        &self,
        dir: &Dir,
        key: BlockKey,
        work: impl FnOnce(&BlockFile) -> Result<T, Damaged>,
    ) -> Option<T> {
        match self.try_file(dir, key, true, work) {
            Cached::Here(done) => Some(done),
            Cached::Cold | Cached::Missing => None,
        }
    }

    /// As [`Self::with_file`]. With `wait` unset, a file that the disk had to be waited for is
    /// left as it is.
    fn try_file<T>(
        &self,
        dir: &Dir,
        key: BlockKey,
        wait: bool,
        work: impl FnOnce(&BlockFile) -> Result<T, Damaged>,
    ) -> Cached<T> {
        // What the kernel has in memory takes less time than two looks at the clock are worth.
        let started = wait.then(Instant::now);
        match self.open_file(dir, key, wait).and_then(|file| work(&file)) {
            Ok(done) => {
                if let Some(started) = started {
                    self.stats.times.cache_read.observe(started.elapsed());
                }
                Cached::Here(done)
            }
            Err(error) if !wait && is_cold(&error) => Cached::Cold,
            // It says nothing about the file.
            Err(Damaged::Io(error)) if lacks_resources(&error) => {
                tracing::warn!(path = %dir.path(key).display(), %error, "a cache file could not be read");
                Cached::Missing
            }
            Err(error) => {
                let gone = matches!(&error, Damaged::Io(error) if error.kind() == ErrorKind::NotFound);
                if !gone {
                    tracing::warn!(path = %dir.path(key).display(), %error, "a cache file is damaged and goes");
                    self.stats.cache_damaged.add(1);
                }
                dir.remove(key);
                Cached::Missing
            }
        }
    }

    fn open_file(&self, dir: &Dir, key: BlockKey, wait: bool) -> Result<Arc<BlockFile>, Damaged> {
        if let Some(file) = self.open.get(&key) {
            return Ok(file);
        }
        let file = Arc::new(BlockFile::open(&dir.path(key), key.size, self.verify, wait)?);
        self.open.insert(key, Arc::clone(&file), (1, 0), self.most_open);
        // If it was evicted meanwhile, the eviction did not close this descriptor, which would keep
        // its space.
        if !dir.contains(key) {
            self.open.remove(&key);
        }
        Ok(file)
    }

    /// Queues a block to be cached, if this needs no wait. Returns whether it is there or queued.
    pub(crate) fn offer(&self, key: BlockKey, data: Bytes) -> bool {
        let dir = self.home(key);
        if dir.contains(key) || dir.waiting(key).is_some() {
            return true;
        }
        if self.queued.load(Ordering::Relaxed) + data.len() as u64 > self.queue_limit {
            self.stats.cache_drops.add(1);
            return false;
        }
        dir.offer(key, data)
    }

    /// Writes a block now, on this thread, if there is room.
    pub(crate) fn keep(&self, key: BlockKey, data: &Bytes) {
        let dir = self.home(key);
        if !dir.contains(key) {
            dir.store(key, data);
        }
    }

    /// Makes the file at `path`, which lies in cache directory `number`, the cache file of `key`.
    /// It stays in that directory: the others may be other disks.
    pub(crate) fn adopt(&self, number: usize, key: BlockKey, path: &Path) -> std::io::Result<()> {
        let dir = self.dirs.get(number).unwrap_or_else(|| self.home(key));
        if !dir.has_room(key) {
            return fs::remove_file(path);
        }
        let target = dir.path(key);
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent)?;
        }
        if fs::rename(path, &target).is_err() {
            // A directory mounted in between makes it another file system.
            return fs::remove_file(path);
        }
        dir.note(key);
        Ok(())
    }

    pub(crate) fn remove(&self, key: BlockKey) {
        self.kept.remove(key);
        for dir in &self.dirs {
            dir.remove(key);
        }
    }

    /// Ends the background threads after they have written their queues.
    pub(crate) fn stop(&self) {
        for dir in &self.dirs {
            dir.stop();
        }
    }

    /// The directory for a block, by rendezvous hashing: if a directory is added or removed, few
    /// blocks move.
    fn home(&self, key: BlockKey) -> &Arc<Dir> {
        let lot = |dir: &&Arc<Dir>| {
            let mut lot = [0; 12];
            lot[..8].copy_from_slice(&key.id.to_le_bytes());
            lot[8..].copy_from_slice(&key.index.to_le_bytes());
            crc32c::crc32c_append(crc32c::crc32c(dir.root().as_os_str().as_encoded_bytes()), &lot)
        };
        self.dirs.iter().max_by_key(lot).unwrap_or(&self.dirs[0])
    }
}

/// Whether a file was not read because the disk had to be waited for.
fn is_cold(error: &Damaged) -> bool {
    matches!(error, Damaged::Io(error) if error.kind() == ErrorKind::WouldBlock)
}

/// How many files may be kept open, so that there are enough for all else.
pub(crate) fn most_open() -> u64 {
    #[cfg(unix)]
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    #[cfg(not(unix))]
    let limit = 2048;
    (limit / OPEN_SHARE).min(MOST_OPEN)
}

/// Whether a file could not be opened or read because this process or the system has too many open
/// files, or no memory.
#[cfg(unix)]
fn lacks_resources(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(Errno::from_io_error(error), Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM))
}

/// Whether a file could not be opened or read because there is no memory.
#[cfg(not(unix))]
fn lacks_resources(error: &std::io::Error) -> bool {
    error.kind() == ErrorKind::OutOfMemory
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        cache::{file, kept::NOTED},
        config::CacheConfig,
    };

    /// A cache in one directory. Its threads have ended: a first scan would find the files that a
    /// test writes.
    fn open(place: &Path) -> Arc<DiskCache> {
        let cache = CacheConfig { dirs: vec![place.into()], free_space_ratio: 0.0, ..CacheConfig::default() };
        let config = DataConfig { volume: "v".into(), cache, ..DataConfig::default() };
        let layout = Layout { block_size: 4096, hash_prefix: false };
        let cache = DiskCache::open(&config, layout, Arc::default()).unwrap().unwrap();
        cache.stop();
        while cache.dirs.iter().any(|dir| Arc::strong_count(dir) > 1) {
            std::thread::yield_now();
        }
        cache
    }

    #[test]
    fn a_file_that_went_while_it_was_opened_is_not_kept_open() {
        let place = tempfile::tempdir().unwrap();
        let disk = open(place.path());
        let key = BlockKey { id: 1, index: 0, size: 3 };
        let dir = &disk.dirs[0];
        // Its file is there and the index does not know it: so it is while it is being evicted.
        file::write(&dir.path(key), b"abc", true, 0o600).unwrap();
        dir.note(key);
        assert!(disk.open_file(dir, key, true).is_ok() && disk.open.get(&key).is_some());
        dir.remove(key);
        file::write(&dir.path(key), b"abc", true, 0o600).unwrap();
        assert!(disk.open_file(dir, key, true).is_ok() && disk.open.get(&key).is_none());
    }

    #[test]
    fn what_is_kept_is_noted_as_used_until_it_is_removed() {
        let place = tempfile::tempdir().unwrap();
        let disk = open(place.path());
        disk.limit_kept(1 << 20);
        let key = BlockKey { id: 1, index: 0, size: 6 };
        disk.keep(key, &Bytes::from_static(b"abcdef"));
        let serve = || disk.serve(key, &(0..6), (&mut Vec::new(), 0), &mut Vec::new(), true);
        assert!(matches!(serve(), Cached::Here(Served::Copied)), "from its file");
        let before = disk.dirs[0].tick();
        for _ in 0..3 * NOTED {
            let Cached::Here(Served::Shared(bytes)) = serve() else { panic!("it is not kept") };
            assert_eq!(bytes, "abcdef");
        }
        assert_eq!(disk.dirs[0].tick(), before + 3);
        disk.remove(key);
        assert!(matches!(serve(), Cached::Missing));
        assert_eq!(disk.in_memory().map(|bytes| bytes.load(Ordering::Relaxed)), [0, 0]);
    }

    #[test]
    fn a_block_is_read_while_it_waits_to_be_written() {
        let place = tempfile::tempdir().unwrap();
        let disk = open(place.path());
        let key = BlockKey { id: 1, index: 0, size: 6 };
        disk.home(key).wait(key, Bytes::from_static(b"abcdef"));
        assert!(disk.is_near(key) && !disk.contains(key));
        assert_eq!(disk.read(key, &(2..4)).unwrap(), "cd");
        assert_eq!(disk.in_memory().map(|bytes| bytes.load(Ordering::Relaxed)), [6, 0]);
        disk.remove(key);
        assert!(disk.read(key, &(2..4)).is_none());
    }
}
