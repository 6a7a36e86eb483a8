//! The client of a cluster: its transactions and reads.
//!
//! The client library runs background tasks, which must continue between calls: it fetches
//! timestamps, finishes the second phases of commits, and renews locks.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tikv_client::{
    CheckLevel, Config as ClientConfig, Error, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions, transaction::ResolveLocksOptions,
};
use tokio::sync::OnceCell;

use super::{
    config::Config,
    error::{Meaning, meaning, shown},
};
use crate::{
    kv::{Volume, spawn},
    stored::Result,
};

/// Longest wait for one answer of a server.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Largest answer: a page of whole chunks.
const MAX_ANSWER: usize = 256 << 20;
/// Most tries of a read before it fails. Each includes the retries of the client library.
const TRIES: u32 = 12;
/// Locks of transactions that began this long ago belong to dead clients, because calls of live
/// clients have deadlines.
const DEAD_AFTER: Duration = Duration::from_secs(20);

/// A cluster, and the place of the volume in it.
pub struct Tikv {
    pub(super) config: Config,
    pub(super) volume: Volume,
    client: OnceCell<TransactionClient>,
    cleaned_at: Mutex<Option<Instant>>,
}

impl Tikv {
    /// For a configuration read before; connects at the first call.
    pub(super) fn new(config: Config) -> Arc<Self> {
        let volume = config.address.volume(config.prefix());
        let store = Arc::new(Self { config, volume, client: OnceCell::new(), cleaned_at: Mutex::new(None) });
        if store.config.gc_interval.is_some() {
            spawn(Self::collect_garbage(Arc::downgrade(&store)));
        }
        store
    }

    pub(super) async fn client(&self) -> Result<&TransactionClient> {
        let connect = async || {
            let mut config = ClientConfig::default().with_timeout(REQUEST_TIMEOUT);
            config = config.with_grpc_max_decoding_message_size(MAX_ANSWER);
            if let Some([ca, cert, key]) = &self.config.tls {
                for file in [ca, cert, key] {
                    let unread = |error| self.volume.refused(format!("{file} cannot be read: {error}"));
                    std::fs::File::open(file).map_err(unread)?;
                }
                config = config.with_security(ca, cert, key);
            }
            let made = TransactionClient::new_with_config(self.config.address.hosts.clone(), config).await;
            made.map_err(|error| self.volume.unavailable(shown(&error)))
        };
        self.client.get_or_try_init(connect).await
    }

    /// A transaction that reads what is committed now.
    pub(super) async fn transaction(&self) -> Result<Transaction> {
        self.begun(options()).await
    }

    /// A transaction that commits in one phase if all of its keys are in one region.
    pub(super) async fn transaction_in_one_phase(&self) -> Result<Transaction> {
        self.begun(options().try_one_pc()).await
    }

    async fn begun(&self, options: TransactionOptions) -> Result<Transaction> {
        let begun = self.client().await?.begin_with_options(options).await;
        begun.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// Reads what was committed when a transaction began. It retries after temporary errors, until
    /// the deadline of the call.
    pub(super) async fn read<T>(
        &self,
        at: &Transaction,
        read: impl AsyncFn(Snapshot) -> Result<T, Error>,
    ) -> Result<T> {
        let mut tries = 0;
        loop {
            let snapshot = self.client().await?.snapshot(at.start_timestamp(), options());
            let error = match read(snapshot).await {
                Ok(found) => return Ok(found),
                Err(error) => error,
            };
            tries += 1;
            let meaning = meaning(&error);
            if meaning == Meaning::Never || tries > TRIES {
                return Err(self.volume.unavailable(shown(&error)));
            }
            tracing::debug!(tries, error = shown(&error), "a read is tried again");
            if meaning == Meaning::Orphan && tries > 6 {
                self.remove_dead_locks().await;
            }
            tokio::time::sleep(Duration::from_millis(1 << tries.min(9))).await;
        }
    }

    /// Removes locks of dead clients: locks without a transaction would block their keys for ever.
    async fn remove_dead_locks(&self) {
        {
            let mut cleaned_at = self.cleaned_at.lock();
            if cleaned_at.is_some_and(|at| at.elapsed() < Duration::from_secs(2)) {
                return;
            }
            *cleaned_at = Some(Instant::now());
        }
        let (Ok(client), Ok(now)) = (self.client().await, self.transaction().await) else { return };
        let dead = earlier(&now, DEAD_AFTER);
        let span = self.volume.keys.word(b"");
        let cleaned = client.cleanup_locks(span.from..span.to, &dead, ResolveLocksOptions::default()).await;
        match cleaned {
            Ok(cleaned) if cleaned.resolved_locks > 0 => {
                tracing::warn!(locks = cleaned.resolved_locks, "locks that a dead client left were removed");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(error = shown(&error), "locks of dead clients could not be removed"),
        }
    }

    /// Deletes versions that are older than the volume keeps them, as JuiceFS does. Runs for ever.
    async fn collect_garbage(store: std::sync::Weak<Self>) {
        loop {
            let Some(interval) = store.upgrade().and_then(|store| store.config.gc_interval) else { return };
            tokio::time::sleep(interval).await;
            let Some(store) = store.upgrade() else { return };
            let (Ok(client), Ok(now)) = (store.client().await, store.transaction().await) else { continue };
            if let Err(error) = client.gc(earlier(&now, interval)).await {
                tracing::warn!(error = shown(&error), "old versions could not be given up");
            }
        }
    }
}

/// A transaction that is dropped without a commit leaves nothing behind.
fn options() -> TransactionOptions {
    TransactionOptions::new_optimistic().drop_check(CheckLevel::None)
}

/// The timestamp `by` before the begin of a transaction.
fn earlier(txn: &Transaction, by: Duration) -> Timestamp {
    let physical = txn.start_timestamp().physical.saturating_sub(by.as_millis() as i64).max(0);
    Timestamp { physical, logical: 0, ..Timestamp::from_version(0) }
}
