//! Cache files of a member that were damaged on its disk.

use std::{fs, net::SocketAddr, path::Path, sync::Arc};

use sluice_data::{CacheConfig, ChunkIndex, DataConfig, DataStore};
use sluice_object::StoreConfig;
use sluice_peer::{Directory, Group, GroupConfig, Member, ServeConfig, Server};
use sluice_types::{FsError, FsResult, Ino, Interrupt, Slice, Time};
use tokio::runtime::Handle;

use crate::cluster::{Cluster, TIMEOUT, content, fetch, key, with_long_timeout};

/// Nobody reads files here.
struct NoFiles;

impl ChunkIndex for NoFiles {
    fn slices(&self, _: Ino, _: u32, _: bool, _: &Interrupt) -> FsResult<Arc<[Slice]>> {
        Ok(Arc::new([]))
    }

    fn known_slices(&self, _: Ino, _: u32) -> Option<Arc<[Slice]>> {
        None
    }

    fn new_slice_id(&self, _: &Interrupt) -> FsResult<u64> {
        Err(FsError::NotFound)
    }

    fn commit(&self, _: Ino, _: u32, _: &[Slice], _: Time, _: &dyn Fn() -> bool) -> FsResult<u32> {
        Err(FsError::NotFound)
    }

    fn replace(&self, _: Ino, _: u32, _: &[Slice], _: usize, _: Slice) -> FsResult<bool> {
        Ok(false)
    }
}

/// Flips a bit of each file below a directory.
fn damage(dir: &Path) -> usize {
    let mut damaged = 0;
    for entry in fs::read_dir(dir).expect("a directory").flatten() {
        if entry.file_type().expect("a type").is_dir() {
            damaged += damage(&entry.path());
        } else {
            let mut bytes = fs::read(entry.path()).expect("read");
            bytes[10] ^= 1;
            fs::write(entry.path(), bytes).expect("written");
            damaged += 1;
        }
    }
    damaged
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_cache_file_is_never_passed_on_and_goes() {
    for plaintext in [true, false] {
        let cluster = Cluster::new(plaintext);
        let place = tempfile::tempdir().expect("a directory");
        let bucket = format!("{}/objects/", place.path().display());
        let cache = place.path().join("cache");
        let data = DataConfig {
            volume: "v".into(),
            // So little that no block is kept in memory beside its file.
            buffer_size: 64 << 10,
            cache: CacheConfig { dirs: vec![cache.clone()], free_space_ratio: 0.0, ..CacheConfig::default() },
            ..DataConfig::default()
        };
        let store = StoreConfig { storage: "file".into(), bucket, ..StoreConfig::default() };
        let store = sluice_object::open(&store).expect("an object store");
        let open = move || DataStore::open(&data, store, Arc::new(NoFiles) as _, None).expect("it opens");
        let data = Arc::new(tokio::task::spawn_blocking(open).await.expect("opened"));
        let config = GroupConfig { own: Some("a:1".into()), ..with_long_timeout() };
        let directory = cluster.engine.clone() as Arc<dyn Directory>;
        let group = Group::new(config, cluster.engine.ring(), directory, Handle::current());
        let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
        let serve = ServeConfig { plaintext, ..ServeConfig::default() };
        let server = Server::start(group, Arc::downgrade(&data), listen, serve, &Handle::current());
        let server = server.expect("it listens");
        cluster.engine.join(Member {
            name: "a:1".into(),
            address: format!("127.0.0.1:{}", server.port()),
            weight: 100,
            fingerprint: server.fingerprint(),
            backup: false,
            ..Member::default()
        });
        // One goes as a copy, one is sent from its file.
        let blocks = [key(1, 20_000), key(2, 300_000)];
        let until = tokio::time::Instant::now() + TIMEOUT;
        for block in blocks {
            data.accept(block, &content(block));
            while data.location(block).is_none() {
                assert!(tokio::time::Instant::now() < until, "it is never written");
                tokio::task::yield_now().await;
            }
        }
        let client = cluster.client(with_long_timeout());
        for block in blocks {
            assert!(fetch(&client, block, 0..block.size).await);
            assert!(fetch(&client, block, 100..200).await);
        }
        assert_eq!(damage(&cache.join("v/raw")), 2);
        for block in blocks {
            assert!(!fetch(&client, block, 0..block.size).await, "what is damaged is not believed");
            while data.location(block).is_some() {
                assert!(tokio::time::Instant::now() < until, "it is still there");
                tokio::task::yield_now().await;
            }
        }
        assert!(client.stats().errors.get() >= 2);
        drop(client);
        tokio::task::spawn_blocking(move || drop((server, data))).await.expect("closed");
    }
}
