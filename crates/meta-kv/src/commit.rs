//! Commits: reads the records that are needed, drafts the changes, and commits them to the store.
//!
//! After a conflict, a commit reads everything again from a later snapshot. It fails only if an
//! expectation does not hold. Keys that must be unchanged, but are not written, are part of the
//! commit, too. So if two commits conflict, one of them fails. A store that can compare values
//! compares these keys. A store that detects conflicts only on written keys writes them again with
//! the same value.

mod draft;
mod writes;

use std::time::{Duration, Instant};

use sluice_meta::engine::{Commit, EngineError};
use tokio::time::sleep;

use self::draft::Draft;
use crate::{
    kv::{Kv, within},
    stored::Result,
    values::Begun,
};

/// Tries of a commit, before the caller gets the error that other clients keep changing its
/// records.
const TRIES: u32 = 40;
/// No try begins later than this, so that the last one can end before the deadline.
const LAST_TRY: Duration = Duration::from_secs(8);

/// Runs a commit. `begun` holds what was read before. `fold` says whether the commit adds the
/// lane's pending parts to the volume's totals.
pub(crate) async fn commit<K: Kv>(
    kv: &K,
    mut begun: Option<Begun<K::Moment>>,
    commit: &Commit,
    mut fold: bool,
) -> Result<()> {
    let start = Instant::now();
    let mut tries = 0;
    loop {
        // In the first try, the server checks that new keys do not exist.
        let draft = Draft::new(kv, commit, fold, tries > 0);
        let read = async {
            let mut begun = Begun::or_begin(begun.take(), kv).await?;
            begun.values.fetch(kv, &begun.at, draft.wants()).await?;
            Ok(begun)
        };
        let Begun { at, values } = within(kv.volume(), read).await?;
        if kv.commit(at, draft.changes(&values)?).await? {
            return Ok(());
        }
        tries += 1;
        if tries >= TRIES || start.elapsed() > LAST_TRY {
            return Err(EngineError::Conflict(Vec::new()));
        }
        // A commit that folds conflicts with all others, so the next try does not fold.
        fold = false;
        pause(start.elapsed(), tries).await;
    }
}

/// Waits for a short time, which differs between clients, because it depends on how long the try
/// took.
async fn pause(took: Duration, tries: u32) {
    if tries > 1 {
        let most = 250 << tries.min(8);
        let part = u64::from(took.subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        sleep(Duration::from_micros(part % most)).await;
    }
}
