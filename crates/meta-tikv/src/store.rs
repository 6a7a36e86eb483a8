//! The way to the cluster: one client, one deadline for every call, and patience with what passes by itself.
//!
//! The client works on tasks of its own (the stream of timestamps, second phases of commits, keeping locks alive)
//! which must go on between calls, so all engines of a process share one small runtime, and a call waits on it.

use std::{
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::engine::EngineError;
use tikv_client::{
    CheckLevel, Config as ClientConfig, Error, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions, transaction::ResolveLocksOptions,
};
use tokio::{
    runtime::{Builder, Runtime},
    time::timeout,
};

use crate::{
    config::Config,
    error::{Meaning, meaning, shown},
    keys::{Keys, Raw, Span},
};

/// Longest time that one call of the engine takes.
pub(crate) const DEADLINE: Duration = Duration::from_secs(15);
/// Longest wait for one answer of a server.
const REQUEST: Duration = Duration::from_secs(5);
/// Largest answer: a page of whole chunks.
const LARGEST_ANSWER: usize = 256 << 20;
/// Locks of transactions that began this long ago are no living client's: its calls have deadlines.
const DEAD: Duration = Duration::from_secs(20);
/// Rows of one request of a range.
const PAGE: u32 = 1024;

/// A cluster, and where in it the volume lies.
pub(crate) struct Store {
    config: Config,
    pub(crate) keys: Keys,
    /// Name and address for messages.
    pub(crate) label: Arc<str>,
    client: Mutex<Option<TransactionClient>>,
    healed: Mutex<Option<Instant>>,
}

/// The runtime of all clients of this process. Two threads: one keeps the other from waiting while it decodes.
fn runtime() -> Result<&'static Runtime, EngineError> {
    static RUNTIME: OnceLock<Option<Runtime>> = OnceLock::new();
    let made = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("tikv").enable_all().build().ok()
    });
    made.as_ref().ok_or_else(|| EngineError::Refused {
        engine: "tikv".into(),
        reason: "the system gives no threads; raise its limit of processes".into(),
    })
}

/// A key and its value.
pub(crate) type Pair = (Raw, Vec<u8>);

impl Store {
    pub(crate) fn new(config: Config) -> Self {
        let keys = Keys::new(&config.prefix);
        let label = config.label().into();
        Self { config, keys, label, client: Mutex::new(None), healed: Mutex::new(None) }
    }

    /// Runs a call that sees to its end itself.
    pub(crate) fn run<T>(call: impl Future<Output = Result<T, EngineError>>) -> Result<T, EngineError> {
        runtime()?.block_on(call)
    }

