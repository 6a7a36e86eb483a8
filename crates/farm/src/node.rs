//! A member in a separate process, whose cache contains all requested blocks.

use std::{
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::Result;
use bytes::Bytes;
use clap::Args;
use rustix::process::{Resource, Rlimit, setrlimit};
use sluice_data::{BlockKey, CacheConfig, ChunkIndex, DataConfig, DataStore};
use sluice_object::StoreConfig;
use sluice_peer::{Directory, Group, GroupConfig, GroupKey, KeyRing, Member, Members, ServeConfig, Server};
use sluice_types::{FsError, FsResult, Ino, Interrupt, Slice, Time};

/// The secret of the group that is measured.
pub(crate) const KEY: &[u8] = b"the group that is measured";
/// Sizes of the two kinds of blocks.
pub(crate) const SMALL: u32 = 11_800;
pub(crate) const LARGE: u32 = 4 << 20;
/// Files that a member may open, if the system allows it.
const OPEN_FILES: u64 = 1 << 20;
/// Longest time to fill the cache.
const FILLING: Duration = Duration::from_mins(1);
/// How many of each are cached.
pub(crate) const SMALLS: u64 = 20_000;
pub(crate) const LARGES: u64 = 64;

/// The block of a number.
pub(crate) fn block(number: u64, size: u32) -> BlockKey {
    BlockKey { id: number + u64::from(size), index: 0, size }
}

/// The bytes of a block.
pub(crate) fn content(number: u64, size: u32) -> Vec<u8> {
    vec![number as u8; size as usize]
}

#[derive(Args)]
pub(crate) struct Node {
    /// Directory of its cache
    dir: PathBuf,
    #[arg(long)]
    plaintext: bool,
    /// As the flag of a mount
    #[arg(long, value_name = "MIB")]
    buffer_size: u64,
}

/// Nobody reads files here.
#[derive(Debug)]
struct NoFiles;

/// A list without an engine.
pub(crate) struct Fixed(pub(crate) Vec<Member>);

impl Directory for Fixed {
    fn members(&self) -> Result<Members, String> {
        Ok(Members { version: 1, members: self.0.clone() })
    }

    fn keys(&self) -> Result<Vec<GroupKey>, String> {
        Ok(vec![GroupKey::new(1, KEY)])
    }
}

pub(crate) fn ring() -> Arc<KeyRing> {
    Arc::new(KeyRing::new("volume", "group", vec![GroupKey::new(1, KEY)]))
}

impl Node {
    /// Serves until its input ends. Says where it listens and what its certificate is.
    pub(crate) fn run(self) -> Result<()> {
        // As a mount does.
        let open_files = Rlimit { current: Some(OPEN_FILES), maximum: Some(OPEN_FILES) };
        let _ = setrlimit(Resource::Nofile, open_files);
        let config = DataConfig {
            volume: "speed".into(),
            buffer_size: self.buffer_size << 20,
            cache: CacheConfig {
                dirs: vec![self.dir.clone()],
                free_space_ratio: 0.01,
                ..CacheConfig::default()
            },
            ..DataConfig::default()
        };
        let bucket = format!("{}/objects/", self.dir.display());
        let store =
            sluice_object::open(&StoreConfig { storage: "file".into(), bucket, ..StoreConfig::default() })?;
        let index = Arc::new(NoFiles) as Arc<dyn ChunkIndex>;
        let data = Arc::new(DataStore::open(&config, store, index, None)?);
        fill(&data)?;
        // The kernel shall not write them while others measure.
        rustix::fs::sync();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
        let group = GroupConfig { own: Some("node".into()), ..GroupConfig::default() };
        let group = Group::new(group, ring(), Arc::new(Fixed(Vec::new())), runtime.handle().clone());
        let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let serve = ServeConfig { plaintext: self.plaintext, ..ServeConfig::default() };
        let server = Server::start(group, Arc::downgrade(&data), listen, serve, runtime.handle())?;
        let fingerprint = server.fingerprint().map_or_else(String::new, hex::encode);
        println!("{} {fingerprint}", server.port());
        std::io::stdout().flush()?;
        std::io::stdin().read_to_end(&mut Vec::new())?;
        Ok(())
    }
}

/// Puts all blocks into the cache files.
fn fill(data: &DataStore) -> Result<()> {
    let until = Instant::now() + FILLING;
    for (count, size) in [(SMALLS, SMALL), (LARGES, LARGE)] {
        for number in 0..count {
            let key = block(number, size);
            // The queue of blocks to be written has a limit: one that it did not take is offered
            // again.
            while data.location(key).is_none() {
                data.accept(key, &Bytes::from(content(number, size)));
                anyhow::ensure!(Instant::now() < until, "the cache takes no blocks: is its disk full?");
                std::thread::yield_now();
            }
        }
        let all = (0..count).all(|number| data.location(block(number, size)).is_some());
        anyhow::ensure!(all, "not all blocks fit into the cache");
    }
    Ok(())
}

impl ChunkIndex for NoFiles {
    fn slices(&self, _: Ino, _: u32, _: bool, _: &Interrupt) -> FsResult<Arc<[Slice]>> {
        Ok(Arc::new([]))
    }

    fn known_slices(&self, _: Ino, _: u32) -> Option<Arc<[Slice]>> {
        None
    }

    fn new_slice_id(&self, _: &Interrupt) -> FsResult<u64> {
        Err(FsError::io("there are no files here"))
    }

    fn commit(&self, _: Ino, _: u32, _: &[Slice], _: Time, _: &dyn Fn() -> bool) -> FsResult<u32> {
        Err(FsError::io("there are no files here"))
    }

    fn replace(&self, _: Ino, _: u32, _: &[Slice], _: usize, _: Slice) -> FsResult<bool> {
        Ok(false)
    }
}
