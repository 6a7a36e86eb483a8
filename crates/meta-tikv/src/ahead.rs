//! Transactions begun ahead: the time at which the next commit of a lane looks is asked for while nobody waits.
//!
//! A commit may look from any moment, since everything it relies on is among the keys it writes: had somebody changed
//! one of them since, the servers would refuse it. What must stay true: the moment is after the last commit of the
//! lane, and no read that answers a question looks from there.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use tikv_client::Transaction;
use tokio::{task::JoinHandle, time::timeout};

use crate::{commit::Begun, store::Store, values::Values};

/// Older ones are given up: too much may have changed since.
const LIFE: Duration = Duration::from_secs(1);

/// One for each lane.
pub(crate) struct Ahead(Vec<Mutex<Option<Asked>>>);

struct Asked {
    at: Instant,
    begun: JoinHandle<Option<Transaction>>,
}

impl Ahead {
    pub(crate) fn new(lanes: usize) -> Self {
        Self((0..lanes).map(|_| Mutex::default()).collect())
    }

    /// Asks for the next one of a lane, which has just committed.
    pub(crate) fn ask(&self, store: &Arc<Store>, lane: usize) {
        let Some(slot) = self.0.get(lane) else { return };
        let store = store.clone();
        let begun = Store::spawn(async move { store.begin().await.ok() });
        *slot.lock() = begun.map(|begun| Asked { at: Instant::now(), begun });
    }

    /// Takes the one of a lane, if there is any: whatever the commit comes to, the next must look from later.
    pub(crate) fn take(&self, lane: usize) -> Option<impl Future<Output = Option<Begun>> + use<>> {
        let asked = self.0.get(lane)?.lock().take().filter(|asked| asked.at.elapsed() < LIFE)?;
        Some(async move {
            let txn = timeout(LIFE, asked.begun).await.ok()?.ok()??;
            Some(Begun { txn, values: Values::default(), ahead: true })
        })
    }
}