    /// A call that commits nothing, to its end or to the deadline.
    pub(crate) async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        match timeout(DEADLINE, call).await {
            Ok(ended) => ended,
            Err(_) => Err(self.unavailable(format!("no answer within {} s", DEADLINE.as_secs()))),
        }
    }

    /// Runs a call that commits nothing.
    pub(crate) fn look<T>(
        &self,
        call: impl Future<Output = Result<T, EngineError>>,
    ) -> Result<T, EngineError> {
        Self::run(self.within(call))
    }

    /// Runs something in the background.
    pub(crate) fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        if let Ok(runtime) = runtime() {
            drop(runtime.spawn(task));
        }
    }

    pub(crate) async fn client(&self) -> Result<TransactionClient, EngineError> {
        if let Some(client) = self.client.lock().clone() {
            return Ok(client);
        }
        let mut config =
            ClientConfig::default().with_timeout(REQUEST).with_grpc_max_decoding_message_size(LARGEST_ANSWER);
        if let Some(tls) = &self.config.tls {
            for file in [&tls.ca, &tls.cert, &tls.key] {
                if let Err(error) = std::fs::File::open(file) {
                    return Err(self.refused(format!("{} cannot be read: {error}", file.display())));
                }
            }
            config = config.with_security(&tls.ca, &tls.cert, &tls.key);
        }
        let made = TransactionClient::new_with_config(self.config.endpoints.clone(), config).await;
        let client = made.map_err(|error| self.unavailable(shown(&error)))?;
        Ok(self.client.lock().get_or_insert(client).clone())
    }

    /// A transaction that reads what is committed now.
    pub(crate) async fn begin(&self) -> Result<Transaction, EngineError> {
        let client = self.client().await?;
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        let begun = client.begin_with_options(options).await;
        begun.map_err(|error| self.unavailable(shown(&error)))
    }

    /// The present, as the cluster counts it.
    pub(crate) async fn now(&self) -> Result<Timestamp, EngineError> {
        let now = self.client().await?.current_timestamp().await;
        now.map_err(|error| self.unavailable(shown(&error)))
    }

    /// A look at what was committed at a time.
    async fn snapshot(&self, at: &Timestamp) -> Result<Snapshot, EngineError> {
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        Ok(self.client().await?.snapshot(at.clone(), options))
    }

    /// Values of the keys that have one.
    pub(crate) async fn get(&self, at: &Timestamp, keys: &[Raw]) -> Result<Vec<Pair>, EngineError> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        let mut patience = Patience::default();
        loop {
            let got = self.snapshot(at).await?.batch_get(keys.iter().cloned()).await;
            match got {
                Ok(pairs) => return Ok(pairs.map(|pair| (pair.0.into(), pair.1)).collect()),
                Err(error) => patience.wait(self, error).await?,
            }
        }
    }

    /// The first rows of a range.
    pub(crate) async fn page(
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

    /// All rows of a range, or the first so many.
    pub(crate) async fn range(
        &self,
        at: &Timestamp,
        span: &Span,
        limit: usize,
        values: bool,
    ) -> Result<Vec<Pair>, EngineError> {
        let mut span = span.clone();
        let mut all = Vec::new();
        loop {
            let ask = u32::try_from(limit - all.len()).unwrap_or(u32::MAX).min(PAGE);
            let page = self.page(at, &span, ask, values).await?;
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

    /// Clears away what dead clients left: locks without a transaction block their keys for ever otherwise.
    async fn heal(&self) {
        {
            let mut healed = self.healed.lock();
            if healed.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
                return;
            }
            *healed = Some(Instant::now());
        }
        let (Ok(client), Ok(now)) = (self.client().await, self.now().await) else { return };
        let dead = earlier(&now, DEAD);
        let span = self.keys.all();
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
    pub(crate) async fn collect_garbage(store: std::sync::Weak<Self>) {
        loop {
            let Some(interval) = store.upgrade().and_then(|store| store.config.gc_interval) else { return };
            tokio::time::sleep(interval).await;
            let Some(store) = store.upgrade() else { return };
            let (Ok(client), Ok(now)) = (store.client().await, store.now().await) else { continue };
            if let Err(error) = client.gc(earlier(&now, interval)).await {
                tracing::warn!(error = shown(&error), "old versions could not be given up");
            }
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.config.lanes
    }

    pub(crate) fn collects_garbage(&self) -> bool {
        self.config.gc_interval.is_some()
    }

    pub(crate) fn unavailable(&self, reason: String) -> EngineError {
        EngineError::Unavailable { engine: self.label.to_string(), reason }
    }

    pub(crate) fn refused(&self, reason: String) -> EngineError {
        EngineError::Refused { engine: self.label.to_string(), reason }
    }

    pub(crate) fn corrupt(&self, key: &[u8], reason: &str) -> EngineError {
        EngineError::Corrupt {
            engine: self.label.to_string(),
            record: self.keys.shown(key),
            reason: reason.into(),
        }
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

    async fn wait(&mut self, store: &Store, error: Error) -> Result<(), EngineError> {
        self.tries += 1;
        let meaning = meaning(&error);
        if meaning == Meaning::Never || self.tries > Self::TRIES {
            return Err(store.unavailable(shown(&error)));
        }
        tracing::debug!(tries = self.tries, error = shown(&error), "a read is tried again");
        if meaning == Meaning::Orphan && self.tries > 6 {
            store.heal().await;
        }
        tokio::time::sleep(Duration::from_millis(1 << self.tries.min(9))).await;
        Ok(())
    }
}
