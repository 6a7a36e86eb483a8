//! Write-back: blocks wait in local files, `<dir>/<volume>/rawstaging/<object name>`, for their
//! upload.
//!
//! What must stay true: a staged block is readable until the store has it, and its file is removed
//! only then. After [`Staging::sync`], all staged blocks survive a power cut. If a block is lost
//! nevertheless, that is reported.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File},
    io,
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use rustc_hash::{FxHashMap, FxHashSet};
use sluice_types::{Clock as _, SystemClock};
use tokio::sync::Notify;

use crate::{
    cache::{
        DiskCache,
        file::{self, BlockFile, Damaged, OpenFiles, Unsynced},
        most_open,
    },
    config::{DataConfig, Verify, WritebackConfig},
    error::DataError,
    free_space::free_ratio,
    layout::{BlockKey, Layout},
    stats::Stats,
    try_limiter::TryLimiter,
};

/// Pause before the next try to upload a block.
pub(crate) const REST: Duration = Duration::from_secs(5);
/// Files of staged blocks that are kept open at most.
const MOST_OPEN: u64 = 256;
/// Ending of a damaged staged file.
pub(crate) const DAMAGED: &str = ".damaged";

/// The staged blocks of one volume.
#[derive(Debug)]
pub(crate) struct Staging {
    roots: Vec<PathBuf>,
    layout: Layout,
    /// Whether the mount writes back; if not, what an earlier one left is still read and uploaded.
    accepts: bool,
    config: WritebackConfig,
    writing: TryLimiter,
    free_ratio: f64,
    mode: u32,
    pub(crate) parallel: usize,
    pub(crate) disk: Option<Arc<DiskCache>>,
    pub(crate) state: Mutex<State>,
    /// Files of staged blocks that were read.
    pub(crate) open: OpenFiles,
    emptied: Condvar,
    pub(crate) queued: Notify,
    /// Held while files are synced, so that a second caller waits for the first.
    syncing: Mutex<()>,
    /// Blocks that this process staged and that are lost.
    lost: AtomicU64,
    /// How many of them were reported.
    reported: AtomicU64,
    pub(crate) stats: Arc<Stats>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) staged: FxHashMap<BlockKey, Staged>,
    pub(crate) queue: VecDeque<(Instant, BlockKey)>,
    /// Those of them that no sync has covered.
    unsynced: FxHashSet<BlockKey>,
    /// Blocks whose sync failed. The kernel reports such a failure once, and then treats the pages
    /// as clean.
    doubtful: FxHashSet<BlockKey>,
    /// Those on their way to the store, and whether it has them.
    pub(crate) uploading: FxHashMap<BlockKey, bool>,
    full: Option<Instant>,
    pub(crate) hurry: bool,
    pub(crate) stopped: bool,
}

/// A staged block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Staged {
    /// Where it is, as an index into the roots.
    pub(crate) number: usize,
    /// Whether this process staged it. Blocks of an earlier process were not acknowledged by this
    /// one.
    own: bool,
    /// When, or when this process found it.
    pub(crate) since: Instant,
}

impl Staging {
    /// Opens the staging directories if the mount writes back or an earlier one left staged blocks
    /// there.
    pub(crate) fn open(
        config: &DataConfig,
        layout: Layout,
        disk: Option<Arc<DiskCache>>,
        stats: Arc<Stats>,
    ) -> Result<Option<Arc<Self>>, DataError> {
        let roots = config.staging_dirs();
        let accepts = config.writeback.is_some();
        for root in roots.iter().filter(|_| accepts) {
            let made = fs::create_dir_all(root)
                .and_then(|()| root.ancestors().take(3).try_for_each(|dir| File::open(dir)?.sync_all()));
            made.map_err(|why| DataError::CacheDir { path: root.clone(), why })?;
        }
        let staging = Self {
            layout,
            accepts,
            config: config.writeback.clone().unwrap_or_default(),
            writing: TryLimiter::default(),
            free_ratio: config.cache.free_space_ratio / 2.0,
            mode: config.cache.mode,
            parallel: config.max_uploads.max(1),
            disk,
            state: Mutex::default(),
            open: OpenFiles::new(),
            emptied: Condvar::new(),
            queued: Notify::new(),
            syncing: Mutex::new(()),
            lost: AtomicU64::new(0),
            reported: AtomicU64::new(0),
            stats,
            roots,
        };
        for number in 0..staging.roots.len() {
            staging.replay(number);
        }
        let needed = accepts || !staging.state.lock().staged.is_empty();
        Ok(needed.then(|| Arc::new(staging)))
    }

