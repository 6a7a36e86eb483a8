//! TiKV: one client, patience with what passes by itself, and two-phase commits.
//!
//! The client works on tasks of its own (the stream of timestamps, second phases of commits,
//! keeping locks alive) which must go on between calls.

mod commit;
mod config;
mod error;
mod watch;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::engine::{EngineError, Limits, News, Watch};
use tikv_client::{
    CheckLevel, Config as ClientConfig, Error, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions, transaction::ResolveLocksOptions,
};

use self::{
    config::Config,
    error::{Meaning, meaning, shown},
};
use crate::{
    engine::KvEngine,
    keys::Keys,
    kv::{Changes, Kv, Outcome, Pair, Raw, Span, Volume, spawn},
};

/// Operations in one commit: some thousand keys, a few requests to each region.
const BATCH: usize = 256;
/// Longest wait for one answer of a server.
const REQUEST: Duration = Duration::from_secs(5);
/// Largest answer: a page of whole chunks.
const LARGEST_ANSWER: usize = 256 << 20;
/// Locks of transactions that began this long ago are no living client's: its calls have deadlines.
const DEAD: Duration = Duration::from_secs(20);
/// Rows of one request of a range.
const PAGE: u32 = 1024;

/// A cluster, and where in it the volume lies.
pub struct Tikv {
    config: Config,
    volume: Volume,
    client: Mutex<Option<TransactionClient>>,
    healed: Mutex<Option<Instant>>,
}

/// A moment that the placement driver gave, and the transaction that began then, if something may
/// be committed.
pub struct Moment {
    at: Timestamp,
    txn: Option<Transaction>,
}

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

impl Tikv {
    /// For a configuration read before; connects at the first call.
    fn new(config: Config) -> Arc<Self> {
        let volume = Volume { keys: Keys::new(&config.prefix), label: config.label().into() };
        let store = Arc::new(Self { config, volume, client: Mutex::new(None), healed: Mutex::new(None) });
        if store.config.gc_interval.is_some() {
            spawn(Self::collect_garbage(Arc::downgrade(&store)));
        }
        store
    }

    async fn client(&self) -> Result<TransactionClient, EngineError> {
        if let Some(client) = self.client.lock().clone() {
            return Ok(client);
        }
        let mut config =
            ClientConfig::default().with_timeout(REQUEST).with_grpc_max_decoding_message_size(LARGEST_ANSWER);
        if let Some(tls) = &self.config.tls {
            for file in [&tls.ca, &tls.cert, &tls.key] {
                if let Err(error) = std::fs::File::open(file) {
                    return Err(self.volume.refused(format!("{} cannot be read: {error}", file.display())));
                }
            }
            config = config.with_security(&tls.ca, &tls.cert, &tls.key);
        }
        let made = TransactionClient::new_with_config(self.config.endpoints.clone(), config).await;
        let client = made.map_err(|error| self.volume.unavailable(shown(&error)))?;
        Ok(self.client.lock().get_or_insert(client).clone())
    }

