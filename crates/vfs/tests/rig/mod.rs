//! Volumes in memory, and the calls of a program on them.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test tool panics when the test fails")]

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures::StreamExt as _;
use sluice_data::{DataConfig, DataStore};
use sluice_meta::{ClientCache, Meta, Options, engine::Engine, mem::MemEngine, schema::VolumeFormat};
use sluice_object::{MemStore, ObjectStore};
use sluice_testkit::wrap::Counting;
use sluice_types::{Caller, Clock, FileType, FsResult, Ino, SystemClock};
use sluice_vfs::{Entry, Interrupt, MetaIndex, NewNode, Opened, Place, Vfs, VfsConfig};

/// Longer than any test.
pub const TTL: Duration = Duration::from_hours(1);

/// Settings under which nothing that is cached expires, however slow the machine is.
pub fn lasting() -> VfsConfig {
    VfsConfig { attr_ttl: TTL, entry_ttl: TTL, dir_entry_ttl: TTL, ..VfsConfig::default() }
}

/// The name of a numbered file.
pub fn name(file: usize) -> String {
    format!("f{file}")
}

/// A volume that several clients can mount.
pub struct Volume {
    pub engine: Arc<Counting>,
    pub store: Arc<MemStore>,
}

/// One client, and the user who calls.
pub struct Client {
    pub vfs: Arc<Vfs>,
    pub caller: Caller,
    pub never: Interrupt,
}

impl Volume {
    pub fn new() -> Self {
        Self::with(|_| {})
    }

    pub fn with(set: impl FnOnce(&mut VolumeFormat)) -> Self {
        Self::made(Arc::new(Counting::new(Arc::new(MemEngine::new()))), set)
    }

    /// A volume in that engine.
    pub fn over(engine: Arc<Counting>) -> Self {
        Self::made(engine, |_| {})
    }

    fn made(engine: Arc<Counting>, set: impl FnOnce(&mut VolumeFormat)) -> Self {
        let mut format = VolumeFormat { name: "test".into(), trash_days: 0, ..VolumeFormat::default() };
        set(&mut format);
        Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
        Self { engine, store: Arc::new(MemStore::new()) }
    }

    /// A client that keeps attributes for no time at all, so that every question is asked.
    pub fn mount(&self) -> Client {
        self.mount_with(VfsConfig {
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            ..VfsConfig::default()
        })
    }

    pub fn mount_with(&self, config: VfsConfig) -> Client {
        self.mount_as(None, config)
    }

    /// A client that remembers what others may change, and listens to them.
    pub fn follow(&self, config: VfsConfig) -> Client {
        self.mount_as(Some(ClientCache::default()), config)
    }

    fn mount_as(&self, client_cache: Option<ClientCache>, config: VfsConfig) -> Client {
        let options = Options { timeout: Duration::from_secs(20), client_cache, ..Options::default() };
        self.mount_on(Arc::clone(&self.engine) as _, options, config)
    }

    /// A client that reaches the metadata by `engine`.
    pub fn mount_on(&self, engine: Arc<dyn Engine>, options: Options, config: VfsConfig) -> Client {
        let meta = Meta::open(engine, options).unwrap();
        let index = MetaIndex::new(meta);
        let config = VfsConfig { heartbeat: Duration::from_hours(1), cleaning: false, ..config };
        // Nothing is flushed unless the test says so.
        let age = Duration::from_hours(1);
        let data = DataConfig { flush_age: age, flush_idle: age, ..DataConfig::default() };
        let data =
            DataStore::open(&data, Arc::clone(&self.store) as _, Arc::clone(&index) as _, None).unwrap();
        Client { vfs: Vfs::new(index, data, config), caller: Caller::user(0, 0), never: Interrupt::never() }
    }

    /// Objects in the store.
    pub fn objects(&self) -> usize {
        futures::executor::block_on(self.store.list("").count())
    }
}

impl Client {
    pub fn lookup(&self, dir: Ino, name: &str) -> FsResult<Entry> {
        self.vfs.lookup(&self.caller, &self.never, dir, name.as_bytes())
    }

    pub fn make(&self, dir: Ino, name: &str, kind: FileType) -> FsResult<Entry> {
        let node = NewNode { kind, mode: 0o755, umask: 0o022, rdev: 0 };
        self.vfs.make(&self.caller, &self.never, dir, name.as_bytes(), node)
    }

    pub fn mkdir(&self, dir: Ino, name: &str) -> FsResult<Entry> {
        self.make(dir, name, FileType::Dir)
    }