    /// Stages a block. Answers false if it has to be uploaded directly: it is large, too many are
    /// being staged, or the disk is full or broken.
    pub(crate) fn stage(&self, key: BlockKey, data: &Bytes) -> bool {
        let large = self.config.threshold > 0 && key.size >= self.config.threshold;
        if !self.accepts || large || !self.has_room() {
            return false;
        }
        let Some(_turn) = self.writing.enter(self.config.max_writes) else { return false };
        let _staging = self.stats.staging.one();
        let number = key.id as usize % self.roots.len();
        if let Err(error) = file::write(&self.path(number, key), data, true, self.mode) {
            tracing::warn!(dir = %self.roots[number].display(), %error, "blocks are not staged but uploaded directly");
            self.stats.staged_errors.add(1);
            self.state.lock().full = Some(Instant::now());
            return false;
        }
        self.stats.staged_write_bytes.add(data.len() as u64);
        let mut state = self.state.lock();
        state.unsynced.insert(key);
        let since = Instant::now();
        self.enter(&mut state, key, Staged { number, own: true, since }, since + self.config.upload_delay);
        drop(state);
        self.queued.notify_one();
        true
    }

    /// Makes everything staged so far survive a power cut. Answers which blocks have no file any
    /// more.
    ///
    /// # Errors
    /// Also of an earlier sync, as long as the store does not have what it failed for.
    pub(crate) fn sync(&self) -> io::Result<Vec<BlockKey>> {
        let _alone = self.syncing.lock();
        let files: Vec<(BlockKey, usize)> = {
            let mut state = self.state.lock();
            let unsynced = std::mem::take(&mut state.unsynced);
            // Blocks that are gone are in the object store.
            unsynced.into_iter().filter_map(|key| Some((key, state.staged.get(&key)?.number))).collect()
        };
        let (mut again, mut doubtful, mut failed) = (vec![], vec![], None);
        let (mut missing, mut dirs) = (vec![], BTreeSet::new());
        for (key, number) in &files {
            let path = self.path(*number, *key);
            match file::sync(&path, File::sync_data) {
                Ok(()) => {
                    let root = &self.roots[*number];
                    let above = path.ancestors().skip(1).take_while(|dir| dir.starts_with(root));
                    dirs.extend(above.map(Path::to_owned));
                }
                Err(Unsynced::Missing) => missing.push(*key),
                Err(Unsynced::Closed(error)) => {
                    again.push(*key);
                    failed = Some(error);
                }
                Err(Unsynced::Failed(error)) => {
                    doubtful.push(*key);
                    failed = Some(error);
                }
            }
        }
        let all = || files.iter().map(|(key, _)| *key).collect();
        for dir in &dirs {
            match file::sync(dir, File::sync_all) {
                Ok(()) => {}
                // The directory was removed with its files.
                Err(Unsynced::Missing) => {
                    let gone = |(key, number): &&(BlockKey, usize)| !self.path(*number, *key).exists();
                    missing = files.iter().filter(gone).map(|(key, _)| *key).collect();
                }
                Err(Unsynced::Closed(error)) => {
                    again = all();
                    failed = Some(error);
                }
                // It is unknown which names were not synced.
                Err(Unsynced::Failed(error)) => {
                    doubtful = all();
                    failed = Some(error);
                }
            }
        }
        self.synced(again, doubtful, missing, failed)
    }

    /// Records which blocks were not synced. Returns which are missing.
    fn synced(
        &self,
        again: Vec<BlockKey>,
        doubtful: Vec<BlockKey>,
        mut missing: Vec<BlockKey>,
        failed: Option<io::Error>,
    ) -> io::Result<Vec<BlockKey>> {
        let mut state = self.state.lock();
        if !doubtful.is_empty() {
            state.full = Some(Instant::now());
        }
        for key in doubtful.into_iter().filter(|key| Self::holds(&state, *key)).collect::<Vec<_>>() {
            state.doubtful.insert(key);
            // Once it is in the store, it is safe.
            state.queue.push_front((Instant::now(), key));
        }
        missing.retain(|key| Self::holds(&state, *key));
        // Until it is known what happened to them.
        let unsynced = again.into_iter().chain(missing.iter().copied());
        let unsynced: Vec<_> = unsynced.filter(|key| state.staged.contains_key(key)).collect();
        state.unsynced.extend(unsynced);
        let doubtful = state.doubtful.len();
        drop(state);
        self.queued.notify_one();
        match failed {
            Some(error) => Err(error),
            None if doubtful > 0 => Err(io::Error::other(format!(
                "{doubtful} staged blocks could not be synced and are not uploaded yet"
            ))),
            None => Ok(missing),
        }
    }

    /// Whether blocks are uploaded at this hour of the day.
    pub(crate) fn may_upload(&self) -> bool {
        self.config.hours.is_none_or(|hours| hours.contain(SystemClock.now().local_hour()))
    }

