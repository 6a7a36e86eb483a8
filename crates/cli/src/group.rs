//! A mount in a cache group: joins the group, and connects the data path to it.
//!
//! What must stay true: a mount works without its group if the group fails. Each failure is logged,
//! and the step is tried again.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, OnceLock, Weak},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use sluice_data::DataStore;
use sluice_meta::{Interrupt, Meta, schema};
use sluice_open::GroupClient;
use sluice_peer::{Group, ServeConfig, Server, Stats};
use sluice_types::{Clock as _, Rng, SystemClock};
use sluice_vfs::{Families, MoreMetrics};

use crate::{flags::GroupFlags, volume};

/// How often a member looks for others and for another key.
const HEARTBEAT: Duration = Duration::from_secs(12);
/// How long a member that joined asks the one that owned a block before.
const BACKUP: Duration = Duration::from_mins(10);

/// A mount's part in a group.
pub(crate) struct CacheGroup {
    client: GroupClient,
    meta: Arc<Meta>,
    /// How this client appears to others; `None` if it gives nothing.
    own: Option<Own>,
    server: OnceLock<Server>,
}

/// What a member says of itself.
struct Own {
    group: String,
    name: String,
    ip: IpAddr,
    port: u16,
    weight: u32,
    backup: bool,
    plaintext: bool,
}

impl CacheGroup {
    /// The group that the flags name, if they do. It knows its members already, if they could be
    /// read.
    ///
    /// # Errors
    /// The flags do not fit this volume or machine.
    pub(crate) fn new(flags: &GroupFlags, meta: &Arc<Meta>, mountpoint: &str) -> Result<Option<Arc<Self>>> {
        let Some(name) = &flags.cache_group else { return Ok(None) };
        ensure!(!flags.remote_timeout.is_zero(), "--remote-timeout may not be 0: every wait has a deadline");
        let format = meta.env().format();
        ensure!(
            !flags.group_plaintext || format.encrypt_key.is_empty(),
            "--group-plaintext is refused for an encrypted volume: its blocks would be readable on the network"
        );
        // A client that cannot write cannot say that it is a member.
        let gives = !flags.no_sharing && !meta.is_read_only();
        if meta.is_read_only() && !flags.no_sharing {
            tracing::info!("a read-only mount takes blocks from the cache group and gives none");
        }
        let own = if gives { Some(Own::new(flags, name, mountpoint)?) } else { None };
        let config = flags.config(own.as_ref().map(|own| own.name.clone()));
        let client = GroupClient::new(meta, name, config).context("no threads for the cache group")?;
        Ok(Some(Arc::new(Self { client, meta: Arc::clone(meta), own, server: OnceLock::new() })))
    }

    /// What the data path asks.
    pub(crate) fn peers(&self) -> Arc<Group> {
        Arc::clone(self.client.group())
    }

    /// What it counts, under the names of JuiceFS' paid edition where it has one.
    pub(crate) fn metrics(&self) -> MoreMetrics {
        let stats = Arc::clone(self.client.group().stats());
        Arc::new(move |families: &mut Families| show(families, &stats))
    }

    /// Gives the blocks of `data` to others, if this client does. A mount that is taken up (not
    /// `fresh`) goes on without, and tries again: programs are at work there.
    ///
    /// # Errors
    /// The port cannot be had, or the metadata engine does not answer.
    pub(crate) fn start(self: &Arc<Self>, data: &Arc<DataStore>, fresh: bool) -> Result<()> {
        // Others ask the metadata engine only when no member answers.
        if self.own.is_none() {
            return Ok(());
        }
        let data = Arc::downgrade(data);
        if let Err(error) = self.give(&data) {
            if fresh {
                return Err(error);
            }
            tracing::warn!("this mount gives no blocks to its cache group yet: {error:#}");
        }
        self.client.handle().spawn(heartbeat(Arc::downgrade(self), data));
        Ok(())
    }

    /// Listens and joins, if this client gives blocks and does not do so yet.
    fn give(&self, data: &Weak<DataStore>) -> Result<()> {
        if let Some(own) = self.own.as_ref().filter(|_| self.server.get().is_none()) {
            let server = self.listen(own, data)?;
            let address = SocketAddr::new(own.ip, server.port());
            tracing::info!("cache group {}: other clients reach this one at {address}", own.group);
            self.join(own, &server, own.backup)?;
            let _ = self.server.set(server);
        }
        Ok(())
    }