    pub fn create(&self, dir: Ino, name: &str) -> FsResult<(Entry, Opened)> {
        let node = NewNode { kind: FileType::File, mode: 0o644, umask: 0o022, rdev: 0 };
        self.vfs.create(&self.caller, &self.never, dir, name.as_bytes(), node, libc::O_RDWR | libc::O_CREAT)
    }

    pub fn open(&self, ino: Ino, flags: i32) -> FsResult<Opened> {
        self.vfs.open(&self.caller, &self.never, ino, flags)
    }

    pub fn write(&self, fh: u64, offset: u64, data: &[u8]) -> FsResult<u32> {
        self.vfs.write(&self.caller, &self.never, Place { fh, offset }, data, false)
    }

    pub fn read(&self, fh: u64, offset: u64, size: u32) -> FsResult<Vec<u8>> {
        Ok(self.vfs.read(&self.never, fh, offset, size)?.concat())
    }

    pub fn length(&self, ino: Ino) -> FsResult<u64> {
        Ok(self.vfs.getattr(&self.never, ino)?.0.length)
    }

    pub fn truncate(&self, ino: Ino, length: u64) -> FsResult<()> {
        self.vfs.truncate(&self.caller, &self.never, ino, (length, None), false).map(drop)
    }

    pub fn unlink(&self, dir: Ino, name: &str) -> FsResult<()> {
        self.vfs.unlink(&self.caller, &self.never, dir, name.as_bytes())
    }

    pub fn rmdir(&self, dir: Ino, name: &str) -> FsResult<()> {
        self.vfs.rmdir(&self.caller, &self.never, dir, name.as_bytes())
    }

    /// Closes as the kernel does: flush, then release.
    pub fn close(&self, fh: u64) -> FsResult<()> {
        let flushed = self.vfs.flush(fh, 0);
        self.vfs.release(fh, None)?;
        flushed
    }

    /// Makes a file with content, closed.
    pub fn put(&self, dir: Ino, name: &str, data: &[u8]) -> Ino {
        let (entry, opened) = self.create(dir, name).unwrap();
        self.write(opened.fh, 0, data).unwrap();
        self.close(opened.fh).unwrap();
        entry.ino
    }

    /// Content of a file, opened for it.
    pub fn get(&self, ino: Ino) -> Vec<u8> {
        let opened = self.open(ino, libc::O_RDONLY).unwrap();
        let data = self.read(opened.fh, 0, 1 << 20).unwrap();
        self.close(opened.fh).unwrap();
        data
    }

    /// Names in a directory with their offsets, page by page of `page` names.
    pub fn list(&self, dir: Ino, page: usize, plus: bool) -> Vec<(Vec<u8>, u64, Option<Entry>)> {
        let fh = self.vfs.opendir(dir).unwrap();
        let mut all: Vec<(Vec<u8>, u64, Option<Entry>)> = Vec::new();
        loop {
            let offset = all.last().map_or(0, |last| last.1);
            let before = all.len();
            let add = &mut |item: sluice_vfs::DirItem<'_>| {
                let fits = all.len() - before < page;
                if fits {
                    all.push((item.name.to_vec(), item.cookie, item.entry));
                }
                fits
            };
            self.vfs.readdir(&self.never, fh, (offset, plus), add).unwrap();
            if all.len() == before {
                break;
            }
        }
        self.vfs.releasedir(fh);
        all
    }
}

/// Asks `.control` as `client`, and answers what it says in the end.
pub fn control(client: &Client, op: u32, body: &[u8]) -> Vec<u8> {
    let ino = client.lookup(client.vfs.root(), ".control").unwrap().ino;
    let fh = client.open(ino, libc::O_RDWR).unwrap().fh;
    let request = [&op.to_be_bytes()[..], &(body.len() as u32).to_be_bytes(), body].concat();
    client.write(fh, 0, &request).unwrap();
    let answer = std::cell::RefCell::new(Vec::new());
    let rest = || client.read(fh, request.len() as u64, 1 << 16).unwrap();
    eventually("an answer", || {
        *answer.borrow_mut() = rest();
        let mut at = 0;
        let answer = answer.borrow();
        while answer.get(at) == Some(&0xFE) {
            at += 17;
        }
        at < answer.len()
    });
    client.close(fh).unwrap();
    answer.into_inner()
}

/// Waits until `done`; fails after a generous time.
pub fn eventually(what: &str, done: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !done() {
        assert!(Instant::now() < until, "waited too long for: {what}");
        std::thread::yield_now();
    }
}