    /// How many blocks that this process staged were lost, and how many of them were reported.
    pub(crate) fn lost(&self) -> (u64, u64) {
        (self.lost.load(Ordering::Relaxed), self.reported.load(Ordering::Relaxed))
    }

    /// The first `lost` lost blocks were reported.
    pub(crate) fn reported(&self, lost: u64) {
        self.reported.fetch_max(lost, Ordering::Relaxed);
    }

    /// Whether a block whose file is gone is being uploaded from memory.
    pub(crate) fn is_uploading(&self, key: BlockKey) -> bool {
        self.state.lock().uploading.contains_key(&key)
    }

    /// The store has a staged block that this process did not upload.
    pub(crate) fn uploaded(&self, key: BlockKey) {
        self.leave(&mut self.state.lock(), key);
    }

    /// A staged block is lost.
    pub(crate) fn lose(&self, key: BlockKey, why: &str) {
        let Some(staged) = self.leave(&mut self.state.lock(), key) else { return };
        self.stats.staged_errors.add(1);
        let path = self.path(staged.number, key);
        tracing::error!(path = %path.display(), "a staged block is lost: {why}");
        self.lost.fetch_add(u64::from(staged.own), Ordering::Relaxed);
    }

    /// Bytes `range` of a block, if it is staged.
    pub(crate) fn read(&self, key: BlockKey, range: &Range<u32>) -> Option<Bytes> {
        let number = self.state.lock().staged.get(&key)?.number;
        let file = self.open_file(number, key);
        match file.and_then(|file| file.read(range, Verify::Extend)) {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                // Uploaded meanwhile, or unreadable: the store may have it.
                tracing::debug!(slice = key.id, block = key.index, %error, "a staged block could not be read");
                None
            }
        }
    }

    /// The file of a staged block, which stays open for later reads.
    fn open_file(&self, number: usize, key: BlockKey) -> Result<Arc<BlockFile>, Damaged> {
        if let Some(file) = self.open.get(&key) {
            return Ok(file);
        }
        let file = Arc::new(BlockFile::open(&self.path(number, key), key.size, Verify::Extend, true)?);
        self.open.insert(key, Arc::clone(&file), (1, 0), most_open().min(MOST_OPEN));
        // If it left meanwhile, that did not close this descriptor, which would keep its space.
        if !self.contains(key) {
            self.open.remove(&key);
        }
        Ok(file)
    }

    pub(crate) fn contains(&self, key: BlockKey) -> bool {
        self.state.lock().staged.contains_key(&key)
    }

    /// The directory that has a staged block.
    pub(crate) fn location(&self, key: BlockKey) -> Option<&Path> {
        let number = self.state.lock().staged.get(&key)?.number;
        self.roots.get(number).map(PathBuf::as_path)
    }

    /// Drops a staged block that is not needed any more.
    pub(crate) fn remove(&self, key: BlockKey) {
        let mut state = self.state.lock();
        if let Some(staged) = self.leave(&mut state, key) {
            drop(state);
            let _ = fs::remove_file(self.path(staged.number, key));
        }
    }

    /// Uploads all staged blocks at once and waits for that. Returns how many blocks are left.
    pub(crate) fn drain(&self, timeout: Duration) -> u64 {
        let until = Instant::now() + timeout;
        let mut state = self.state.lock();
        state.hurry = true;
        self.queued.notify_one();
        while !state.staged.is_empty() && !state.stopped {
            if self.emptied.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        state.hurry = false;
        state.staged.len() as u64
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
        self.queued.notify_one();
        self.emptied.notify_all();
    }

    /// Loads the staged blocks of an earlier process.
    fn replay(&self, number: usize) {
        let mut state = self.state.lock();
        file::each_block(&self.roots[number], |path, key| {
            if path == self.path(number, key) {
                // That process may have been killed before it synced the block.
                state.unsynced.insert(key);
                let since = Instant::now();
                self.enter(&mut state, key, Staged { number, own: false, since }, since);
            }
        });
    }

    /// Whether a block waits for its upload.
    fn holds(state: &State, key: BlockKey) -> bool {
        state.staged.contains_key(&key) && state.uploading.get(&key) != Some(&true)
    }

    pub(crate) fn load(&self, number: usize, key: BlockKey, range: &Range<u32>) -> Result<Bytes, Damaged> {
        BlockFile::open(&self.path(number, key), key.size, Verify::Extend, true)?.read(range, Verify::Extend)
    }

    fn enter(&self, state: &mut State, key: BlockKey, staged: Staged, due: Instant) {
        if state.staged.insert(key, staged).is_none() {
            state.queue.push_back((due, key));
            self.stats.staged_blocks.add(1);
            self.stats.staged_bytes.add(u64::from(key.size));
        }
    }

    pub(crate) fn leave(&self, state: &mut State, key: BlockKey) -> Option<Staged> {
        let staged = state.staged.remove(&key)?;
        self.open.remove(&key);
        state.unsynced.remove(&key);
        state.doubtful.remove(&key);
        self.stats.staged_blocks.sub(1);
        self.stats.staged_bytes.sub(u64::from(key.size));
        if state.staged.is_empty() {
            self.emptied.notify_all();
        }
        Some(staged)
    }

    fn has_room(&self) -> bool {
        let room = {
            let mut state = self.state.lock();
            if state.full.is_some_and(|since| since.elapsed() < REST) {
                return false;
            }
            state.full = None;
            !state.stopped
        };
        // Without the lock, so that a disk that hangs delays only those who write to it.
        room && self.roots.iter().all(|root| self.has_space(root))
    }

    fn has_space(&self, root: &Path) -> bool {
        free_ratio(root).is_ok_and(|free| free >= self.free_ratio)
    }

    pub(crate) fn path(&self, number: usize, key: BlockKey) -> PathBuf {
        self.roots[number].join(self.layout.name(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::CacheConfig;

    #[test]
    fn a_sync_covers_all_that_was_staged_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache =
            CacheConfig { dirs: vec![dir.path().into()], free_space_ratio: 0.0, ..CacheConfig::default() };
        let writeback = Some(WritebackConfig { threshold: 100, ..WritebackConfig::default() });
        let config = DataConfig { cache, writeback, ..DataConfig::default() };
        let layout = Layout { block_size: 4096, hash_prefix: false };
        let staging = Staging::open(&config, layout, None, Arc::default()).unwrap().unwrap();
        let key = |id, size| BlockKey { id, index: 0, size };
        assert!(staging.stage(key(1, 3), &Bytes::from_static(b"abc")));
        assert!(staging.stage(key(2_000_000, 3), &Bytes::from_static(b"def")));
        assert!(!staging.stage(key(3, 100), &Bytes::from_static(&[0; 100])), "large ones go up directly");
        assert_eq!(staging.state.lock().unsynced.len(), 2);
        staging.sync().unwrap();
        assert!(staging.state.lock().unsynced.is_empty());
        assert_eq!(staging.read(key(1, 3), &(1..3)).unwrap(), "bc");
        staging.remove(key(1, 3));
        assert!(staging.read(key(1, 3), &(0..3)).is_none());
        let again = Staging::open(&config, layout, None, Arc::default()).unwrap().unwrap();
        assert!(again.contains(key(2_000_000, 3)) && !again.contains(key(1, 3)));
        assert!(
            again.state.lock().unsynced.contains(&key(2_000_000, 3)),
            "nobody knows whether it was synced"
        );
    }

    #[test]
    fn what_a_sync_failed_for_is_in_doubt_until_the_store_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let cache =
            CacheConfig { dirs: vec![dir.path().into()], free_space_ratio: 0.0, ..CacheConfig::default() };
        let later = WritebackConfig { upload_delay: Duration::from_hours(1), ..WritebackConfig::default() };
        let config = DataConfig { cache, writeback: Some(later), ..DataConfig::default() };
        let layout = Layout { block_size: 4096, hash_prefix: false };
        let staging = Staging::open(&config, layout, None, Arc::default()).unwrap().unwrap();
        let [one, two, three] = [1, 2, 3].map(|id| BlockKey { id, index: 0, size: 3 });
        assert!(staging.stage(one, &Bytes::from_static(b"abc")));
        assert!(staging.stage(two, &Bytes::from_static(b"abc")));
        // What cannot be opened now may be later.
        let chunks = staging.roots[0].join("chunks");
        let away = staging.roots[0].join("away");
        fs::rename(&chunks, &away).unwrap();
        fs::write(&chunks, "no directory").unwrap();
        staging.sync().unwrap_err();
        fs::remove_file(&chunks).unwrap();
        fs::rename(&away, &chunks).unwrap();
        assert_eq!(staging.sync().unwrap(), []);

        let reported = || Some(io::Error::other("told"));
        staging.synced(vec![], vec![two], vec![], reported()).unwrap_err();
        staging.sync().expect_err("the disk says it once, and it is still so");
        assert!(!staging.stage(three, &Bytes::from_static(b"def")), "not onto a disk like that");
        assert_eq!(
            staging.state.lock().queue.front().map(|(_, key)| *key),
            Some(two),
            "without further delay"
        );
        staging.uploaded(two);
        assert_eq!(staging.sync().unwrap(), []);
    }
}
