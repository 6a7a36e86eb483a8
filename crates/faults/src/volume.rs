//! Volumes on real engines, and clients that mount them.
//!
//! What must stay true: two clients share only the database server (or file) and the object store,
//! as two machines do.

use std::{sync::Arc, time::Duration};

use sluice_data::{DataConfig, DataStore};
use sluice_meta::{Meta, Options, engine::Engine, schema::VolumeFormat};
use sluice_meta_redis::RedisEngine;
use sluice_meta_sql::SqliteEngine;
use sluice_object::{
    ObjectStore, RetryPolicy,
    crypto::{DataCipher, ObjectCipher, VolumeKey},
    layers::{Encrypted, Retry},
};
use sluice_types::{Caller, Clock, FileType, FsResult, Ino, ManualClock, Time};
use sluice_vfs::{
    DirItem, Entry, FlockKind, Interrupt, MetaIndex, NewNode, Opened, Place, RenameMode, Vfs, VfsConfig,
};

use crate::store::FaultyStore;

/// How long clients wait for a dead engine or store unless the test says otherwise.
const TIMEOUT: Duration = Duration::from_mins(2);
/// Seconds between two heartbeats; after five of them a session is dead.
pub const HEARTBEAT: Duration = Duration::from_secs(12);

/// A volume.
pub struct Volume {
    /// URL by which clients reach the metadata.
    pub url: String,
    /// Where the blocks are.
    pub store: FaultyStore,
    /// The time, the same for all clients.
    pub clock: ManualClock,
    /// PEM of the key that encrypts the blocks, if they are encrypted.
    pub key: Option<String>,
}

/// A client, and the user who calls.
pub struct Client {
    /// The mounted volume.
    pub vfs: Arc<Vfs>,
    /// Who calls.
    pub caller: Caller,
    /// Nobody interrupts by this.
    pub never: Interrupt,
}

/// What a mount is told.
#[derive(Clone, Debug)]
pub struct Mount {
    /// How long a dead engine is waited for.
    pub timeout: Duration,
    /// The data path.
    pub data: DataConfig,
}

impl Default for Mount {
    fn default() -> Self {
        let data = DataConfig {
            volume: "a-volume".into(),
            block_size: 64 << 10,
            flush_age: Duration::from_hours(1),
            flush_idle: Duration::from_hours(1),
            auto_compact: false,
            give_up: TIMEOUT,
            ..DataConfig::default()
        };
        Self { timeout: TIMEOUT, data }
    }
}

/// The engine that a URL names.
pub fn engine(url: &str) -> Arc<dyn Engine> {
    if url.starts_with("sqlite3:") {
        Arc::new(SqliteEngine::open(url).unwrap())
    } else {
        Arc::new(RedisEngine::open(url).unwrap())
    }
}

impl Volume {
    /// A new volume in the database of `url`.
    pub fn format(url: impl Into<String>) -> Self {
        Self::format_with(url, |_| {})
    }

    /// A new volume with settings.
    pub fn format_with(url: impl Into<String>, set: impl FnOnce(&mut VolumeFormat)) -> Self {
        let url = url.into();
        let clock = ManualClock::new(Time { sec: 1_700_000_000, nsec: 0 });
        let mut format = VolumeFormat {
            name: "faults".into(),
            uuid: "6f1b3c52-7d0c-4d3c-9d5e-0c5ad6a5a001".into(),
            block_size: 64,
            dir_stats: true,
            ..VolumeFormat::default()
        };
        set(&mut format);
        Meta::format(engine(&url).as_ref(), &format, clock.now()).unwrap();
        Self { url, store: FaultyStore::default(), clock, key: None }
    }

    /// A client that reaches the metadata by the volume's URL.
    pub fn mount(&self) -> Client {
        self.mount_with(&self.url, &Mount::default())
    }

    /// A client that reaches the metadata by `url`. Attributes are believed for no time, heartbeats
    /// come by [`Client::beat`] only.
    pub fn mount_with(&self, url: &str, mount: &Mount) -> Client {
        let clock: Arc<dyn Clock> = Arc::new(self.clock.clone());
        let options = Options {
            timeout: mount.timeout,
            heartbeat: HEARTBEAT,
            clock: Arc::clone(&clock),
            ..Options::default()
        };
        let index = MetaIndex::new(Meta::open(engine(url), options).unwrap());
        let data = DataStore::open(&mount.data, self.objects(), Arc::clone(&index) as _, None).unwrap();
        let config = VfsConfig {
            attr_ttl: Duration::ZERO,
            entry_ttl: Duration::ZERO,
            dir_entry_ttl: Duration::ZERO,
            heartbeat: Duration::from_hours(1),
            cleaning: false,
            clock,
            ..VfsConfig::default()
        };
        Client { vfs: Vfs::new(index, data, config), caller: Caller::user(0, 0), never: Interrupt::never() }
    }

    /// Time passes in which `survivor` alone shows that it lives, until it has cleaned up after the
    /// others.
    pub fn outlive(&self, survivor: &Client) -> FsResult<()> {
        // First its own beats have to have gone through for as long as a session lasts.
        for _ in 0..8 {
            self.clock.advance(HEARTBEAT);
            survivor.beat()?;
        }
        Ok(())
    }

