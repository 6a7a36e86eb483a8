//! The two-phase commit.
//!
//! TiKV detects conflicts only on keys that a transaction *writes*. So keys that must be unchanged
//! are also written, with the same value. Then, if two commits conflict, one of them fails.

use std::time::Duration;

use tikv_client::Transaction;
use tokio::time::timeout;

use super::{
    error::{Meaning, meaning, shown},
    store::Tikv,
};
use crate::{
    kv::Change,
    stored::{Raw, Result},
};

/// Longest time that the two phases may take.
pub(super) const COMMIT_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest time for the rollback of a refused commit.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn commit(store: &Tikv, mut txn: Transaction, changes: Vec<(Raw, Change)>) -> Result<bool> {
    if changes.is_empty() {
        return Ok(true);
    }
    for (key, change) in changes {
        let buffered = match change {
            Change::Put(value) | Change::Hold(Some(value)) => txn.put(key, value).await,
            Change::Insert(value) => txn.insert(key, value).await,
            Change::Delete | Change::Hold(None) => txn.delete(key).await,
        };
        buffered.map_err(|error| store.volume.refused(shown(&error)))?;
    }
    let error = match timeout(COMMIT_TIMEOUT, txn.commit()).await {
        Ok(Ok(_)) => return Ok(true),
        Ok(Err(error)) => error,
        Err(_) => return Err(store.volume.indeterminate("no answer in time")),
    };
    let meaning = meaning(&error);
    tracing::debug!(?meaning, error = shown(&error), "a commit failed");
    if meaning == Meaning::Unknown {
        // A rollback now could undo half of a commit: a store that rolls back keys does not check
        // whether the primary key of the transaction is committed on another one. The remaining
        // locks are resolved when they expire.
        return Err(store.volume.indeterminate(shown(&error)));
    }
    // Parts that arrived on other stores must not stay, because no client could resolve them.
    if !matches!(timeout(ROLLBACK_TIMEOUT, txn.rollback()).await, Ok(Ok(()))) {
        tracing::debug!("a refused commit could not be undone everywhere");
    }
    if meaning == Meaning::Never {
        return Err(store.volume.refused("the commit is larger than a transaction may be"));
    }
    Ok(false)
}
