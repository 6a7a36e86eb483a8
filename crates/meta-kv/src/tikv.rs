//! TiKV: one client, retries of temporary errors, and two-phase commits.

mod commit;
mod config;
mod error;
mod log;
mod store;
mod watch;

use std::sync::Arc;

use sluice_meta::engine::{ChangeLog, Limits, Notices, Polled, Watch};
use tikv_client::{Snapshot, Transaction};

use self::config::Config;
pub use self::store::Tikv;
use crate::{
    engine::KvEngine,
    kv::{Changes, Kv, Volume, spawn},
    stored::{Pair, Raw, Result, Span},
};

/// Operations in one commit: some thousand keys, a few requests to each region.
const BATCH: usize = 256;

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
    const PAGE: usize = 1024;
    /// The client library sends all keys with each part of a transaction.
    const LOADED: usize = 100;
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

    async fn begin_loading(&self) -> Result<Transaction> {
        self.transaction_in_one_phase().await
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
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let read = async |mut snapshot: Snapshot| {
            let range = span.from.clone()..span.to.clone();
            Ok(if values {
                let pairs = snapshot.scan(range, limit).await?;
                pairs.map(|pair| (pair.0.into(), pair.1)).collect()
            } else {
                let keys = snapshot.scan_keys(range, limit).await?;
                keys.map(|key| (key.into(), Vec::new())).collect()
            })
        };
        self.read(at, read).await
    }

    async fn commit(&self, at: Transaction, mut changes: Changes) -> Result<bool> {
        log::add_lines(self, changes.lines, &mut changes.keys).await?;
        commit::commit(self, at, changes.keys).await
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
