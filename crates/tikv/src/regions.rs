//! Where keys are: regions, and the stores that lead them, as the placement driver knows them.

use std::{collections::BTreeMap, ops::Bound, sync::Arc, time::Duration};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};

use crate::{
    call::call,
    error::Error,
    keys::{decode, encode},
    wire::{
        Context, GetMembersRequest, GetMembersResponse, GetRegionRequest, GetRegionResponse, GetStoreRequest,
        GetStoreResponse, RequestHeader,
    },
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval of keep-alive pings, and how long their answers may take.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Bytes that a server may send before they are read: several pages.
const WINDOW: u32 = 16 << 20;

/// A range of keys, and the store that leads it.
pub(crate) struct Region {
    /// The first key after it; empty if there is none.
    pub(crate) end: Vec<u8>,
    /// What requests to the region begin with.
    pub(crate) context: Context,
    pub(crate) store: Channel,
}

/// The leader of the placement drivers.
#[derive(Clone)]
struct Leader {
    channel: Channel,
    cluster_id: u64,
}

impl Leader {
    #[allow(clippy::unnecessary_wraps, reason = "as the field of each request")]
    fn header(&self) -> Option<RequestHeader> {
        Some(RequestHeader { cluster_id: self.cluster_id })
    }
}

/// What is known of a cluster.
#[derive(Default)]
struct Known {
    leader: Option<Leader>,
    /// By their first keys.
    regions: BTreeMap<Vec<u8>, Arc<Region>>,
    /// By their numbers.
    stores: FxHashMap<u64, Channel>,
}

/// The regions of a cluster.
pub(crate) struct Regions {
    hosts: Vec<String>,
    tls: Option<ClientTlsConfig>,
    known: Mutex<Known>,
}

impl Regions {
    pub(crate) fn new(hosts: Vec<String>, tls: Option<ClientTlsConfig>) -> Self {
        Self { hosts, tls, known: Mutex::default() }
    }

    /// Forgets everything: it may be outdated.
    pub(crate) fn forget(&self) {
        *self.known.lock() = Known::default();
    }

    /// Forgets where keys are.
    pub(crate) fn forget_regions(&self) {
        self.known.lock().regions.clear();
    }

    /// The region of a key.
    pub(crate) async fn of(&self, key: &[u8]) -> Result<Arc<Region>, Error> {
        let up_to_key = (Bound::Unbounded, Bound::Included(key));
        if let Some((_, region)) = self.known.lock().regions.range::<[u8], _>(up_to_key).next_back()
            && (region.end.is_empty() || *key < *region.end)
        {
            return Ok(region.clone());
        }
        let found = self.find(key).await;
        if found.is_err() {
            self.forget();
        }
        found
    }

    async fn find(&self, key: &[u8]) -> Result<Arc<Region>, Error> {
        let leader = self.leader().await?;
        let request = GetRegionRequest { header: leader.header(), region_key: encode(key) };
        let answer: GetRegionResponse = call(&leader.channel, "/pdpb.PD/GetRegion", request).await?;
        let (Some(region), Some(peer)) = (answer.region, answer.leader) else { return Err(Error::Unknown) };
        let bounds = [&region.start_key, &region.end_key].map(|key| decode(key));
        let [Some(start), Some(end)] = bounds else { return Err(Error::Unknown) };
        let store = self.store(&leader, peer.store_id).await?;
        let context = Context { region_id: region.id, region_epoch: region.epoch, peer: Some(peer) };
        let region = Arc::new(Region { end, context, store });
        self.known.lock().regions.insert(start, region.clone());
        Ok(region)
    }

    async fn store(&self, leader: &Leader, store_id: u64) -> Result<Channel, Error> {
        if let Some(store) = self.known.lock().stores.get(&store_id) {
            return Ok(store.clone());
        }
        let request = GetStoreRequest { header: leader.header(), store_id };
        let answer: GetStoreResponse = call(&leader.channel, "/pdpb.PD/GetStore", request).await?;
        let store = self.connect(&answer.store.ok_or(Error::Unknown)?.address)?;
        self.known.lock().stores.insert(store_id, store.clone());
        Ok(store)
    }

    /// The leader of the placement drivers, from the first that answers.
    async fn leader(&self) -> Result<Leader, Error> {
        if let Some(leader) = &self.known.lock().leader {
            return Ok(leader.clone());
        }
        let mut failed = Error::Unknown;
        for host in &self.hosts {
            match self.leader_from(host).await {
                Ok(leader) => {
                    self.known.lock().leader = Some(leader.clone());
                    return Ok(leader);
                }
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    async fn leader_from(&self, host: &str) -> Result<Leader, Error> {
        let channel = self.connect(host)?;
        let answer: GetMembersResponse = call(&channel, "/pdpb.PD/GetMembers", GetMembersRequest {}).await?;
        let (Some(header), Some(leader)) = (answer.header, answer.leader) else {
            return Err(Error::Unknown);
        };
        let channel = match leader.client_urls.first() {
            Some(url) if !leader.client_urls.iter().any(|url| url.ends_with(&format!("//{host}"))) => {
                self.connect(url)?
            }
            _ => channel,
        };
        Ok(Leader { channel, cluster_id: header.cluster_id })
    }

    /// A connection, which is made at its first call.
    fn connect(&self, address: &str) -> Result<Channel, Error> {
        let host = address.split_once("//").map_or(address, |(_, host)| host);
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        let endpoint = Endpoint::from_shared(format!("{scheme}://{host}"))?
            .connect_timeout(CONNECT_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .initial_stream_window_size(WINDOW)
            .initial_connection_window_size(WINDOW);
        Ok(match self.tls.clone() {
            Some(tls) => endpoint.tls_config(tls)?.connect_lazy(),
            None => endpoint.connect_lazy(),
        })
    }
}
