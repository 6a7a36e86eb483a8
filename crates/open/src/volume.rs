//! Opens a whole volume for a program.
//!
//! What must stay true: callers in one process that open a volume with the same URL and options
//! share it.

use std::{path::PathBuf, sync::Arc, time::Duration};

use sluice_data::{CacheConfig, DataConfig, DataStore, WritebackConfig};
use sluice_fs::{Opened, Volume};
use sluice_meta::{Meta, Options, ops::walk::Walk};
use sluice_object::StoreConfig;
use sluice_peer::GroupConfig;
use sluice_types::{Caller, FsError, Ino, Name};
use sluice_vfs::{Interrupt, MetaIndex, Vfs, VfsConfig};

use crate::{
    engines,
    error::{OpenError, Result},
    group::{GroupClient, group_name},
    session,
    store::{data_config, store_config},
    variables::Variables,
};

/// Least memory for buffers.
const LEAST_BUFFER: u64 = 32 << 20;
/// Blocks staged at the same moment; above, they are uploaded directly.
const MAX_STAGE_WRITES: usize = 1000;

/// How a volume is opened. The defaults are those of the mount, but nothing is cached of the
/// metadata: each call asks the engine.
#[derive(Clone, Debug, PartialEq)]
pub struct VolumeOptions {
    /// What other clients see of this one in place of a mount point.
    pub purpose: String,
    /// Nothing may be changed, and no session is registered.
    pub read_only: bool,
    /// The directory that is the root; empty for that of the volume.
    pub subdir: String,
    /// Time between two heartbeats.
    pub heartbeat: Duration,
    /// Whether this client runs the hourly cleanup.
    pub cleaning: bool,
    /// For how long an open of a file may be answered without the engine; zero keeps close-to-open
    /// consistency.
    pub open_ttl: Duration,
    /// Another bucket than that of the settings, or another address of it; empty for that.
    pub bucket: String,
    /// Memory in bytes for data that is not uploaded yet, and for the cache without directories.
    pub buffer_size: u64,
    /// How far to read ahead, bytes; 0 for 8 blocks.
    pub max_readahead: u64,
    /// Blocks to fetch whole after a small read of them; 0 for none.
    pub prefetch: usize,
    /// Blocks uploaded at once.
    pub max_uploads: usize,
    /// Blocks downloaded at once.
    pub max_downloads: usize,
    /// Cache directories; none for a cache in memory.
    pub cache_dirs: Vec<PathBuf>,
    /// Bytes of the cache in these directories.
    pub cache_size: u64,
    /// The cache group whose members this client asks for blocks; empty for none. It gives them
    /// none.
    pub cache_group: String,
    /// Whether data is acknowledged once it is on the local disk. Needs a cache directory.
    pub writeback: bool,
}

impl Default for VolumeOptions {
    fn default() -> Self {
        let (data, vfs) = (DataConfig::default(), VfsConfig::default());
        Self {
            purpose: "sdk".into(),
            read_only: false,
            subdir: String::new(),
            heartbeat: vfs.heartbeat,
            cleaning: true,
            open_ttl: Duration::ZERO,
            bucket: String::new(),
            buffer_size: data.buffer_size,
            max_readahead: data.max_readahead,
            prefetch: data.prefetch,
            max_uploads: data.max_uploads,
            max_downloads: data.max_downloads,
            cache_dirs: Vec::new(),
            cache_size: data.cache.size,
            cache_group: String::new(),
            writeback: false,
        }
    }
}

/// The volume in the database at `url`, opened with these options: the one that is open in this
/// process, or a new one.
///
/// # Errors
/// It cannot be opened.
pub fn volume(url: &str, options: &VolumeOptions, variables: Variables<'_>) -> Result<Arc<Volume>> {
    let url = engines::absolute(url)?;
    Volume::shared(format!("{url} {options:?}"), || open(&url, options, variables))
}

