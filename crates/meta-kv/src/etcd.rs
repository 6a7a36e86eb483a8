//! etcd: reads at one revision, commits that compare the revisions of what was read.
//!
//! The same URL names the same keys for JuiceFS: they begin with the path, its slash included, and
//! the byte 0xFD.
//!
//! What must stay true: a commit is exactly one transaction of the server. A commit that does not
//! fit into one is refused before it is sent.

mod status;
mod store;
mod tls;
mod txn;
mod watch;
mod wire;

use std::sync::Arc;

use futures::future::try_join_all;
use sluice_meta::{
    engine::{Limits, Notices, Watch},
    schema::Key,
};

pub use self::store::Etcd;
use self::{store::Purpose, txn::Moment, wire::RangeRequest};
use crate::{
    engine::KvEngine,
    kv::{Changes, Kv, Volume, load_in_parts},
    stored::{Pair, Raw, Result, Span},
};

/// Most pairs of one transaction of a load, if the servers allow as many in nested transactions.
const LOADED: usize = 1000;
/// Transactions of one load under way.
const LOADING: usize = 2;

/// A volume's metadata in etcd.
pub type EtcdEngine = KvEngine<Etcd>;

impl EtcdEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`Refused`](sluice_meta::engine::EngineError::Refused) if the URL is wrong, or a certificate
    /// cannot be read.
    pub fn open(url: &str) -> Result<Self> {
        Ok(Self::new(Arc::new(Etcd::open(url)?)))
    }
}

impl Kv for Etcd {
    type Moment = Moment;
    const NAME: &'static str = "etcd";
    const CLEARS: bool = true;
    const KEEPS: &'static str = "etcd was compacted; raise its --auto-compaction-retention";

    fn is_given_up(reason: &str) -> bool {
        reason.contains(status::COMPACTED)
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    /// Most changes compare two to five keys.
    fn limits(&self) -> Limits {
        Limits { lanes: self.lanes, batch: (self.most * 3 / 16).min(256), notices: Notices::Push }
    }

    async fn begin(&self) -> Result<Moment> {
        Ok(Moment::default())
    }

    async fn begin_reading(&self) -> Result<Moment> {
        let at = Moment::reading();
        self.get(&at, &[self.volume.keys.raw(&Key::Setting)]).await?;
        Ok(at)
    }

    async fn get(&self, at: &Moment, keys: &[Raw]) -> Result<Vec<Pair>> {
        let range = |key: &Raw| RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let ranges: Vec<_> = keys.iter().map(range).collect();
        let answers = try_join_all(ranges.chunks(self.most).map(|ranges| self.read(at, ranges))).await?;
        let found = answers.into_iter().flatten().map(|answer| answer.kvs.into_iter().next());
        Ok(keys.iter().zip(found).filter_map(|(key, found)| at.note(key.clone(), found)).collect())
    }

    async fn page(&self, at: &Moment, span: &Span, limit: usize, values: bool) -> Result<Vec<Pair>> {
        let Span { from: key, to: range_end } = span.clone();
        let (limit, keys_only) = (limit as i64, !values);
        let range = RangeRequest { key, range_end, limit, keys_only, ..RangeRequest::default() };
        let found = self.read(at, &[range]).await?.into_iter().flat_map(|answer| answer.kvs);
        Ok(found.filter_map(|kv| at.note(kv.key.clone(), Some(kv))).collect())
    }

    async fn commit(&self, at: Moment, changes: Changes) -> Result<bool> {
        match at.transaction(&self.volume, changes, self.most)? {
            Some(txn) => Ok(self.transact(&txn, Purpose::Commit).await?.succeeded),
            None => Ok(false),
        }
    }

    async fn load(&self, pairs: Vec<Pair>) -> Result<()> {
        load_in_parts(self, pairs, txn::nested_once(self.most).min(LOADED), LOADING).await
    }

    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>> {
        Ok(Box::new(watch::Listener::new(self.clone())?))
    }
}