    async fn timestamp(&self) -> Result<Timestamp, EngineError> {
        let now = self.client().await?.current_timestamp().await;
        now.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// A transaction that reads what is committed now.
    async fn transaction(&self) -> Result<Transaction, EngineError> {
        let client = self.client().await?;
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        let begun = client.begin_with_options(options).await;
        begun.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// A look at what was committed at a time.
    async fn snapshot(&self, at: &Timestamp) -> Result<Snapshot, EngineError> {
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        Ok(self.client().await?.snapshot(at.clone(), options))
    }

    /// The first rows of a range.
    async fn page(
        &self,
        at: &Timestamp,
        span: &Span,
        limit: u32,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        if span.from >= span.to || limit == 0 {
            return Ok(Vec::new());
        }
        let mut patience = Patience::default();
        loop {
            let mut snapshot = self.snapshot(at).await?;
            let range = span.from.clone()..span.to.clone();
            let got: Result<Vec<Pair>, Error> = if values {
                snapshot.scan(range, limit).await.map(|pairs| pairs.map(|p| (p.0.into(), p.1)).collect())
            } else {
                let keys = snapshot.scan_keys(range, limit).await;
                keys.map(|keys| keys.map(|key| (key.into(), Vec::new())).collect())
            };
            match got {
                Ok(pairs) => return Ok(pairs),
                Err(error) => patience.wait(self, error).await?,
            }
        }
    }

    /// Clears away what dead clients left: locks without a transaction block their keys for ever
    /// otherwise.
    async fn heal(&self) {
        {
            let mut healed = self.healed.lock();
            if healed.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
                return;
            }
            *healed = Some(Instant::now());
        }
        let (Ok(client), Ok(now)) = (self.client().await, self.timestamp().await) else { return };
        let dead = earlier(&now, DEAD);
        let span = self.volume.keys.all();
        let cleaned = client.cleanup_locks(span.from..span.to, &dead, ResolveLocksOptions::default()).await;
        match cleaned {
            Ok(cleaned) if cleaned.resolved_locks > 0 => {
                tracing::warn!(locks = cleaned.resolved_locks, "locks that a dead client left were removed");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = shown(&error), "locks of dead clients could not be removed"),
        }
    }

    /// Gives up versions that are older than the volume keeps them, as JuiceFS does; runs for ever.
    async fn collect_garbage(store: std::sync::Weak<Self>) {
        loop {
            let Some(interval) = store.upgrade().and_then(|store| store.config.gc_interval) else { return };
            tokio::time::sleep(interval).await;
            let Some(store) = store.upgrade() else { return };
            let (Ok(client), Ok(now)) = (store.client().await, store.timestamp().await) else { continue };
            if let Err(error) = client.gc(earlier(&now, interval)).await {
                tracing::warn!(error = shown(&error), "old versions could not be given up");
            }
        }
    }
}

impl Kv for Tikv {
    type Moment = Moment;
    const NAME: &'static str = "tikv";

    fn volume(&self) -> &Volume {
        &self.volume
    }

    fn limits(&self) -> Limits {
        Limits { lanes: self.config.lanes, batch: BATCH, news: News::Silence }
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
        let mut patience = Patience::default();
        loop {
            let got = self.snapshot(&now.at).await?.batch_get(keys.iter().cloned()).await;
            match got {
                Ok(pairs) => return Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect()),
                Err(error) => patience.wait(self, error).await?,
            }
        }
    }

    async fn range(
        &self,
        now: &Moment,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        let mut span = span.clone();
        let mut all = Vec::new();
        loop {
            let ask = u32::try_from(limit - all.len()).unwrap_or(u32::MAX).min(PAGE);
            let page = self.page(&now.at, &span, ask, values).await?;
            let full = page.len() == ask as usize;
            if let Some((last, _)) = page.last() {
                span.from = crate::keys::after(last);
            }
            all.extend(page);
            if !full || all.len() >= limit {
                return Ok(all);
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

/// The time so much before another.
fn earlier(at: &Timestamp, by: Duration) -> Timestamp {
    let physical = at.physical.saturating_sub(by.as_millis() as i64).max(0);
    Timestamp { physical, logical: 0, ..Timestamp::from_version(0) }
}

/// How a read waits for what passes by itself. The deadline of the call ends it.
#[derive(Default)]
struct Patience {
    tries: u32,
}

impl Patience {
    /// Most tries before the caller is told; each goes through the client's own tries first.
    const TRIES: u32 = 12;

    async fn wait(&mut self, store: &Tikv, error: Error) -> Result<(), EngineError> {
        self.tries += 1;
        let meaning = meaning(&error);
        if meaning == Meaning::Never || self.tries > Self::TRIES {
            return Err(store.volume.unavailable(shown(&error)));
        }
        tracing::debug!(tries = self.tries, error = shown(&error), "a read is tried again");
        if meaning == Meaning::Orphan && self.tries > 6 {
            store.heal().await;
        }
        tokio::time::sleep(Duration::from_millis(1 << self.tries.min(9))).await;
        Ok(())
    }
}
