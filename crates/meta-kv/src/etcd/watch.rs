//! Messages: each commit writes what it tells into a key of its lane, and etcd tells who watches
//! these.
//!
//! What must stay true: after a break the stream goes on behind the last revision that was heard;
//! if that is gone, something was missed and is said to be.

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

/// How long until a stream that broke is opened anew.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener.
pub(super) struct Listener {
    store: Arc<Etcd>,
    /// The revision behind the last one that was heard.
    from: i64,
    stream: Option<Streaming<WatchResponse>>,
}

impl Listener {
    pub(super) fn new(store: Arc<Etcd>) -> Result<Self> {
        // A read of anything says which revision is the present.
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

    /// What a message says.
    fn hear(&mut self, heard: WatchResponse) -> Vec<Notice> {
        let missed = (heard.compact_revision > 0).then(Notice::anything);
        let revisions = heard.events.iter().filter_map(|event| Some(event.kv.as_ref()?.mod_revision + 1));
        self.from = revisions.chain([heard.compact_revision]).fold(self.from, i64::max);
        let new = heard.events.into_iter().filter(|event| event.kind == 0).filter_map(|event| event.kv);
        new.map(|kv| Notice::decode(&kv.value)).chain(missed).collect()
    }
}

impl Watch for Listener {
    fn next(&mut self, wait: Duration) -> Result<Vec<Notice>> {
        let until = Instant::now() + wait;
        run(async {
            loop {
                let heard = match self.open().await {
                    Ok(stream) => timeout_at(until, stream.message()).await,
                    Err(error) => {
                        tracing::debug!(%error, "a watch cannot be opened");
                        Ok(Ok(None))
                    }
                };
                let Ok(heard) = heard else { return Ok(Vec::new()) };
                let heard = heard.ok().flatten();
                if heard.as_ref().is_none_or(|heard| heard.canceled) {
                    self.stream = None;
                    sleep(PAUSE).await;
                }
                let notices = heard.map_or_else(Vec::new, |heard| self.hear(heard));
                if !notices.is_empty() || Instant::now() >= until {
                    return Ok(notices);
                }
            }
        })
    }
}
