//! A cache node of the farm: a member of the group with cache files, as a mount would be, without
//! FUSE.

use std::{net::Ipv4Addr, path::PathBuf, sync::Arc, time::Duration};

use anyhow::Result;
use clap::Args;
use serde::{Deserialize, Serialize};
use sluice_data::{CacheConfig, DataConfig, DataStore};
use sluice_meta::{Interrupt, Meta, schema};
use sluice_peer::{Group, GroupConfig, ServeConfig, Server};
use sluice_types::Timetable;
use sluice_vfs::{MetaIndex, Vfs, VfsConfig};

use super::{
    process::{obey, say, status},
    volume,
};

/// How often a member looks for others.
const REFRESH: Duration = Duration::from_secs(12);
/// Longest wait for what is not stored when it ends.
const TIMEOUT: Duration = Duration::from_secs(1);

/// Gives blocks until it is told to end.
#[derive(Args)]
pub(crate) struct CacheNode {
    /// URL of the metadata engine
    meta: String,
    /// Directory of its cache
    dir: PathBuf,
    #[arg(long)]
    plaintext: bool,
}

/// What it did so far.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Served {
    /// Requests of clients, and bytes given to them.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Bytes read from the object store.
    pub(crate) store_bytes: u64,
    /// Highest memory use in KiB.
    pub(crate) memory: u64,
}

impl CacheNode {
    /// Says [`Served`] when it gives blocks, and each time it is asked.
    pub(crate) fn run(self) -> Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let name = self.dir.display().to_string();
        let meta = Meta::open(volume::engine(&self.meta)?, volume::options(name.clone(), false))?;
        let store = sluice_object::open(&volume::store_config(&meta))?;
        let config = GroupConfig { own: Some(name.clone()), ..GroupConfig::default() };
        let group = sluice_open::group(&meta, volume::GROUP, config, runtime.handle().clone());
        group.refresh().map_err(anyhow::Error::msg)?;
        let cache =
            CacheConfig { dirs: vec![self.dir.clone()], free_space_ratio: 0.01, ..CacheConfig::default() };
        let config = DataConfig {
            volume: meta.env().format().uuid.clone(),
            cache,
            peers: Some(Arc::clone(&group) as _),
            ..DataConfig::default()
        };
        let index = MetaIndex::new(Arc::clone(&meta));
        let data = DataStore::open(&config, store, Arc::clone(&index) as _, Some(runtime.handle().clone()))?;
        let vfs = Vfs::new(index, data, VfsConfig { cleaning: false, ..VfsConfig::default() });
        let serve = ServeConfig { plaintext: self.plaintext, ..ServeConfig::default() };
        let listen = (Ipv4Addr::LOCALHOST, 0).into();
        let data = Arc::downgrade(vfs.data());
        let server = Server::start(Arc::clone(&group), data, listen, serve, runtime.handle())?;
        let member = schema::Member {
            group: volume::GROUP.into(),
            name,
            address: format!("127.0.0.1:{}", server.port()),
            weight: 100,
            fingerprint: server.fingerprint(),
            ..schema::Member::default()
        };
        meta.join_group(member, &Interrupt::never())?;
        volume::join(&group)?;
        let timetable = Timetable::start("farm-refresh", 1)?;
        let refreshed = Arc::clone(&group);
        let refresh = timetable.add(REFRESH, move || {
            if let Err(reason) = refreshed.refresh() {
                eprintln!("a cache node has no list of members: {reason}");
            }
            Some(REFRESH)
        });
        say(&served(&group, &vfs))?;
        obey(|_| say(&served(&group, &vfs)))?;
        refresh.end();
        drop(server);
        Ok(vfs.close(Some(TIMEOUT))?)
    }
}

fn served(group: &Group, vfs: &Vfs) -> Served {
    let stats = group.stats();
    Served {
        requests: stats.served_cached.get() + stats.served_read.get(),
        bytes: stats.served_bytes.get(),
        store_bytes: vfs.data().stats().get_bytes.get(),
        memory: status("VmHWM"),
    }
}
