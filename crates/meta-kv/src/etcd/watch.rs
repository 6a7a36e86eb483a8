//! Messages: each commit writes what it tells into a key of its lane, and etcd tells who watches
//! these.
//!
//! What must stay true: after a break the stream goes on behind the last revision that was heard;
//! if that is gone, something was missed and is said to be.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Notice,
};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{sleep, timeout},
};

use super::{
    members::Members,
    wire::{RangeRequest, WatchCreate, WatchResponse},
};
use crate::{
    kv::{Volume, look, run, spawn},
    stored::Span,
};

/// How long until a stream that broke is opened anew.
const PAUSE: Duration = Duration::from_millis(100);

/// A listener.
pub(super) struct Listener {
    heard: UnboundedReceiver<Vec<Notice>>,
    volume: Volume,
}

impl Listener {
    pub(super) fn new(members: &Arc<Members>) -> Result<Self, EngineError> {
        let volume = members.volume.clone();
        // A read of anything says which revision is the present.
        let range = RangeRequest { key: volume.keys.messages().from, ..RangeRequest::default() };
        let from = look(&volume, members.read(0, &[range]))?.0 + 1;
        let (notify, heard) = unbounded_channel();
        spawn(listen(Arc::downgrade(members), from, notify));
        Ok(Self { heard, volume })
    }
}

impl Watch for Listener {
    fn next(&mut self, wait: Duration) -> Result<Vec<Notice>, EngineError> {
        run(async {
            match timeout(wait, self.heard.recv()).await {
                Ok(Some(notice)) => Ok(notice),
                Ok(None) => Err(self.volume.unavailable("nobody listens any more")),
                Err(_) => Ok(Vec::new()),
            }
        })
    }
}

/// Listens until nobody wants to hear it any more.
async fn listen(members: Weak<Members>, mut from: i64, notify: UnboundedSender<Vec<Notice>>) {
    while !notify.is_closed() {
        let Some(strong) = members.upgrade() else { return };
        let Span { from: key, to: range_end } = strong.volume.keys.messages();
        let create = WatchCreate { key, range_end, start_revision: from };
        let opened = strong.watch(create).await;
        drop(strong);
        match opened {
            Ok((at, mut stream)) => {
                loop {
                    let heard = tokio::select! {
                        () = notify.closed() => return,
                        heard = stream.message() => heard,
                    };
                    let Ok(Some(heard)) = heard else { break };
                    if hear(heard, &mut from, &notify) {
                        break;
                    }
                }
                let Some(strong) = members.upgrade() else { return };
                strong.leave(at);
            }
            Err(error) => tracing::debug!(%error, "a watch cannot be opened"),
        }
        sleep(PAUSE).await;
    }
}

/// Passes on what was heard; whether that was the end of the stream.
fn hear(heard: WatchResponse, from: &mut i64, notify: &UnboundedSender<Vec<Notice>>) -> bool {
    let mut notice = Vec::new();
    for event in heard.events {
        let Some(kv) = event.kv else { continue };
        *from = (*from).max(kv.mod_revision + 1);
        if event.kind == 0 {
            notice.push(Notice::decode(&kv.value));
        }
    }
    if heard.compact_revision > 0 {
        *from = (*from).max(heard.compact_revision);
        notice.push(Notice::anything());
    }
    // Nobody to tell it to is noticed by the next look.
    let _ = if notice.is_empty() { Ok(()) } else { notify.send(notice) };
    heard.canceled
}
