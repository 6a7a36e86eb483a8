//! Change notifications: each commit writes its notification into a key of its lane. Other clients
//! watch these keys.
//!
//! What must stay true: after a break, the watch continues after the last revision that was
//! received. If that revision was compacted, the listener reports that something was missed.

use std::{sync::Arc, time::Duration};

use sluice_meta::{engine::Watch, schema::Notice};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Streaming;

use super::{
    store::Etcd,
    txn::Moment,
    wire::{WatchCreate, WatchResponse},
};
use crate::{
    kv::{Kv, look, run},
    stored::{Result, Span},
};

/// Pause before a broken stream is opened again.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener.
pub(super) struct Listener {
    store: Arc<Etcd>,
    /// The revision after the last one that was received.
    from: i64,
    stream: Option<Streaming<WatchResponse>>,
}

impl Listener {
    pub(super) fn new(store: Arc<Etcd>) -> Result<Self> {
        // Any read returns the current revision.
        let (now, any) = (Moment::default(), store.volume.keys.messages().from);
        look(&store.volume, store.get(&now, &[any]))?;
        let from = now.revision.get().copied().unwrap_or(0) + 1;
        Ok(Self { store, from, stream: None })
    }

    async fn open(&mut self) -> Result<&mut Streaming<WatchResponse>> {
        let stream = if let Some(stream) = self.stream.take() {
            stream
        } else {
            let Span { from: key, to: range_end } = self.store.volume.keys.messages();
            self.store.listen(WatchCreate { key, range_end, start_revision: self.from }).await?
        };
        Ok(self.stream.insert(stream))
    }

    /// Decodes a message.
    fn decode(&mut self, response: WatchResponse) -> Vec<Notice> {
        let missed = (response.compact_revision > 0).then(Notice::anything);
        let revisions = response.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision + 1));
        self.from = revisions.chain([response.compact_revision]).fold(self.from, i64::max);
        let new = response.events.into_iter().filter(|event| event.kind == 0).filter_map(|event| event.kv);
        new.map(|kv| Notice::decode(&kv.value)).chain(missed).collect()
    }
}

impl Watch for Listener {
    fn next(&mut self, wait: Duration) -> Result<Vec<Notice>> {
        let until = Instant::now() + wait;
        run(async {
            loop {
                let response = match self.open().await {
                    Ok(stream) => timeout_at(until, stream.message()).await,
                    Err(error) => {
                        tracing::debug!(%error, "a watch cannot be opened");
                        Ok(Ok(None))
                    }
                };
                let Ok(response) = response else { return Ok(Vec::new()) };
                let response = response.ok().flatten();
                if response.as_ref().is_none_or(|response| response.canceled) {
                    self.stream = None;
                    sleep(PAUSE).await;
                }
                let notices = response.map_or_else(Vec::new, |response| self.decode(response));
                if !notices.is_empty() || Instant::now() >= until {
                    return Ok(notices);
                }
            }
        })
    }
}
