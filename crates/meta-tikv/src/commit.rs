//! Commits: what must be known, what becomes of it, and one two-phase commit.
//!
//! TiKV notices that others wrote what a transaction *writes*, and nothing else. So what must only hold is written as
//! well, with the value it has: then of two commits that exclude each other one fails, whatever either does. A commit
//! that others outran looks at everything again at a later moment and fails only if something expected does not hold.

mod draft;
mod writes;

use std::time::{Duration, Instant};

use sluice_meta::engine::{Commit, EngineError};
use tikv_client::{Timestamp, Transaction};
use tokio::time::{sleep, timeout};

use self::draft::Draft;
pub(crate) use self::draft::{Change, Fold};
use crate::{
    error::{Meaning, meaning, shown},
    store::Store,
    values::{Values, Wants},
};

/// Times that a commit is tried before whoever asked is told that others keep changing what it works on.
const TRIES: u32 = 40;
/// Longest time that the two phases may take.
const WRITING: Duration = Duration::from_secs(10);
/// Longest time that is spent on finding out whether a commit happened.
const FINDING_OUT: Duration = Duration::from_secs(5);
/// No try begins later than this, so that the last one has time to end.
const LAST_TRY: Duration = Duration::from_secs(8);

/// A transaction begun, and what it has read.
pub(crate) struct Begun {
    pub(crate) txn: Transaction,
    pub(crate) values: Values,
}

/// Brings a commit through, or says why not. `begun` is what the reads before it saw.
pub(crate) async fn commit(
    store: &Store,
    mut begun: Option<Begun>,
    commit: &Commit,
    mut fold: Fold,
) -> Result<(), EngineError> {
    let start = Instant::now();
    let mut look_first = false;
    for tries in 1.. {
        let mut draft = Draft::new(store, commit, fold, look_first);
        let wants = draft.wants();
        let Begun { mut txn, values } = store.within(look(store, begun.take(), wants)).await?;
        let changes = draft.changes(&values)?;
        let Some(failure) = write(store, &mut txn, changes).await? else { return Ok(()) };
        match failure {
            Meaning::Exists => look_first = true,
            Meaning::Never => {
                return Err(store.refused("the commit is larger than a transaction may be".into()));
            }
            _ => {}
        }
        // Whoever folds meets all others; that can wait.
        fold = Fold::Later;
        if tries >= TRIES || start.elapsed() > LAST_TRY {
            return Err(EngineError::Conflict(Vec::new()));
        }
        pause(&txn.start_timestamp(), tries).await;
    }
    Err(EngineError::Conflict(Vec::new()))
}

/// Begins, unless that was done, and reads what is not known.
async fn look(store: &Store, begun: Option<Begun>, wants: Wants) -> Result<Begun, EngineError> {
    let mut begun = match begun {
        Some(begun) => begun,
        None => Begun { txn: store.begin().await?, values: Values::default() },
    };
    begun.values.fetch(store, &begun.txn.start_timestamp(), wants).await?;
    Ok(begun)
}

/// Waits a little, for different clients differently: the time at which they began tells them apart.
async fn pause(at: &Timestamp, tries: u32) {
    if tries > 1 {
        let most = 250 << tries.min(8);
        let part = ((at.logical as u64) ^ (at.physical as u64)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        sleep(Duration::from_micros(part % most)).await;
    }
}

/// One two-phase commit. Nothing if it happened; else why the server refused it.
async fn write(
    store: &Store,
    txn: &mut Transaction,
    changes: Vec<(Vec<u8>, Change)>,
) -> Result<Option<Meaning>, EngineError> {
    if changes.is_empty() {
        return Ok(None);
    }
    for (key, change) in changes {
        let buffered = match change {
            Change::Put(value) => txn.put(key, value).await,
            Change::Insert(value) => txn.insert(key, value).await,
            Change::Delete => txn.delete(key).await,
        };
        buffered.map_err(|error| store.refused(shown(&error)))?;
    }
    let committed = timeout(WRITING, txn.commit()).await;
    let reason = match committed {
        Ok(Ok(_)) => return Ok(None),
        Ok(Err(error)) => {
            let meaning = meaning(&error);
            tracing::debug!(?meaning, error = shown(&error), "a commit failed");
            match meaning {
                Meaning::Unknown => shown(&error),
                refused => {
                    // What of it arrived elsewhere must not stay: nobody could clear it away.
                    let undone = timeout(FINDING_OUT, txn.rollback()).await;
                    if !matches!(undone, Ok(Ok(()))) {
                        tracing::debug!("a refused commit could not be undone everywhere");
                    }
                    return Ok(Some(refused));
                }
            }
        }
        Err(_) => "no answer in time".into(),
    };
    // To undo it now could tear it: a store that is told to undo keys does not look whether the first one of the transaction,
    // which decides, is committed elsewhere. What is left of it goes when its locks have lived their time.
    Err(EngineError::Indeterminate { engine: store.label.to_string(), reason })
}
