//! Messages between the clients of a volume, for a store without messages.
//!
//! A client that announces something changes one of a few notification keys. A listener reads these
//! keys several times a second. What must stay true: a listener notices each change of a
//! notification key after its begin, but not what was announced.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{engine::Watch, schema::Notice};

use super::store::Tikv;
use crate::{
    keys::NOTIFY_KEYS,
    kv::{Kv, look},
    stored::{Pair, Raw, Result},
};

/// How often the notification keys are read.
const PERIOD: Duration = Duration::from_millis(100);

/// Changes a notification key. Its value is the time, so that each differs. If another client was
/// faster, that change is enough.
pub(crate) async fn notify(store: Arc<Tikv>) {
    let Ok(mut txn) = store.transaction().await else { return };
    let at = txn.start_timestamp();
    let key = store.volume.keys.notify_key((at.logical ^ at.physical) as u8);
    let value = [at.physical.to_be_bytes(), at.logical.to_be_bytes()].concat();
    if txn.put(key, value).await.is_err() || txn.commit().await.is_err() {
        let _ = txn.rollback().await;
    }
}

/// A listener.
pub(crate) struct Listener {
    store: Arc<Tikv>,
    heard: Vec<Pair>,
}

impl Listener {
    pub(crate) fn new(store: Arc<Tikv>) -> Result<Self> {
        let heard = notify_keys(&store)?;
        Ok(Self { store, heard })
    }
}

fn notify_keys(store: &Tikv) -> Result<Vec<Pair>> {
    let keys: Vec<Raw> = (0..NOTIFY_KEYS).map(|at| store.volume.keys.notify_key(at)).collect();
    look(&store.volume, async {
        let now = store.begin().await?;
        let mut pairs = store.get(&now, &keys).await?;
        pairs.sort_unstable();
        Ok(pairs)
    })
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>> {
        let until = Instant::now() + timeout;
        loop {
            let now = notify_keys(&self.store)?;
            if now != self.heard {
                self.heard = now;
                return Ok(vec![Notice::anything()]);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            std::thread::sleep(left.min(PERIOD));
        }
    }
}
