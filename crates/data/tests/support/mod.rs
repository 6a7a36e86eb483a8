//! Support for the tests of the data path: an index in memory, and a store that fails on command.
//!
//! What must stay true: the index is as strict as the metadata is, and the store forgets nothing
//! that it acknowledged.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::unwrap_used,
    reason = "each test binary uses its part"
)]

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures::{StreamExt, future::BoxFuture, stream::BoxStream};
use parking_lot::Mutex;
use sluice_data::{ChunkIndex, DataConfig, DataStore};
use sluice_object::{MemStore, ObjectError, ObjectMeta, ObjectStore};
use sluice_types::{CHUNK_SIZE, FsError, FsResult, Ino, Interrupt, Slice, Time};
use tokio::sync::Notify;

/// Records in memory.
#[derive(Default)]
pub struct MemIndex {
    state: Mutex<Records>,
    next: AtomicU64,
    /// The next commit answers this.
    pub refuse: Mutex<Option<FsError>>,
    /// Commits are done and answer only once this is free.
    pub hold_answers: Mutex<()>,
    /// The first replacement waits until this is free.
    pub hold_first_replacement: Mutex<()>,
    /// How many records a chunk may have; 0 for any number.
    pub most: AtomicUsize,
    /// Replacements that began.
    pub replacements: AtomicU64,
    pub commits: AtomicU64,
    /// What each commit said of whether it is the last.
    pub lasts: Mutex<Vec<bool>>,
    /// There are no ids for new slices.
    pub refuse_ids: AtomicBool,
    /// Questions wait while this is set.
    pub away: AtomicBool,
    /// Questions that wait.
    pub asking: AtomicU64,
    /// Chunks that cannot be read.
    pub damaged: Mutex<BTreeSet<u32>>,
    /// Chunks that were asked for.
    pub known: Mutex<BTreeSet<(Ino, u32)>>,
    /// So many commits panic.
    pub panics: AtomicU32,
}

#[derive(Default)]
struct Records {
    chunks: BTreeMap<(Ino, u32), Arc<[Slice]>>,
    lengths: HashMap<Ino, u64>,
    mtimes: HashMap<Ino, Time>,
    garbage: Vec<(u64, u32)>,
    committed: BTreeSet<u64>,
}

impl MemIndex {
    /// Waits while it is away.
    fn answer(&self, interrupt: &Interrupt) -> FsResult<()> {
        self.asking.fetch_add(1, Ordering::SeqCst);
        while self.away.load(Ordering::SeqCst) && !interrupt.is_set() {
            std::thread::yield_now();
        }
        self.asking.fetch_sub(1, Ordering::SeqCst);
        if interrupt.is_set() { Err(FsError::Interrupted) } else { Ok(()) }
    }

    pub fn length(&self, ino: Ino) -> u64 {
        self.state.lock().lengths.get(&ino).copied().unwrap_or(0)
    }

    pub fn mtime(&self, ino: Ino) -> Option<Time> {
        self.state.lock().mtimes.get(&ino).copied()
    }

    pub fn records(&self) -> Vec<Slice> {
        self.state.lock().chunks.values().flat_map(|records| records.iter().copied()).collect()
    }

    /// Cuts a file as the volume format says.
    pub fn truncate(&self, ino: Ino, length: u64) {
        let mut state = self.state.lock();
        let old = state.lengths.insert(ino, length).unwrap_or(0);
        let (mut at, end) = (old.min(length), old.max(length));
        while at < end {
            let (index, pos) = ((at / CHUNK_SIZE) as u32, at % CHUNK_SIZE);
            let step = (CHUNK_SIZE - pos).min(end - at);
            append(&mut state, ino, index, &[Slice::hole(pos as u32, step as u32)]);
            at += step;
        }
    }

    /// Adds so many records to the first chunk of a file, which show nothing.
    pub fn fill(&self, ino: Ino, records: usize) {
        append(&mut self.state.lock(), ino, 0, &vec![Slice::hole(1 << 20, 1); records]);
    }

    /// Slices to which no record refers any more, once.
    pub fn garbage(&self) -> Vec<(u64, u32)> {
        std::mem::take(&mut self.state.lock().garbage)
    }
}

fn append(state: &mut Records, ino: Ino, index: u32, records: &[Slice]) -> u32 {
    let chunk = state.chunks.entry((ino, index)).or_insert_with(|| Arc::new([]));
    *chunk = chunk.iter().chain(records).copied().collect();
    chunk.len() as u32
}

impl ChunkIndex for MemIndex {
    fn slices(&self, ino: Ino, index: u32, _: bool, interrupt: &Interrupt) -> FsResult<Arc<[Slice]>> {
        if !self.known.lock().contains(&(ino, index)) {
            self.answer(interrupt)?;
        }
        if self.damaged.lock().contains(&index) {
            return Err(FsError::io("told to be damaged"));
        }
        self.known.lock().insert((ino, index));
        Ok(self.state.lock().chunks.entry((ino, index)).or_insert_with(|| Arc::new([])).clone())
    }

