//! Messages between the clients of a volume, over a store that has none.
//!
//! Who tells something changes one of a few keys; who listens looks at them several times a second.
//! What must stay true: a bell that rang after a listener began is heard, if not what it was for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use sluice_meta::{engine::Watch, schema::Notice};

use super::store::Tikv;
use crate::{
    keys::BELLS,
    kv::{Kv, look},
    stored::{Pair, Raw, Result},
};

/// How often the bells are looked at.
const PERIOD: Duration = Duration::from_millis(100);

/// Changes a bell. The time of the change is its value, so that each differs; who was faster rang
/// as well.
pub(crate) async fn ring(store: Arc<Tikv>) {
    let Ok(mut txn) = store.transaction().await else { return };
    let at = txn.start_timestamp();
    let key = store.volume.keys.bell((at.logical ^ at.physical) as u8);
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
        let heard = bells(&store)?;
        Ok(Self { store, heard })
    }
}

fn bells(store: &Tikv) -> Result<Vec<Pair>> {
    let keys: Vec<Raw> = (0..BELLS).map(|at| store.volume.keys.bell(at)).collect();
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
            let now = bells(&self.store)?;
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