/// Opens a volume anew.
fn open(url: &str, options: &VolumeOptions, variables: Variables<'_>) -> Result<Opened> {
    let engine = engines::engine(url, variables)?;
    let meta_options = Options {
        read_only: options.read_only,
        info: session::session_info(&options.purpose),
        heartbeat: options.heartbeat,
        client_cache: engines::client_cache(url)?,
        ..Options::default()
    };
    let meta = Meta::open(engine, meta_options)?;
    let opened = open_parts(&meta, options, variables);
    if opened.is_err() {
        // The first error is the one to tell.
        let _ = meta.close();
    }
    opened
}

fn open_parts(meta: &Arc<Meta>, options: &VolumeOptions, variables: Variables<'_>) -> Result<Opened> {
    let format = meta.env().format();
    let mut data = data_config(&format)?;
    options.apply(&mut data);
    data.auto_compact = !options.read_only;
    let group = match &*options.cache_group {
        "" => None,
        name => {
            let name = group_name(name).map_err(OpenError::Invalid)?;
            let client = GroupClient::new(meta, &name, GroupConfig::default());
            Some(Arc::new(client.map_err(OpenError::Threads)?))
        }
    };
    data.peers = group.as_ref().map(|client| Arc::clone(client.group()) as _);
    let mut store = store_config(&format, variables)?;
    if !options.bucket.is_empty() {
        store.bucket.clone_from(&options.bucket);
    }
    // A staged block survives a power cut; what takes its place must, too.
    store.sync = options.writeback || DataStore::has_staged(&data);
    let vfs = VfsConfig {
        root: root(meta, &options.subdir)?,
        // There is no kernel that could cache anything.
        attr_ttl: Duration::ZERO,
        entry_ttl: Duration::ZERO,
        dir_entry_ttl: Duration::ZERO,
        open_ttl: options.open_ttl,
        xattr: true,
        heartbeat: options.heartbeat,
        cleaning: options.cleaning && !options.read_only,
        storage_class: StoreConfig::clone(&store).storage_class,
        ..VfsConfig::default()
    };
    let store = sluice_object::open(&store)?;
    let index = MetaIndex::new(Arc::clone(meta));
    let data = DataStore::open(&data, store, Arc::clone(&index) as _, None)?;
    let vfs = Vfs::new(index, data, vfs);
    Ok(Opened { vfs, companion: group.map(|client| client as _) })
}

impl VolumeOptions {
    fn apply(&self, data: &mut DataConfig) {
        data.buffer_size = self.buffer_size.max(LEAST_BUFFER);
        data.max_readahead = self.max_readahead;
        data.prefetch = self.prefetch;
        data.max_uploads = self.max_uploads;
        data.max_downloads = self.max_downloads;
        data.cache =
            CacheConfig { dirs: self.cache_dirs.clone(), size: self.cache_size, ..CacheConfig::default() };
        data.writeback = self.writeback.then_some(WritebackConfig {
            upload_delay: Duration::ZERO,
            threshold: 0,
            max_writes: MAX_STAGE_WRITES,
            hours: None,
        });
    }
}

/// The directory that is to be the root.
fn root(meta: &Meta, subdir: &str) -> Result<Ino> {
    let wrong = |error| OpenError::Root(format!("the directory {subdir} cannot be the root"), error);
    let parts = subdir.split('/').filter(|part| !part.is_empty());
    let names: Vec<Name> =
        parts.map(|part| Name::new(part.as_bytes())).collect::<std::result::Result<_, _>>().map_err(wrong)?;
    let depth = names.len();
    let walk = Walk { dir: Ino::ROOT, names, guesses: Vec::new(), caller: Caller::client() };
    let found = meta.read(&walk, &Interrupt::never()).map_err(wrong)?.found;
    match found.last() {
        None if depth == 0 => Ok(Ino::ROOT),
        Some((ino, attr)) if found.len() == depth && attr.is_dir() => Ok(*ino),
        Some((_, attr)) if found.len() == depth || !attr.is_dir() => Err(wrong(FsError::NotDir)),
        _ => Err(wrong(FsError::NotFound)),
    }
}
