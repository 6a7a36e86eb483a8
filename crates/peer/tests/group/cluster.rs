//! A group in one process: an object store that counts, a list of members, members and clients.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use sluice_data::{BlockKey, Cached, Peers as _, Served, pages};
use sluice_peer::{
    Blocks, Boxed, Directory, Group, GroupConfig, GroupKey, KeyRing, Member, Members, ServeConfig, Server,
};
use tokio::{runtime::Handle, sync::Semaphore};

pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// The right bytes of a block.
pub(crate) fn content(key: BlockKey) -> Bytes {
    let seed = key.id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ u64::from(key.index);
    (0..key.size)
        .map(|at| ((seed >> (at % 57)) as u8).wrapping_add((at / 57) as u8))
        .collect::<Vec<u8>>()
        .into()
}

pub(crate) fn key(id: u64, size: u32) -> BlockKey {
    BlockKey { id, index: 0, size }
}

/// The metadata engine, as far as a group goes.
#[derive(Default)]
pub(crate) struct Engine {
    pub(crate) list: Mutex<Members>,
    pub(crate) keys: Mutex<Vec<(u64, u8)>>,
    pub(crate) asked: AtomicU64,
}

impl Engine {
    pub(crate) fn ring(&self) -> Arc<KeyRing> {
        Arc::new(KeyRing::new("volume", "group", self.group_keys()))
    }

    fn group_keys(&self) -> Vec<GroupKey> {
        self.keys.lock().iter().map(|(number, byte)| GroupKey::new(*number, &[*byte; 32])).collect()
    }

    pub(crate) fn join(&self, member: Member) {
        let mut list = self.list.lock();
        list.members.retain(|other| other.name != member.name);
        list.members.push(member);
        list.version += 1;
    }
}

impl Directory for Engine {
    fn members(&self) -> Result<Members, String> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        Ok(self.list.lock().clone())
    }

    fn version(&self) -> Result<u64, String> {
        Ok(self.list.lock().version)
    }

    fn keys(&self) -> Result<Vec<GroupKey>, String> {
        Ok(self.group_keys())
    }
}

/// The cache of a member over the object store.
pub(crate) struct Cache {
    pub(crate) held: Mutex<BTreeMap<BlockKey, Bytes>>,
    /// Reads of the object store by all members.
    pub(crate) store_reads: Arc<AtomicU64>,
    /// A permit for each read of the object store.
    pub(crate) store: Arc<Semaphore>,
    /// Blocks that are on the disk alone.
    pub(crate) cold: Mutex<BTreeSet<BlockKey>>,
    pub(crate) disk: Disk,
}

/// A disk that may hang.
#[derive(Default)]
pub(crate) struct Disk {
    hangs: Mutex<bool>,
    changed: Condvar,
}

impl Disk {
    pub(crate) fn hang(&self, hangs: bool) {
        *self.hangs.lock() = hangs;
        self.changed.notify_all();
    }

    fn wait(&self) {
        self.changed.wait_while(&mut self.hangs.lock(), |hangs| *hangs);
    }
}

/// A cache as its server sees it.
struct MemberCache(Arc<Cache>);

