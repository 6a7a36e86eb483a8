//! A process with many clients of the volume. Each has its own session, its own metadata cache and
//! its own data path without a cache. They share the threads, the connections to the metadata
//! engine, and those to the cache nodes.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use clap::Args;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sluice_data::{DataConfig, DataStore};
use sluice_meta::{Meta, Options};
use sluice_object::ObjectStore;
use sluice_peer::{Group, GroupConfig};
use sluice_testkit::wrap::Counting;
use sluice_types::Timetable;
use sluice_vfs::{MetaIndex, Vfs, VfsConfig};
use tokio::runtime::{Builder, Handle};

use super::{
    crowd::{self, Outcome},
    data_set::DataSet,
    mount::{BELIEVED, Client},
    process::{obey, say, status},
    volume,
    work::{Visitor, Work},
};

/// Threads for the connections to cache nodes and to the object store.
const RUNTIME_THREADS: usize = 2;
/// Threads for heartbeats, which wait for the metadata engine, and for other periodic work.
const BEATING: usize = 8;
const PERIODIC: usize = 1;
/// Threads that open and close clients.
const OPENING: usize = 16;
/// Memory of each client for blocks, in bytes: too little to keep one, so that each read asks a
/// cache node.
const BUFFER: u64 = 1 << 10;

/// Clients that work when they are told to.
#[derive(Args)]
pub(crate) struct Clients {
    /// URL of the metadata engine
    meta: String,
    /// How many clients this process has
    #[arg(long)]
    count: usize,
    /// Number of the first one
    #[arg(long)]
    first: usize,
    /// How many clients there are in all processes
    #[arg(long)]
    all: usize,
    /// Threads on which they work
    #[arg(long)]
    threads: usize,
    /// Seconds for which they do nothing first
    #[arg(long)]
    idle: u64,
    /// Seconds between two heartbeats
    #[arg(long)]
    heartbeat: u64,
    /// Milliseconds that a client waits for a cache node at least
    #[arg(long)]
    min_timeout: u64,
    #[command(flatten)]
    work: Work,
}

/// The clients are there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ready {
    /// Seconds until all were open.
    pub(crate) opened: f64,
    /// Round trips of each client to open.
    pub(crate) trips: f64,
    /// Round trips of each client in a second without work.
    pub(crate) idle: f64,
}

/// What the process took, after the work.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// Highest memory use in KiB.
    pub(crate) memory: u64,
}

/// What all clients of the process share.
struct Shared {
    engine: Arc<Counting>,
    store: Arc<dyn ObjectStore>,
    group: Arc<Group>,
    runtime: Handle,
    heartbeats: Timetable,
    periodic: Timetable,
    /// Time between two heartbeats of a client.
    heartbeat: Duration,
}

impl Clients {
    /// Says [`Ready`]; then, when it is told to go, [`Outcome`] and [`Usage`].
    pub(crate) fn run(self) -> Result<()> {
        let runtime = Builder::new_multi_thread().worker_threads(RUNTIME_THREADS).enable_all().build()?;
        let engine = volume::engine(&self.meta)?;
        // For the list of members, which is for all of them.
        let meta = Meta::open(Arc::clone(&engine) as _, volume::options("list".into(), true))?;
        let min_timeout = Duration::from_millis(self.min_timeout);
        let config = GroupConfig { min_timeout, ..GroupConfig::default() };
        let shared = Shared {
            store: sluice_object::open(&volume::store_config(&meta))?,
            group: sluice_open::group(&meta, volume::GROUP, config, runtime.handle().clone()),
            engine,
            runtime: runtime.handle().clone(),
            heartbeats: Timetable::start("farm-beat", BEATING)?,
            periodic: Timetable::start("farm-periodic", PERIODIC)?,
            heartbeat: Duration::from_secs(self.heartbeat),
        };
        volume::join(&shared.group)?;
        let set = DataSet::new(self.work.scale);
        let (begun, before) = (Instant::now(), shared.engine.trips().total());
        let each = |trips: u64| trips as f64 / self.count as f64;
        let visitors = self.open_all(&shared, &set)?;
        let opened = begun.elapsed().as_secs_f64();
        let after = shared.engine.trips().total();
        std::thread::sleep(Duration::from_secs(self.idle));
        let idle = each(shared.engine.trips().total() - after) / self.idle.max(1) as f64;
        say(&Ready { opened, trips: each(after - before), idle })?;
        let mut waiting = Some(visitors);
        obey(|_| {
            let visitors = waiting.take().unwrap_or_default();
            let (outcome, visitors) = self.work_off(&shared, visitors, &set);
            say(&outcome)?;
            say(&Usage { memory: status("VmHWM") })?;
            waiting = Some(visitors);
            Ok(())
        })?;
        let left = Mutex::new(waiting.unwrap_or_default());
        std::thread::scope(|scope| {
            for _ in 0..OPENING {
                scope.spawn(|| {
                    while let Some(visitor) = { left.lock().pop() } {
                        if let Err(error) = visitor.mount.vfs().close(None) {
                            eprintln!("a client did not end well: {error}");
                        }
                    }
                });
            }
        });
        Ok(())
    }

