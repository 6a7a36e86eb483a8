//! The client of a cluster, what it begins, and what it waits for.
//!
//! The client works on tasks of its own (the stream of timestamps, second phases of commits,
//! keeping locks alive) which must go on between calls.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_meta::engine::EngineError;
use tikv_client::{
    CheckLevel, Config as ClientConfig, Error, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions, transaction::ResolveLocksOptions,
};

use super::{
    config::Config,
    error::{Meaning, meaning, shown},
};
use crate::{
    keys::Keys,
    kv::{Volume, spawn},
};

/// Longest wait for one answer of a server.
const REQUEST: Duration = Duration::from_secs(5);
/// Largest answer: a page of whole chunks.
const LARGEST_ANSWER: usize = 256 << 20;
/// Locks of transactions that began this long ago are no living client's: its calls have deadlines.
const DEAD: Duration = Duration::from_secs(20);

/// A cluster, and where in it the volume lies.
pub struct Tikv {
    pub(super) config: Config,
    pub(super) volume: Volume,
    client: Mutex<Option<TransactionClient>>,
    cleaned_at: Mutex<Option<Instant>>,
}

/// A moment that the placement driver gave, and the transaction that began then, if something may
/// be committed.
pub struct Moment {
    pub(super) at: Timestamp,
    pub(super) txn: Option<Transaction>,
}

impl Tikv {
    /// For a configuration read before; connects at the first call.
    pub(super) fn new(config: Config) -> Arc<Self> {
        let volume = Volume { keys: Keys::new(&config.prefix), label: config.label().into() };
        let store = Arc::new(Self { config, volume, client: Mutex::new(None), cleaned_at: Mutex::new(None) });
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

    pub(super) async fn timestamp(&self) -> Result<Timestamp, EngineError> {
        let now = self.client().await?.current_timestamp().await;
        now.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// A transaction that reads what is committed now.
    pub(super) async fn transaction(&self) -> Result<Transaction, EngineError> {
        let client = self.client().await?;
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        let begun = client.begin_with_options(options).await;
        begun.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// A look at what was committed at a time.
    pub(super) async fn snapshot(&self, at: &Timestamp) -> Result<Snapshot, EngineError> {
        let options = TransactionOptions::new_optimistic().drop_check(CheckLevel::None);
        Ok(self.client().await?.snapshot(at.clone(), options))
    }

    /// Clears away what dead clients left: locks without a transaction block their keys for ever
    /// otherwise.
    async fn remove_dead_locks(&self) {
        {
            let mut cleaned_at = self.cleaned_at.lock();
            if cleaned_at.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
                return;
            }
            *cleaned_at = Some(Instant::now());
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

/// The time so much before another.
fn earlier(at: &Timestamp, by: Duration) -> Timestamp {
    let physical = at.physical.saturating_sub(by.as_millis() as i64).max(0);
    Timestamp { physical, logical: 0, ..Timestamp::from_version(0) }
}

/// How a read waits for what passes by itself. The deadline of the call ends it.
#[derive(Default)]
pub(super) struct Retry {
    tries: u32,
}

impl Retry {
    /// Most tries before the caller is told; each goes through the client's own tries first.
    const TRIES: u32 = 12;

    pub(super) async fn wait(&mut self, store: &Tikv, error: Error) -> Result<(), EngineError> {
        self.tries += 1;
        let meaning = meaning(&error);
        if meaning == Meaning::Never || self.tries > Self::TRIES {
            return Err(store.volume.unavailable(shown(&error)));
        }
        tracing::debug!(tries = self.tries, error = shown(&error), "a read is tried again");
        if meaning == Meaning::Orphan && self.tries > 6 {
            store.remove_dead_locks().await;
        }
        tokio::time::sleep(Duration::from_millis(1 << self.tries.min(9))).await;
        Ok(())
    }
}
