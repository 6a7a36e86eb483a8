//! The two-phase commit.
//!
//! TiKV notices that others wrote what a transaction *writes*, and nothing else. So what must only
//! hold is written as well, with the value it has: then of two commits that exclude each other one
//! fails, whatever either does.

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
const WRITING: Duration = Duration::from_secs(10);
/// Longest time that is spent on undoing what was refused.
const UNDOING: Duration = Duration::from_secs(5);

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
    let error = match timeout(WRITING, txn.commit()).await {
        Ok(Ok(_)) => return Ok(true),
        Ok(Err(error)) => error,
        Err(_) => return Err(store.volume.indeterminate("no answer in time")),
    };
    let meaning = meaning(&error);
    tracing::debug!(?meaning, error = shown(&error), "a commit failed");
    if meaning == Meaning::Unknown {
        // To undo it now could tear it: a store that is told to undo keys does not look whether the
        // first one of the transaction, which decides, is committed elsewhere. What is left of it
        // goes when its locks have lived their time.
        return Err(store.volume.indeterminate(shown(&error)));
    }
    // What of it arrived elsewhere must not stay: nobody could clear it away.
    if !matches!(timeout(UNDOING, txn.rollback()).await, Ok(Ok(()))) {
        tracing::debug!("a refused commit could not be undone everywhere");
    }
    if meaning == Meaning::Never {
        return Err(store.volume.refused("the commit is larger than a transaction may be"));
    }
    Ok(false)
}
