//! Commits: what must be known, what becomes of it, and one commit of the store.
//!
//! A commit that others outran looks at everything again at a later moment and fails only if
//! something expected does not hold. What must only hold is named too, so that of two commits that
//! exclude each other one fails: a store that compares what was read compares it, one that notices
//! written keys alone writes it again with the value it has.

mod draft;
mod writes;

use std::time::{Duration, Instant};

use sluice_meta::engine::{Commit, EngineError};
use tokio::time::sleep;

use self::draft::Draft;
pub(crate) use self::draft::Fold;
use crate::{
    kv::{Kv, Outcome, within},
    values::{Values, Wants},
};

/// Times that a commit is tried before whoever asked is told that others keep changing what it
/// works on.
const TRIES: u32 = 40;
/// No try begins later than this, so that the last one has time to end.
const LAST_TRY: Duration = Duration::from_secs(8);

/// A transaction begun, and what it has read.
pub(crate) struct Begun<M> {
    pub(crate) at: M,
    pub(crate) values: Values,
}

/// Brings a commit through, or says why not. `begun` is what the reads before it saw.
pub(crate) async fn commit<K: Kv>(
    kv: &K,
    mut begun: Option<Begun<K::Moment>>,
    commit: &Commit,
    mut fold: Fold,
) -> Result<(), EngineError> {
    let start = Instant::now();
    let mut look_first = false;
    for tries in 1.. {
        let mut draft = Draft::new(kv, commit, fold, look_first);
        let wants = draft.wants();
        let Begun { at, values } = within(kv.volume(), look(kv, begun.take(), wants)).await?;
        let changes = draft.changes(&values)?;
        match kv.commit(at, changes).await? {
            Outcome::Done => return Ok(()),
            Outcome::Exists => look_first = true,
            Outcome::Outrun => {}
        }
        // Whoever folds meets all others; that can wait.
        fold = Fold::Later;
        if tries >= TRIES || start.elapsed() > LAST_TRY {
            return Err(EngineError::Conflict(Vec::new()));
        }
        pause(start.elapsed(), tries).await;
    }
    Err(EngineError::Conflict(Vec::new()))
}

/// Begins, unless that was done, and reads what is not known.
async fn look<K: Kv>(
    kv: &K,
    begun: Option<Begun<K::Moment>>,
    wants: Wants,
) -> Result<Begun<K::Moment>, EngineError> {
    let mut begun = match begun {
        Some(begun) => begun,
        None => Begun { at: kv.begin().await?, values: Values::default() },
    };
    begun.values.fetch(kv, &begun.at, wants).await?;
    Ok(begun)
}

/// Waits a little, for different clients differently: how long they took tells them apart.
async fn pause(took: Duration, tries: u32) {
    if tries > 1 {
        let most = 250 << tries.min(8);
        let part = u64::from(took.subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        sleep(Duration::from_micros(part % most)).await;
    }
}
