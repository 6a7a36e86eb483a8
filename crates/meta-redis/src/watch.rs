//! Messages between the clients of a volume.
//!
//! The commit script publishes; a listener has a connection of its own. A message may be lost whenever that connection
//! is: the listener then says that anything may have changed.

use std::{mem::ManuallyDrop, sync::Arc, time::Duration};

use sluice_meta::engine::{Change, EngineError, Watch};
use sluice_types::Ino;

use crate::{
    conn::Pool,
    keys::{Keys, Text, number, parse},
};

/// The channel of a volume without the number of its database, which channels do not know.
const CHANNEL: &str = "sluice:changes";

/// The channel of the volume.
pub(crate) fn channel(keys: &Keys) -> Text {
    let mut channel = keys.word(CHANNEL);
    channel.push(b':');
    channel.extend_from_slice(&number(u64::from(keys.db())));
    channel
}

/// The message about a change.
pub(crate) fn encode(change: Change) -> Text {
    match change {
        Change::Any => Text::from_slice(b"any"),
        Change::Lock(ino) => {
            let mut text = Text::from_slice(b"lock ");
            text.extend_from_slice(&number(ino.0));
            text
        }
    }
}

/// What a message says; whatever a newer client means by it, something changed.
fn decode(message: &[u8]) -> Change {
    let ino = message.strip_prefix(b"lock ").and_then(parse);
    ino.map_or(Change::Any, |ino| Change::Lock(Ino(ino)))
}

/// A subscription.
pub(crate) struct Listener {
    pool: Arc<Pool>,
    channel: Text,
    conn: Option<redis::Connection>,
}

impl Listener {
    pub(crate) fn new(pool: Arc<Pool>, keys: &Keys) -> Result<Self, EngineError> {
        let mut listener = Self { pool, channel: channel(keys), conn: None };
        listener.conn = Some(listener.subscribe()?);
        Ok(listener)
    }

    fn subscribe(&self) -> Result<redis::Connection, EngineError> {
        let mut conn = self.pool.subscriber()?;
        let mut messages = ManuallyDrop::new(conn.as_pubsub());
        let subscribed = messages.subscribe(&*self.channel);
        subscribed.map_err(|error| self.pool.unavailable(error.to_string()))?;
        Ok(conn)
    }
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Change>, EngineError> {
        let Some(conn) = &mut self.conn else {
            self.conn = Some(self.subscribe()?);
            return Ok(vec![Change::Any]);
        };
        // Dropping it would end the subscription.
        let mut messages = ManuallyDrop::new(conn.as_pubsub());
        let wait = Some(timeout.max(Duration::from_millis(1)));
        let received = messages.set_read_timeout(wait).and_then(|()| messages.get_message());
        match received {
            Ok(message) => Ok(vec![decode(message.get_payload_bytes())]),
            Err(error) if error.is_timeout() => Ok(Vec::new()),
            Err(_) => {
                self.conn = None;
                self.conn = Some(self.subscribe()?);
                Ok(vec![Change::Any])
            }
        }
    }
}
