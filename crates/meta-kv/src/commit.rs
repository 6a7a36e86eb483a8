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
use crate::{
    kv::{Kv, within},
    stored::Result,
    values::Begun,
};

/// Times that a commit is tried before whoever asked is told that others keep changing what it
/// works on.
const TRIES: u32 = 40;
/// No try begins later than this, so that the last one has time to end.
const LAST_TRY: Duration = Duration::from_secs(8);

/// Brings a commit through, or says why not. `begun` is what the reads before it saw; `fold` says
/// whether it adds what its process has not yet added to the volume's totals.
pub(crate) async fn commit<K: Kv>(
    kv: &K,
    mut begun: Option<Begun<K::Moment>>,
    commit: &Commit,
    mut fold: bool,
) -> Result<()> {
    let start = Instant::now();
    let mut tries = 0;
    loop {
        // At first it is left to the server to refuse what is not new.
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
        // Whoever folds meets all others; that can wait.
        fold = false;
        pause(start.elapsed(), tries).await;
    }
}

/// Waits a little, for different clients differently: how long they took tells them apart.
async fn pause(took: Duration, tries: u32) {
    if tries > 1 {
        let most = 250 << tries.min(8);
        let part = u64::from(took.subsec_nanos()).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        sleep(Duration::from_micros(part % most)).await;
    }
}
