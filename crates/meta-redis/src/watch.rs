//! Messages between the clients of a volume.
//!
//! The commit script publishes; a listener has a connection of its own. A message may be lost whenever that connection
//! is: the listener then says that anything may have changed. In a cluster messages are plain ones, which all nodes pass
//! on: they are few, older servers have no others, and a listener hears them wherever the volume's slot goes.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;
use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Told,
};

use crate::{
    conn::Conn,
    error::story,
    keys::{Keys, Text, number},
    pipeline::Pipeline,
    pool::Pool,
};

/// A server that was silent for so long is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(15);

/// The channel of a volume without the number of its database, which channels do not know.
const CHANNEL: &str = "sluice:changes";

/// The channel of the volume.
pub(crate) fn channel(keys: &Keys) -> Text {
    let mut channel = keys.word(CHANNEL);
    channel.push(b':');
    channel.extend_from_slice(&number(u64::from(keys.db())));
    channel
}

/// A subscription.
pub(crate) struct Listener {
    pool: Arc<Pool>,
    channel: Text,
    conn: Option<Conn>,
    /// When the server was last heard.
    heard: Instant,
    /// When it was asked whether it is still there, if it has not answered.
    asked: Option<Instant>,
}

impl Listener {
    pub(crate) fn new(pool: Arc<Pool>, keys: &Keys) -> Result<Self, EngineError> {
        let mut listener =
            Self { pool, channel: channel(keys), conn: None, heard: Instant::now(), asked: None };
        listener.subscribe()?;
        Ok(listener)
    }

    fn subscribe(&mut self) -> Result<(), EngineError> {
        self.conn = None;
        let mut conn = self.pool.connect()?;
        let mut pipeline = Pipeline::default();
        pipeline.command("SUBSCRIBE").push(&self.channel);
        let sent = conn.wire.send(&pipeline.render(false, None)).and_then(|()| conn.wire.receive());
        self.pool.sound(sent.map_err(|error| self.pool.unavailable(story(&error)))?)?;
        (self.heard, self.asked) = (Instant::now(), None);
        self.conn = Some(conn);
        Ok(())
    }

    /// The next message, if one comes in time.
    fn listen(&mut self, timeout: Duration) -> io::Result<Option<Told>> {
        let Some(conn) = &mut self.conn else { return Err(io::ErrorKind::NotConnected.into()) };
        let until = Instant::now() + timeout;
        loop {
            let now = Instant::now();
            let patience = self.pool.config.read_timeout;
            match self.asked {
                Some(asked) if now - asked > patience => return Err(io::ErrorKind::TimedOut.into()),
                None if now - self.heard > SILENCE => {
                    let mut ping = Pipeline::default();
                    ping.command("PING");
                    conn.wire.send(&ping.render(false, None))?;
                    self.asked = Some(now);
                }
                _ => {}
            }
            let left = until.saturating_duration_since(now);
            if !conn.wire.wait(left.min(SILENCE).min(patience))? {
                if now >= until {
                    return Ok(None);
                }
                continue;
            }
            let answer = conn.wire.receive()?;
            (self.heard, self.asked) = (Instant::now(), None);
            if let Value::Array(words) = answer
                && let [Value::BulkString(kind), _, Value::BulkString(message)] = &words[..]
                && kind == b"message"
            {
                return Ok(Some(Told::decode(message)));
            }
        }
    }
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Told>, EngineError> {
        match self.listen(timeout) {
            Ok(told) => Ok(told.into_iter().collect()),
            // Nobody knows what was said meanwhile.
            Err(_) => self.subscribe().map(|()| vec![Told::anything()]),
        }
    }
}