    /// Listens at the address that others are told. If this machine does not have it, it belongs to
    /// a gateway, and all addresses are listened at.
    fn listen(&self, own: &Own, data: &Weak<DataStore>) -> Result<Server> {
        let config = ServeConfig { plaintext: own.plaintext, ..ServeConfig::default() };
        let start = |ip| {
            let listen = SocketAddr::new(ip, own.port);
            let (group, data) = (self.peers(), Weak::clone(data));
            Server::start(group, data, listen, config, self.client.handle())
                .with_context(|| format!("cannot listen on {listen} for the cache group"))
        };
        let started = start(own.ip);
        let is_elsewhere = |error: &anyhow::Error| {
            let error = error.downcast_ref::<std::io::Error>();
            error.is_some_and(|error| error.kind() == std::io::ErrorKind::AddrNotAvailable)
        };
        match started {
            Err(error) if is_elsewhere(&error) => {
                tracing::warn!(
                    "{} is no address of this machine: the cache group listens on all of them",
                    own.ip
                );
                start(if own.ip.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { [0u16; 8].into() })
            }
            started => started,
        }
    }

    fn join(&self, own: &Own, server: &Server, backup: bool) -> Result<()> {
        let member = schema::Member {
            group: own.group.clone(),
            name: own.name.clone(),
            address: SocketAddr::new(own.ip, server.port()).to_string(),
            host: volume::host_name(),
            weight: own.weight,
            fingerprint: server.fingerprint(),
            backup_until: if backup { SystemClock.now().sec + BACKUP.as_secs() as i64 } else { 0 },
            ..schema::Member::default()
        };
        self.meta.join_group(member, &Interrupt::never()).context("cannot join the cache group")?;
        self.client.group().refresh().map_err(anyhow::Error::msg)?;
        self.client.group().announce();
        Ok(())
    }
}

async fn heartbeat(group: Weak<CacheGroup>, data: Weak<DataStore>) {
    let mut rng = Rng::from_os();
    loop {
        // Members that started together shall not ask the metadata engine together.
        let percent = 75 + rng.below(51) as u32;
        tokio::time::sleep(HEARTBEAT * percent / 100).await;
        let Some(group) = group.upgrade() else { return };
        let data = Weak::clone(&data);
        let refreshed = tokio::task::spawn_blocking(move || {
            group.give(&data).map_err(|error| format!("{error:#}"))?;
            group.client.group().beat()
        });
        let refreshed = refreshed.await;
        if let Ok(Err(reason)) = refreshed {
            tracing::warn!(reason, "the cache group is not as it should be; it is tried again");
        }
    }
}

impl Own {
    fn new(flags: &GroupFlags, group: &str, mountpoint: &str) -> Result<Self> {
        let addresses: Vec<IpAddr> =
            volume::addresses().iter().filter_map(|address| address.parse().ok()).collect();
        let ip = match (flags.group_ip, &flags.group_network) {
            (Some(ip), _) => ip,
            (None, Some(network)) => {
                let inside = addresses.into_iter().find(|address| network.contains(*address));
                inside.context("this machine has no address in --group-network")?
            }
            (None, None) => addresses.first().copied().unwrap_or(Ipv4Addr::LOCALHOST.into()),
        };
        // With a fixed port the address says who it is; else the place where it is mounted does, so
        // that it owns the same blocks after a restart.
        let name = match flags.group_port {
            0 => format!("{}:{mountpoint}", volume::host_name()),
            port => SocketAddr::new(ip, port).to_string(),
        };
        Ok(Self {
            group: group.to_owned(),
            name,
            ip,
            port: flags.group_port,
            weight: flags.group_weight,
            backup: flags.group_backup,
            plaintext: flags.group_plaintext,
        })
    }
}

fn show(families: &mut Families, stats: &Stats) {
    for (title, counter) in [
        (("juicefs_remotecache_gets", "Blocks that other clients of the cache group gave."), &stats.hits),
        (("juicefs_remotecache_bytes", "Bytes of blocks that other clients gave."), &stats.hit_bytes),
        (("juicefs_remotecache_errors", "Requests that no other client answered."), &stats.errors),
        (("sluice_remotecache_misses_total", "Requests answered without a block."), &stats.misses),
        (("sluice_group_served_cached_total", "Requests answered from the cache."), &stats.served_cached),
        (("sluice_group_served_read_total", "Requests that read the object store."), &stats.served_read),
        (("sluice_group_served_warmed_total", "Blocks that were warmed up."), &stats.served_warmed),
        (("sluice_group_served_none_total", "Requests answered without a block."), &stats.served_none),
        (("sluice_group_served_bytes_total", "Bytes given to other clients."), &stats.served_bytes),
        (("sluice_group_refused_total", "Connections that were refused."), &stats.refused),
    ] {
        families.count(title, counter);
    }
    let connections = stats.connections.get() as f64;
    families.gauge(("sluice_group_connections", "Connections of other clients."), connections);
    families
        .histogram(("juicefs_remotecache_durations", "Seconds of requests to other clients."), &stats.times);
}
