//! Volumes to test on.

use std::{path::Path, sync::Arc, time::Duration};

use sluice_data::{DataConfig, DataStore};
use sluice_fs::{Fs, User, Volume};
use sluice_meta::{
    Meta, Options,
    engine::{Engine, Scan},
    schema::VolumeFormat,
};
use sluice_meta_redis::RedisEngine;
use sluice_meta_sql::SqliteEngine;
use sluice_object::{ObjectStore, StoreConfig};
use sluice_testkit::server::Redis;
use sluice_types::{AttrFlags, Caller, Clock as _, SystemClock};
use sluice_vfs::{Changes, Interrupt, MetaIndex, Vfs, VfsConfig};
use tempfile::TempDir;

/// A volume, open in this process.
pub(crate) struct Rig {
    /// The first client.
    pub(crate) volume: Arc<Volume>,
    url: String,
    dir: TempDir,
    _server: Option<Redis>,
}

impl Rig {
    pub(crate) fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let url = format!("sqlite3://{}/meta.db", dir.path().display());
        Self::new(url, dir, None)
    }

    /// `None` if no server is installed; says so.
    pub(crate) fn redis() -> Option<Self> {
        if !Redis::is_installed() {
            eprintln!("skipped: redis-server is not installed");
            return None;
        }
        let server = sluice_testkit::server::redis().unwrap();
        let url = server.url(0);
        Some(Self::new(url, tempfile::tempdir().unwrap(), Some(server)))
    }

    fn new(url: String, dir: TempDir, server: Option<Redis>) -> Self {
        let format = VolumeFormat {
            name: "contract".into(),
            uuid: "6f1b3c52-7d0c-4d3c-9d5e-0c5ad6a5a002".into(),
            block_size: 64,
            dir_stats: true,
            enable_acl: true,
            trash_days: 1,
            ..VolumeFormat::default()
        };
        Meta::format(engine(&url).as_ref(), &format, SystemClock.now()).unwrap();
        let volume = Volume::new(open(&url, dir.path()));
        // Everybody may write to the root of a new volume.
        volume.fs(&User::root()).set_mode("/", 0o755).unwrap();
        Self { volume, url, dir, _server: server }
    }

    /// Opens the volume once more.
    pub(crate) fn open(&self) -> Arc<Vfs> {
        open(&self.url, self.dir.path())
    }

    /// Opens the volume once more, with its objects in another store.
    pub(crate) fn open_on(&self, store: Arc<dyn ObjectStore>) -> Arc<Vfs> {
        join_on(engine(&self.url), store)
    }

    /// The volume as the superuser sees it.
    pub(crate) fn root(&self) -> Fs {
        self.volume.fs(&User::root())
    }

    /// Nothing that is made from now on goes to the trash: a file there counts as a link.
    pub(crate) fn without_trash(&self) {
        let vfs = self.volume.vfs();
        let flags = Some(AttrFlags(AttrFlags::SKIP_TRASH));
        let changes = Changes { flags, ..Changes::default() };
        vfs.setattr(&Caller::client(), &Interrupt::never(), vfs.root(), changes).unwrap();
    }

    /// How many clients have a session.
    pub(crate) fn sessions(&self) -> usize {
        let mut count = 0;
        let add = |rows: Vec<_>| {
            count += rows.len();
            Ok(())
        };
        self.volume.vfs().meta().each_page(Scan::Sessions, &Interrupt::never(), add).unwrap();
        count
    }
}

fn engine(url: &str) -> Arc<dyn Engine> {
    if url.starts_with("sqlite3:") {
        Arc::new(SqliteEngine::open(url).unwrap())
    } else {
        Arc::new(RedisEngine::open(url).unwrap())
    }
}

fn open(url: &str, dir: &Path) -> Arc<Vfs> {
    join(engine(url), dir)
}

/// Opens the volume of an engine, with its objects in a directory.
pub(crate) fn join(engine: Arc<dyn Engine>, dir: &Path) -> Arc<Vfs> {
    let store = StoreConfig {
        storage: "file".into(),
        bucket: format!("{}/objects/", dir.display()),
        name: "contract".into(),
        ..StoreConfig::default()
    };
    join_on(engine, sluice_object::open(&store).unwrap())
}

fn join_on(engine: Arc<dyn Engine>, store: Arc<dyn ObjectStore>) -> Arc<Vfs> {
    let options = Options { timeout: Duration::from_mins(1), ..Options::default() };
    let index = MetaIndex::new(Meta::open(engine, options).unwrap());
    let data = DataConfig {
        volume: "6f1b3c52-7d0c-4d3c-9d5e-0c5ad6a5a002".into(),
        block_size: 64 << 10,
        ..DataConfig::default()
    };
    let data = DataStore::open(&data, store, Arc::clone(&index) as _, None).unwrap();
    let ttl = Duration::ZERO;
    let config =
        VfsConfig { attr_ttl: ttl, entry_ttl: ttl, dir_entry_ttl: ttl, xattr: true, ..VfsConfig::default() };
    Vfs::new(index, data, config)
}

/// Writes a file.
pub(crate) fn put(fs: &Fs, path: &str, content: &[u8]) {
    let file = fs.create(path).unwrap();
    file.write_at(content, 0).unwrap();
    file.close().unwrap();
}

/// Reads a file.
pub(crate) fn get(fs: &Fs, path: &str) -> Vec<u8> {
    let file = fs.open(path).unwrap();
    file.read_pieces(0, 1 << 20).unwrap().concat()
}

/// Asserts that a call fails with `error`.
#[track_caller]
#[allow(clippy::needless_pass_by_value, reason = "the result of a call is handed over")]
pub(crate) fn fails<T: std::fmt::Debug>(done: sluice_fs::Result<T>, error: sluice_types::FsError) {
    assert_eq!(done.unwrap_err().error, error);
}
