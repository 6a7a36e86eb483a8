//! TiKV: one client, retries of temporary errors, and two-phase commits. Large reads and writes go
//! straight to the stores.

mod commit;
mod config;
mod error;
mod log;
mod store;
mod watch;

use std::sync::Arc;

use sluice_meta::engine::{ChangeLog, Limits, Notices, Polled, Watch};
use tikv_client::{Snapshot, TimestampExt as _, Transaction};

use self::config::Config;
pub use self::store::Tikv;
use crate::{
    engine::KvEngine,
    kv::{Changes, Kv, Volume, load_in_parts, spawn},
    stored::{Pair, Raw, Result, Span},
};

/// Operations in one commit: some thousand keys, a few requests to each region.
const BATCH: usize = 256;
/// Transactions of one load under way.
const LOADING: usize = 2;
/// Pairs that the client library loads in one transaction. It sends all keys of a transaction with
/// each of its parts.
const LOADED: usize = 125;
/// Transactions of one load that the client library has under way.
const LIBRARY_LOADING: usize = 8;

/// A volume's metadata in a TiKV cluster.
pub type TikvEngine = KvEngine<Tikv>;

impl TikvEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`](sluice_meta::engine::EngineError::Refused) if the URL is wrong.
    pub fn open(url: &str) -> Result<Self> {
        Ok(Self::new(Tikv::new(Config::parse(url)?)))
    }
}

impl Kv for Tikv {
    type Moment = Transaction;
    const NAME: &'static str = "tikv";
    const KEEPS: &'static str = "old versions were given up; all clients should have a longer gc-interval";

    fn is_given_up(reason: &str) -> bool {
        ["GC", "Gc", "safe point", "safepoint"].iter().any(|word| reason.contains(word))
    }

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn limits(&self) -> Limits {
        Limits { lanes: self.config.lanes, batch: BATCH, notices: Notices::Poll }
    }

    async fn begin(&self) -> Result<Transaction> {
        self.transaction().await
    }

    async fn get(&self, at: &Transaction, keys: &[Raw]) -> Result<Vec<Pair>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let read = async |mut snapshot: Snapshot| {
            let pairs = snapshot.batch_get(keys.iter().cloned()).await?;
            Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect())
        };
        self.read(at, read).await
    }

    async fn page(&self, at: &Transaction, span: &Span, limit: usize, values: bool) -> Result<Vec<Pair>> {
        let version = at.start_timestamp().version();
        match self.stores().await?.scan(&span.from, &span.to, version, limit, values).await {
            Ok(pairs) => return Ok(pairs),
            Err(error) => tracing::debug!(%error, "the client library repeats a scan"),
        }
        let read = async |mut snapshot: Snapshot| {
            let pairs = snapshot.scan(span.from.clone()..span.to.clone(), limit as u32).await?;
            Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect())
        };
        self.read(at, read).await
    }

    async fn commit(&self, at: Transaction, mut changes: Changes) -> Result<bool> {
        log::add_lines(self, changes.lines, &mut changes.keys).await?;
        commit::commit(self, at, changes.keys).await
    }

    async fn load(&self, pairs: Vec<Pair>) -> Result<()> {
        let pairs = Arc::new(pairs);
        match self.stores().await?.load(&pairs, LOADING, || self.now()).await {
            Ok(()) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, "the client library repeats a load");
                load_in_parts(self, Arc::unwrap_or_clone(pairs), LOADED, LIBRARY_LOADING).await
            }
        }
    }

    fn change_log(&self) -> Option<&dyn ChangeLog> {
        Some(self)
    }

    fn notify(self: &Arc<Self>) {
        spawn(watch::notify(self.clone()));
    }

    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>> {
        Polled::watch(self.clone())
    }
}
