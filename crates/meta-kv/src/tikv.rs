//! TiKV: one client, patience with what passes by itself, and two-phase commits.

mod commit;
mod config;
mod error;
mod store;
mod watch;

use std::sync::Arc;

use sluice_meta::engine::{EngineError, Limits, Notices, Watch};

pub use self::store::Tikv;
use self::{
    config::Config,
    store::{Moment, Retry},
};
use crate::{
    engine::KvEngine,
    kv::{Changes, Kv, Outcome, Volume, spawn},
    stored::{Pair, Raw, Span},
};

/// Operations in one commit: some thousand keys, a few requests to each region.
const BATCH: usize = 256;

/// A volume's metadata in a TiKV cluster.
pub type TikvEngine = KvEngine<Tikv>;

impl TikvEngine {
    /// Reads the URL; connects at the first call.
    ///
    /// # Errors
    /// [`EngineError::Refused`] if the URL is wrong.
    pub fn open(url: &str) -> Result<Self, EngineError> {
        Ok(Self::new(Tikv::new(Config::parse(url)?)))
    }
}

impl Kv for Tikv {
    type Moment = Moment;
    const NAME: &'static str = "tikv";
    const PAGE: usize = 1024;

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn limits(&self) -> Limits {
        Limits { lanes: self.config.lanes, batch: BATCH, notices: Notices::Poll }
    }

    async fn now(&self) -> Result<Moment, EngineError> {
        Ok(Moment { at: self.timestamp().await?, txn: None })
    }

    async fn begin(&self) -> Result<Moment, EngineError> {
        let txn = self.transaction().await?;
        Ok(Moment { at: txn.start_timestamp(), txn: Some(txn) })
    }

    async fn get(&self, now: &Moment, keys: &[Raw]) -> Result<Vec<Pair>, EngineError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut retry = Retry::default();
        loop {
            let got = self.snapshot(&now.at).await?.batch_get(keys.iter().cloned()).await;
            match got {
                Ok(pairs) => return Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect()),
                Err(error) => retry.wait(self, error).await?,
            }
        }
    }

    async fn page(
        &self,
        now: &Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let mut retry = Retry::default();
        loop {
            let mut snapshot = self.snapshot(&now.at).await?;
            let range = span.from.clone()..span.to.clone();
            let got = if values {
                snapshot.scan(range, limit).await.map(|pairs| pairs.map(|p| (p.0.into(), p.1)).collect())
            } else {
                let keys = snapshot.scan_keys(range, limit).await;
                keys.map(|keys| keys.map(|key| (key.into(), Vec::new())).collect())
            };
            match got {
                Ok(pairs) => return Ok(pairs),
                Err(error) => retry.wait(self, error).await?,
            }
        }
    }

    async fn commit(&self, at: Moment, changes: Changes) -> Result<Outcome, EngineError> {
        commit::commit(self, at, changes.keys).await
    }

    fn ring(self: &Arc<Self>) {
        spawn(watch::ring(self.clone()));
    }

    fn watch(self: &Arc<Self>) -> Result<Box<dyn Watch>, EngineError> {
        Ok(Box::new(watch::Listener::new(self.clone())?))
    }
}