    /// The object store with the layers that a mount puts before it.
    fn objects(&self) -> Arc<dyn ObjectStore> {
        let policy = RetryPolicy {
            give_up: TIMEOUT,
            get_timeout: Duration::from_millis(200),
            put_timeout: Duration::from_millis(200),
            first_pause: Duration::from_millis(10),
            max_pause: Duration::from_millis(500),
            ..RetryPolicy::default()
        };
        let store: Arc<dyn ObjectStore> = Arc::new(Retry::new(Arc::new(self.store.clone()), policy));
        match &self.key {
            None => store,
            Some(pem) => {
                let cipher = ObjectCipher::new(VolumeKey::from_pem(pem, "").unwrap(), DataCipher::Aes256Gcm);
                Arc::new(Encrypted::new(store, cipher))
            }
        }
    }
}

impl Client {
    /// One heartbeat.
    pub fn beat(&self) -> FsResult<()> {
        self.vfs.meta().beat().map(|ended| ended.unwrap())
    }

    /// Looks a name up.
    pub fn lookup(&self, dir: Ino, name: &str) -> FsResult<Entry> {
        self.vfs.lookup(&self.caller, &self.never, dir, name.as_bytes())
    }

    /// Makes a directory.
    pub fn mkdir(&self, dir: Ino, name: &str) -> FsResult<Ino> {
        let node = NewNode { kind: FileType::Dir, mode: 0o755, umask: 0o022, rdev: 0 };
        Ok(self.vfs.make(&self.caller, &self.never, dir, name.as_bytes(), node)?.ino)
    }

    /// Makes a file, exclusively, and opens it.
    pub fn create(&self, dir: Ino, name: &str) -> FsResult<(Ino, Opened)> {
        self.create_by(&self.never, dir, name)
    }

    /// [`Self::create`], interruptible.
    pub fn create_by(&self, interrupt: &Interrupt, dir: Ino, name: &str) -> FsResult<(Ino, Opened)> {
        let node = NewNode { kind: FileType::File, mode: 0o644, umask: 0o022, rdev: 0 };
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        let made = self.vfs.create(&self.caller, interrupt, dir, name.as_bytes(), node, flags)?;
        Ok((made.0.ino, made.1))
    }

    /// Opens a file.
    pub fn open(&self, ino: Ino) -> FsResult<Opened> {
        self.vfs.open(&self.caller, &self.never, ino, libc::O_RDWR)
    }

    /// Writes.
    pub fn write(&self, fh: u64, offset: u64, data: &[u8]) -> FsResult<()> {
        self.vfs.write(&self.caller, &self.never, Place { fh, offset }, data, false).map(drop)
    }

    /// Reads.
    pub fn read(&self, fh: u64, offset: u64, size: u32) -> FsResult<Vec<u8>> {
        Ok(self.vfs.read(&self.never, fh, offset, size)?.concat())
    }

    /// Closes as the kernel does: flush, then release.
    pub fn close(&self, fh: u64) -> FsResult<()> {
        let flushed = self.vfs.flush(fh, 0);
        self.vfs.release(fh, None)?;
        flushed
    }

    /// Makes a file with content, fsynced and closed.
    pub fn put(&self, dir: Ino, name: &str, data: &[u8]) -> FsResult<Ino> {
        let (ino, opened) = self.create(dir, name)?;
        self.write(opened.fh, 0, data)?;
        self.vfs.fsync(&self.never, opened.fh)?;
        self.close(opened.fh)?;
        Ok(ino)
    }

    /// Content of a file, opened for it.
    pub fn get(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let opened = self.open(ino)?;
        let data = self.read(opened.fh, 0, 4 << 20);
        self.close(opened.fh)?;
        data
    }

    /// Removes a name.
    pub fn unlink(&self, dir: Ino, name: &str) -> FsResult<()> {
        self.vfs.unlink(&self.caller, &self.never, dir, name.as_bytes())
    }

    /// Removes a directory.
    pub fn rmdir(&self, dir: Ino, name: &str) -> FsResult<()> {
        self.vfs.rmdir(&self.caller, &self.never, dir, name.as_bytes())
    }

    /// Gives a file one more name.
    pub fn link(&self, ino: Ino, dir: Ino, name: &str) -> FsResult<()> {
        self.vfs.link(&self.caller, &self.never, ino, dir, name.as_bytes()).map(drop)
    }

    /// Moves a name.
    pub fn rename(&self, from: (Ino, &str), to: (Ino, &str)) -> FsResult<()> {
        let (from, to) = ((from.0, from.1.as_bytes()), (to.0, to.1.as_bytes()));
        self.vfs.rename(&self.caller, &self.never, from, to, RenameMode::Replace)
    }

    /// Takes a BSD lock at once, or fails.
    pub fn lock(&self, ino: Ino, owner: u64) -> FsResult<()> {
        self.vfs.flock(&self.never, (ino, 0), owner, Some(FlockKind::Write), false)
    }

    /// Names in a directory, `.` and `..` and internal files left out.
    pub fn list(&self, dir: Ino, plus: bool) -> FsResult<Vec<String>> {
        let fh = self.vfs.opendir(dir)?;
        let (mut names, mut offset) = (Vec::new(), 0);
        let listed = loop {
            let before = offset;
            let add = &mut |item: DirItem<'_>| {
                offset = item.cookie;
                names.push(String::from_utf8_lossy(item.name).into_owned());
                true
            };
            match self.vfs.readdir(&self.never, fh, (before, plus), add) {
                Ok(()) if offset == before => break Ok(()),
                Ok(()) => {}
                Err(error) => break Err(error),
            }
        };
        self.vfs.releasedir(fh);
        names.retain(|name| !name.starts_with('.'));
        names.sort();
        listed.map(|()| names)
    }
}
