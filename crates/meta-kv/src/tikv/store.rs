//! The client of a cluster: its transactions and reads.
//!
//! The client library runs background tasks, which must continue between calls: it fetches
//! timestamps, finishes the second phases of commits, and renews locks. Scans, and loads of many
//! rows, are sent straight to the stores; if that fails, the client library does them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use sluice_tikv::Stores;
use tikv_client::{
    CheckLevel, Config as ClientConfig, Error, Snapshot, Timestamp, TimestampExt, Transaction,
    TransactionClient, TransactionOptions, transaction::ResolveLocksOptions,
};
use tokio::{sync::OnceCell, time::timeout};

use super::{
    config::Config,
    error::{Meaning, meaning, shown},
};
use crate::{
    kv::{Volume, spawn},
    stored::Result,
};

/// Longest wait for one answer of a server.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
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
    clients: OnceCell<(TransactionClient, Stores)>,
    cleaned_at: Mutex<Option<Instant>>,
}

impl Tikv {
    /// For a configuration read before; connects at the first call.
    pub(super) fn new(config: Config) -> Arc<Self> {
        let volume = config.address.volume(config.prefix());
        let store = Arc::new(Self { config, volume, clients: OnceCell::new(), cleaned_at: Mutex::new(None) });
        if store.config.gc_interval.is_some() {
            spawn(Self::collect_garbage(Arc::downgrade(&store)));
        }
        store
    }

    /// The client library, for all but large reads and writes.
    pub(super) async fn client(&self) -> Result<&TransactionClient> {
        Ok(&self.clients().await?.0)
    }

    /// The stores themselves.
    pub(super) async fn stores(&self) -> Result<&Stores> {
        Ok(&self.clients().await?.1)
    }

    async fn clients(&self) -> Result<&(TransactionClient, Stores)> {
        let connect = async || {
            let mut config = ClientConfig::default().with_timeout(REQUEST_TIMEOUT);
            config = config.with_grpc_max_decoding_message_size(MAX_ANSWER);
            let mut pem = None;
            if let Some([ca, cert, key]) = &self.config.tls {
                let unread = |file, error| self.volume.refused(format!("{file} cannot be read: {error}"));
                let read = |file| std::fs::read(file).map_err(|error| unread(file, error));
                pem = Some([read(ca)?, read(cert)?, read(key)?]);
                config = config.with_security(ca, cert, key);
            }
            let hosts = &self.config.address.hosts;
            let made = TransactionClient::new_with_config(hosts.clone(), config).await;
            let client = made.map_err(|error| self.volume.unavailable(shown(&error)))?;
            Ok((client, Stores::new(hosts.clone(), pem)))
        };
        self.clients.get_or_try_init(connect).await
    }

    /// A transaction that reads what is committed now.
    pub(super) async fn transaction(&self) -> Result<Transaction> {
        let begun = self.client().await?.begin_with_options(options()).await;
        begun.map_err(|error| self.volume.unavailable(shown(&error)))
    }

    /// A new timestamp.
    pub(super) async fn now(&self) -> Result<u64> {
        let given = match timeout(REQUEST_TIMEOUT, self.client().await?.current_timestamp()).await {
            Ok(given) => given.map_err(|error| self.volume.unavailable(shown(&error))),
            Err(_) => Err(self.volume.unavailable("no timestamp in time")),
        };
        given.map(|given| given.version())
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