impl Blocks for MemberCache {
    fn serve(
        &self,
        block: BlockKey,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Cached<Served> {
        if self.0.cold.lock().contains(&block) {
            if !wait {
                return Cached::Cold;
            }
            self.0.disk.wait();
        }
        let held = self.0.held.lock();
        let Some(bytes) = held.get(&block) else { return Cached::Missing };
        sums.extend(pages(range).map(|page| crc32c::crc32c(&bytes[page.start as usize..page.end as usize])));
        let part = range.start as usize..range.end as usize;
        // One block of two comes without a copy.
        if block.id.is_multiple_of(2) {
            return Cached::Here(Served::Shared(bytes.slice(part)));
        }
        let (out, at) = out;
        out.resize(out.len().max(at + range.len()), 0);
        out[at..at + range.len()].copy_from_slice(&bytes[part]);
        Cached::Here(Served::Copied)
    }

    fn read(&self, block: BlockKey) -> Boxed<Result<Bytes, String>> {
        let this = Arc::clone(&self.0);
        Box::pin(async move {
            let permit = this.store.acquire().await.map_err(|_| "the object store is away".to_owned())?;
            permit.forget();
            let mut held = this.held.lock();
            if let Some(bytes) = held.get(&block) {
                return Ok(bytes.clone());
            }
            this.store_reads.fetch_add(1, Ordering::SeqCst);
            Ok(held.entry(block).or_insert_with(|| content(block)).clone())
        })
    }

    fn accept(&self, block: BlockKey, whole: &Bytes) {
        self.0.held.lock().insert(block, whole.clone());
    }

    fn has(&self, block: BlockKey) -> bool {
        self.0.held.lock().contains_key(&block)
    }

    fn warm(&self, block: BlockKey) -> Result<bool, String> {
        self.0.held.lock().insert(block, content(block));
        Ok(true)
    }

    fn evict(&self, block: BlockKey) {
        self.0.held.lock().remove(&block);
    }
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) group: Arc<Group>,
    pub(crate) cache: Arc<Cache>,
    pub(crate) server: Server,
}

/// Settings of a client that no delay of this machine sends to the object store.
pub(crate) fn with_long_timeout() -> GroupConfig {
    GroupConfig { min_timeout: TIMEOUT, ..GroupConfig::default() }
}

/// A group.
pub(crate) struct Cluster {
    pub(crate) engine: Arc<Engine>,
    pub(crate) store_reads: Arc<AtomicU64>,
    pub(crate) plaintext: bool,
}

impl Cluster {
    pub(crate) fn new(plaintext: bool) -> Self {
        let engine = Engine { keys: Mutex::new(vec![(1, 1)]), ..Engine::default() };
        Self { engine: Arc::new(engine), store_reads: Arc::default(), plaintext }
    }

    /// A member, which has joined.
    pub(crate) fn node(&self, name: &str, backup: bool) -> Node {
        let config = GroupConfig { own: Some(name.into()), ..with_long_timeout() };
        let group = Group::new(
            config,
            self.engine.ring(),
            self.engine.clone() as Arc<dyn Directory>,
            Handle::current(),
        );
        let cache = Arc::new(Cache {
            held: Mutex::default(),
            store_reads: Arc::clone(&self.store_reads),
            store: Arc::new(Semaphore::new(1 << 20)),
            cold: Mutex::default(),
            disk: Disk::default(),
        });
        let listen: SocketAddr = ([127, 0, 0, 1], 0).into();
        let config = ServeConfig { plaintext: self.plaintext, ..ServeConfig::default() };
        let server =
            Server::start(group.clone(), MemberCache(cache.clone()), listen, config, &Handle::current());
        let node = Node { name: name.into(), group, cache, server: server.expect("it listens") };
        self.engine.join(Self::member(&node, backup));
        node.group.refresh().expect("the engine answers");
        node
    }

    pub(crate) fn member(node: &Node, backup: bool) -> Member {
        Member {
            name: node.name.clone(),
            address: format!("127.0.0.1:{}", node.server.port()),
            weight: 100,
            fingerprint: node.server.fingerprint(),
            backup,
            ..Member::default()
        }
    }

    /// A client that only takes.
    pub(crate) fn client(&self, config: GroupConfig) -> Arc<Group> {
        let group = Group::new(
            config,
            self.engine.ring(),
            self.engine.clone() as Arc<dyn Directory>,
            Handle::current(),
        );
        group.refresh().expect("the engine answers");
        group
    }

    pub(crate) fn reads(&self) -> u64 {
        self.store_reads.load(Ordering::SeqCst)
    }
}

/// Fetches part of a block; what comes has to be right.
pub(crate) async fn fetch(group: &Group, block: BlockKey, range: Range<u32>) -> bool {
    let got = tokio::time::timeout(TIMEOUT, group.fetch(block, range.clone())).await.expect("it ends");
    match got {
        Some(bytes) => {
            assert!(
                bytes == content(block).slice(range.start as usize..range.end as usize),
                "{block:?} {range:?}"
            );
            true
        }
        None => false,
    }
}