    fn known_slices(&self, ino: Ino, index: u32) -> Option<Arc<[Slice]>> {
        let known = self.known.lock().contains(&(ino, index));
        known.then(|| self.state.lock().chunks.get(&(ino, index)).cloned()).flatten()
    }

    fn new_slice_id(&self, interrupt: &Interrupt) -> FsResult<u64> {
        self.answer(interrupt)?;
        if self.refuse_ids.load(Ordering::SeqCst) {
            return Err(FsError::io("told to refuse ids"));
        }
        Ok(self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }

    fn commit(
        &self,
        ino: Ino,
        index: u32,
        records: &[Slice],
        mtime: Time,
        is_last: &dyn Fn() -> bool,
    ) -> FsResult<u32> {
        if let Some(error) = self.refuse.lock().take() {
            return Err(error);
        }
        assert!(!spend(&self.panics), "told to panic");
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.lasts.lock().push(is_last());
        assert!(!records.is_empty());
        for record in records {
            assert_eq!(Slice::decode(&record.encode()), Some(*record), "a record keeps the rules");
        }
        let mut state = self.state.lock();
        let most = self.most.load(Ordering::Relaxed);
        let there = state.chunks.get(&(ino, index)).map_or(0, |there| there.len());
        if most > 0 && there + records.len() > most {
            return Err(FsError::TooBig);
        }
        let ids: BTreeSet<u64> = records.iter().map(|record| record.id).collect();
        assert!(ids.into_iter().all(|id| state.committed.insert(id)), "a slice is committed once");
        let end =
            u64::from(index) * CHUNK_SIZE + u64::from(records.iter().map(Slice::end).max().unwrap_or(0));
        let length = state.lengths.entry(ino).or_default();
        *length = (*length).max(end);
        state.mtimes.insert(ino, mtime);
        let count = append(&mut state, ino, index, records);
        drop(state);
        drop(self.hold_answers.lock());
        Ok(count)
    }

    fn replace(&self, ino: Ino, index: u32, old: &[Slice], keep: usize, new: Slice) -> FsResult<bool> {
        if self.replacements.fetch_add(1, Ordering::SeqCst) == 0 {
            drop(self.hold_first_replacement.lock());
        }
        let mut state = self.state.lock();
        let Some(chunk) = state.chunks.get(&(ino, index)).cloned() else { return Ok(false) };
        if !chunk.starts_with(old) {
            return Ok(false);
        }
        let replaced = old[..keep].iter().chain([&new]).chain(&chunk[old.len()..]).copied().collect();
        state.chunks.insert((ino, index), replaced);
        for slice in &old[keep..] {
            let shown = state.chunks.values().any(|chunk| chunk.iter().any(|record| record.id == slice.id));
            if !slice.is_hole() && !shown && !state.garbage.contains(&(slice.id, slice.size)) {
                state.garbage.push((slice.id, slice.size));
            }
        }
        Ok(true)
    }
}

/// A store in memory that can be told to misbehave.
#[derive(Clone, Debug, Default)]
pub struct FaultStore {
    pub inner: MemStore,
    pub faults: Arc<Faults>,
}

#[derive(Debug, Default)]
pub struct Faults {
    /// So many calls fail.
    pub errors: AtomicU32,
    /// So many puts are done and then reported as failed.
    pub lost_answers: AtomicU32,
    /// So many gets come back short.
    pub short_bodies: AtomicU32,
    /// All puts are refused for good.
    pub refuse_puts: AtomicBool,
    /// So many puts are denied.
    pub denied: AtomicU32,
    /// So many puts find no room.
    pub full: AtomicU32,
    /// So many syncs fail.
    pub sync_errors: AtomicU32,
    pub syncs: AtomicU64,
    /// So many puts panic.
    pub panics: AtomicU32,
    /// Gets wait while this is set.
    pub hold_gets: AtomicBool,
    /// Puts wait while this is set.
    pub hold_puts: AtomicBool,
    pub released: Notify,
    pub gets: AtomicU64,
    pub get_bytes: AtomicU64,
    pub puts: AtomicU64,
    /// Puts that began.
    pub begun_puts: AtomicU64,
}

fn spend(count: &AtomicU32) -> bool {
    count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
}

impl FaultStore {
    fn fail(&self, action: &'static str, key: &str) -> ObjectError {
        ObjectError::Unavailable {
            action,
            key: key.into(),
            store: self.describe(),
            reason: "told to fail".into(),
        }
    }

    /// Waits while `hold` is set.
    async fn held(&self, hold: &AtomicBool) {
        loop {
            let released = self.faults.released.notified();
            if !hold.load(Ordering::SeqCst) {
                break;
            }
            let _ = tokio::time::timeout(Duration::from_millis(20), released).await;
        }
    }

