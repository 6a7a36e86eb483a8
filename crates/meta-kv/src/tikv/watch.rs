//! Messages between the clients of a volume, for a store without messages.
//!
//! A client that sends a notification changes one of a few notification keys. A listener reads
//! these keys several times a second. What must stay true: a listener detects each change of a
//! notification key since it began. It does not learn the content of the notification.

use std::{sync::Arc, time::Duration};

use sluice_meta::engine::Version;

use super::store::Tikv;
use crate::{
    keys::NOTIFY_KEYS,
    kv::{Kv, look},
    stored::{Pair, Raw, Result},
};

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

impl Version for Tikv {
    type Version = Vec<Pair>;

    const PERIOD: Duration = Duration::from_millis(100);

    /// The notification keys.
    fn version(&self) -> Result<Option<Vec<Pair>>> {
        let keys: Vec<Raw> = (0..NOTIFY_KEYS).map(|at| self.volume.keys.notify_key(at)).collect();
        look(&self.volume, async {
            let now = self.begin().await?;
            let mut pairs = self.get(&now, &keys).await?;
            pairs.sort_unstable();
            Ok(Some(pairs))
        })
    }
}
