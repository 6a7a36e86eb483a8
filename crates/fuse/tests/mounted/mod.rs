//! Real mounts of a volume in memory.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test uses its own part of it")]

use std::{
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use sluice_data::{DataConfig, DataStore};
use sluice_fuse::{Config, MountError, MountOptions, Session, SessionHandle, VolumeFs};
use sluice_meta::{Meta, Options, mem::MemEngine, schema::VolumeFormat};
use sluice_object::MemStore;
use sluice_testkit::fuse::no_fuse;
use sluice_types::{Clock, SystemClock};
use sluice_vfs::{MetaIndex, Vfs, VfsConfig};
use tempfile::TempDir;

/// A volume in memory.
pub struct Volume {
    engine: Arc<MemEngine>,
    store: Arc<MemStore>,
}

impl Volume {
    pub fn new(trash_days: i64) -> Self {
        let engine = Arc::new(MemEngine::new());
        let format = VolumeFormat { name: "test".into(), trash_days, ..VolumeFormat::default() };
        Meta::format(engine.as_ref(), &format, SystemClock.now()).unwrap();
        Self { engine, store: Arc::new(MemStore::new()) }
    }

    /// What is mounted of it.
    pub fn open(&self, config: VfsConfig) -> (Arc<Vfs>, Arc<VolumeFs>) {
        let engine = Arc::clone(&self.engine) as _;
        let index = MetaIndex::new(Meta::open(engine, Options::default()).unwrap());
        let store = Arc::clone(&self.store) as _;
        let data = DataStore::open(&DataConfig::default(), store, Arc::clone(&index) as _, None).unwrap();
        let vfs = Vfs::new(index, data, config);
        let adapter = VolumeFs::new(Arc::clone(&vfs));
        (vfs, adapter)
    }
}

/// A mounted volume that ends with the test.
pub struct Mounted {
    pub vfs: Arc<Vfs>,
    pub handle: SessionHandle,
    served: Option<JoinHandle<Result<(), MountError>>>,
    dir: TempDir,
}

impl Mounted {
    /// Without a trash; `None` where there is known to be no FUSE.
    pub fn new(config: VfsConfig) -> Option<Self> {
        Self::with_trash(config, 0)
    }

    pub fn with_trash(config: VfsConfig, trash_days: i64) -> Option<Self> {
        (!no_fuse()).then(|| Self::of(&Volume::new(trash_days), config))
    }

    pub fn of(volume: &Volume, config: VfsConfig) -> Self {
        Self::over(volume, config, false)
    }

    /// Its requests come through `io_uring` if `rings`.
    pub fn over(volume: &Volume, config: VfsConfig, rings: bool) -> Self {
        let (vfs, adapter) = volume.open(config);
        let notified = Arc::clone(&adapter);
        let config = Config { features: adapter.features(), ..Config::default() };
        let dir = tempfile::tempdir().unwrap();
        let mut options = MountOptions::new("memory", "sluice");
        options.allow_other = true;
        options.io_uring = rings;
        let session = Session::mount(adapter, dir.path(), &options, config).unwrap();
        let handle = session.handle();
        notified.notify(handle.notifier().clone());
        let served = Some(thread::spawn(move || session.run()));
        let deadline = Instant::now() + Duration::from_secs(30);
        while rings && !handle.uses_io_uring() {
            assert!(Instant::now() < deadline, "rings serve");
            thread::yield_now();
        }
        Self { vfs, handle, served, dir }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// How often the kernel asked for each of `ops` while `run` ran.
    pub fn asked<const N: usize>(&self, ops: [&str; N], run: impl FnOnce()) -> [u64; N] {
        let counts = || {
            let text = self.vfs.stats_text();
            ops.map(|op| {
                let name = format!("juicefs_fuse_ops_total_{op} ");
                text.lines().find_map(|line| line.strip_prefix(&name)?.parse().ok()).unwrap_or(0)
            })
        };
        let before: [u64; N] = counts();
        run();
        let after = counts();
        std::array::from_fn(|at| after[at] - before[at])
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.handle.shutdown(Duration::from_secs(10)).unwrap();
        self.served.take().unwrap().join().unwrap().unwrap();
        self.vfs.close(None).unwrap();
    }
}