    pub fn release(&self) {
        self.faults.hold_puts.store(false, Ordering::SeqCst);
        self.faults.released.notify_waiters();
    }

    pub fn keys(&self) -> Vec<String> {
        futures::executor::block_on(self.inner.list("").map(|meta| meta.unwrap().key).collect())
    }
}

impl ObjectStore for FaultStore {
    fn describe(&self) -> String {
        "fault://".into()
    }

    fn ranged(&self) -> bool {
        true
    }

    fn get<'a>(
        &'a self,
        key: &'a str,
        range: Option<Range<u64>>,
    ) -> BoxFuture<'a, Result<Bytes, ObjectError>> {
        Box::pin(async move {
            self.faults.gets.fetch_add(1, Ordering::Relaxed);
            self.held(&self.faults.hold_gets).await;
            if spend(&self.faults.errors) {
                return Err(self.fail("read", key));
            }
            let bytes = self.inner.get(key, range).await?;
            self.faults.get_bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
            if spend(&self.faults.short_bodies) { Ok(bytes.slice(..bytes.len() / 2)) } else { Ok(bytes) }
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<(), ObjectError>> {
        Box::pin(async move {
            self.faults.syncs.fetch_add(1, Ordering::Relaxed);
            if spend(&self.faults.sync_errors) { Err(self.fail("sync", "its objects")) } else { Ok(()) }
        })
    }

    fn put<'a>(&'a self, key: &'a str, data: Bytes) -> BoxFuture<'a, Result<(), ObjectError>> {
        Box::pin(async move {
            self.faults.begun_puts.fetch_add(1, Ordering::SeqCst);
            self.held(&self.faults.hold_puts).await;
            self.faults.puts.fetch_add(1, Ordering::Relaxed);
            if self.faults.refuse_puts.load(Ordering::Relaxed) {
                return Err(ObjectError::Config { store: self.describe(), reason: "told to refuse".into() });
            }
            assert!(!spend(&self.faults.panics), "told to panic");
            if spend(&self.faults.full) {
                return Err(ObjectError::Full { store: self.describe(), reason: "told to be full".into() });
            }
            if spend(&self.faults.denied) {
                return Err(ObjectError::Denied { store: self.describe(), reason: "told to deny".into() });
            }
            if spend(&self.faults.errors) {
                return Err(self.fail("write", key));
            }
            self.inner.put(key, data).await?;
            if spend(&self.faults.lost_answers) { Err(self.fail("write", key)) } else { Ok(()) }
        })
    }

    fn delete<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<(), ObjectError>> {
        self.inner.delete(key)
    }

    fn head<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.head(key)
    }

    fn list<'a>(&'a self, prefix: &'a str) -> BoxStream<'a, Result<ObjectMeta, ObjectError>> {
        self.inner.list(prefix)
    }
}

/// A volume: what stays when a client goes.
#[derive(Clone, Default)]
pub struct Volume {
    pub index: Arc<MemIndex>,
    pub store: FaultStore,
}

impl Volume {
    pub fn open(&self, config: &DataConfig) -> DataStore {
        DataStore::open(config, Arc::new(self.store.clone()), self.index.clone(), None).unwrap()
    }

    /// Every block that a record needs is there, and no other is, once work in the background ended
    /// and what no record shows any more is deleted. No write may follow.
    pub fn check(&self, data: &DataStore) {
        let layout = data.layout();
        assert!(data.settle(Duration::from_mins(1)), "work in the background does not end");
        for deleted in data.delete_slices(&self.index.garbage()) {
            deleted.unwrap();
        }
        let mut expected: Vec<String> = self
            .index
            .records()
            .iter()
            .flat_map(|record| layout.blocks(record.id, record.size).map(|block| layout.name(block)))
            .collect();
        expected.sort();
        expected.dedup();
        let keys = self.store.keys();
        let missing: Vec<_> = expected.iter().filter(|key| keys.binary_search(key).is_err()).collect();
        let leaked: Vec<_> = keys.iter().filter(|key| expected.binary_search(key).is_err()).collect();
        assert!(missing.is_empty() && leaked.is_empty(), "missing {missing:?}, leaked {leaked:?}");
    }
}

/// Settings at which small tests see all there is to see.
pub fn small(block_size: u32) -> DataConfig {
    DataConfig {
        volume: "a-volume".into(),
        block_size,
        buffer_size: 1 << 20,
        give_up: Duration::from_mins(1),
        ..DataConfig::default()
    }
}

/// Waits for something that happens by itself.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !holds() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::yield_now();
    }
}

pub fn read_all(data: &DataStore, ino: Ino, offset: u64, len: u32, length: u64) -> FsResult<Vec<u8>> {
    Ok(data.reader(ino).read(offset, len, length, &Interrupt::never())?.concat())
}