    fn open_all(&self, shared: &Shared, set: &DataSet) -> Result<Vec<Visitor<Client>>> {
        let numbers = Mutex::new((self.first..self.first + self.count).collect::<Vec<_>>());
        let opened = Mutex::new(Vec::new());
        let failed = Mutex::new(None);
        std::thread::scope(|scope| {
            for _ in 0..OPENING {
                scope.spawn(|| {
                    while let Some(number) = { numbers.lock().pop() } {
                        match open(number, shared) {
                            Ok(vfs) => opened.lock().push((number, Client::new(vfs))),
                            Err(error) => *failed.lock() = Some(error),
                        }
                    }
                });
            }
        });
        if let Some(error) = failed.into_inner() {
            return Err(error);
        }
        let opened = opened.into_inner();
        ensure!(opened.len() == self.count, "not all clients are open");
        let visitor = |(number, client)| Visitor::new(client, number, self.all, &self.work, set);
        Ok(opened.into_iter().map(visitor).collect())
    }

    fn work_off(
        &self,
        shared: &Shared,
        visitors: Vec<Visitor<Client>>,
        set: &DataSet,
    ) -> (Outcome, Vec<Visitor<Client>>) {
        let before = shared.engine.trips().total();
        let (mut outcome, visitors) = crowd::run(visitors, self.threads, &self.work, set);
        let stats = shared.group.stats();
        outcome.trips = shared.engine.trips().total() - before;
        outcome.hits = stats.hits.get();
        outcome.hit_bytes = stats.hit_bytes.get();
        outcome.unanswered = stats.errors.get() + stats.misses.get();
        let from_store = |visitor: &Visitor<Client>| visitor.mount.vfs().data().stats().get_bytes.get();
        outcome.store_bytes = visitors.iter().map(from_store).sum();
        (outcome, visitors)
    }
}

/// A client as a mount with `--no-sharing` is one, for a data set that does not change.
fn open(number: usize, shared: &Shared) -> Result<Arc<Vfs>> {
    let heartbeat = shared.heartbeat;
    let options = Options { heartbeat, ..volume::options(format!("client {number}"), false) };
    let meta = Meta::open(Arc::clone(&shared.engine) as _, options)?;
    let config = DataConfig {
        volume: meta.env().format().uuid.clone(),
        buffer_size: BUFFER,
        peers: Some(Arc::clone(&shared.group) as _),
        timetable: Some(shared.periodic.clone()),
        ..DataConfig::default()
    };
    let index = MetaIndex::new(meta);
    let runtime = Some(shared.runtime.clone());
    let data = DataStore::open(&config, Arc::clone(&shared.store), Arc::clone(&index) as _, runtime)?;
    let config = VfsConfig {
        attr_ttl: BELIEVED,
        entry_ttl: BELIEVED,
        dir_entry_ttl: BELIEVED,
        open_ttl: BELIEVED,
        heartbeat,
        cleaning: false,
        timetable: Some(shared.heartbeats.clone()),
        ..VfsConfig::default()
    };
    Ok(Vfs::new(index, data, config))
}
