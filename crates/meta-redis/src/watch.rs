//! Change notifications between the clients of a volume.
//!
//! The script of each commit publishes a message. A listener has a connection of its own. Messages
//! may be lost when that connection breaks: the listener then reports that anything may have
//! changed. In a cluster, messages are not sharded, and all nodes forward them: older servers have
//! no sharded ones, and a listener gets plain ones wherever the volume's slot moves.
//!
//! While clients that send no change notifications have sessions, a listener uses client tracking
//! ([`crate::tracking`]). It does not use it in a cluster, because there only the node that has a
//! key reports its changes.

use std::{
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::Value;
use sluice_meta::{
    engine::{EngineError, Watch},
    schema::{Change, Key, Notice},
};

use crate::{
    conn::Conn,
    keys::{Keys, Text, number},
    pipeline::Pipeline,
    pool::Pool,
    tracking::{Expected, OwnChanges},
};

/// If the server sends nothing for this long, it gets a PING.
const PING_AFTER: Duration = Duration::from_secs(15);

/// If the server refuses client tracking, it is not tried again for this long.
const TRACKING_RETRY: Duration = Duration::from_mins(1);

/// The channel of a volume, without the number of its database. Channels are shared between
/// databases.
const CHANNEL: &str = "sluice:changes";

/// The channel of the volume.
pub(crate) fn channel(keys: &Keys) -> Text {
    let mut channel = keys.word(CHANNEL);
    channel.push(b':');
    channel.extend_from_slice(&number(keys.db()));
    channel
}

/// A subscription.
pub(crate) struct Listener {
    pool: Arc<Pool>,
    keys: Keys,
    channel: Text,
    own: Arc<OwnChanges>,
    expected: Expected,
    /// Whether the server reports which keys change.
    tracks: bool,
    /// Whether it could: not in a cluster.
    can_track: bool,
    /// When it last refused.
    refused: Option<Instant>,
    /// Whether a message may have been missed.
    missed: bool,
    conn: Option<Conn>,
    /// When the server last sent something.
    heard: Instant,
    /// When the PING was sent that is not answered yet.
    asked: Option<Instant>,
}

impl Listener {
    pub(crate) fn new(pool: Arc<Pool>, keys: &Keys, own: Arc<OwnChanges>) -> Result<Self, EngineError> {
        let can_track = !pool.is_cluster()?;
        let mut listener = Self {
            pool,
            keys: keys.clone(),
            channel: channel(keys),
            own,
            expected: Expected::default(),
            tracks: false,
            can_track,
            refused: None,
            missed: false,
            conn: None,
            heard: Instant::now(),
            asked: None,
        };
        listener.subscribe()?;
        Ok(listener)
    }

    fn subscribe(&mut self) -> Result<(), EngineError> {
        self.conn = None;
        let mut conn = self.pool.connect()?;
        if self.tracks
            && let Err(why) = self.track(&mut conn)
        {
            if self.refused.is_none() {
                let needs = "it takes Redis 6 and a user who may use CLIENT TRACKING";
                tracing::info!(why, "the server does not report which keys change: {needs}");
            }
            self.refused = Some(Instant::now());
            self.stop_tracking();
            // It is unknown what the server made of the half-sent command.
            conn = self.pool.connect()?;
        }
        let mut pipeline = Pipeline::default();
        pipeline.command("SUBSCRIBE").push(&self.channel);
        let errors = self.pool.errors();
        let answers = conn.exchange(&pipeline).map_err(|failure| errors.unavailable(failure.reason))?;
        answers.into_iter().try_for_each(|answer| errors.sound(answer).map(drop))?;
        (self.heard, self.asked) = (Instant::now(), None);
        self.expected = Expected::default();
        self.conn = Some(conn);
        Ok(())
    }

    /// Makes the server report changed keys on `conn`, or returns why it does not.
    fn track(&mut self, conn: &mut Conn) -> Result<(), String> {
        let mut pipeline = Pipeline::default();
        pipeline.command("HELLO").push(b"3");
        let tracking = pipeline.command("CLIENT");
        tracking.extend([&b"TRACKING"[..], b"ON", b"BCAST"]);
        // Nodes and directories; other keys begin so, too.
        for letter in ["i", "d"] {
            tracking.extend([&b"PREFIX"[..], &self.keys.word(letter)]);
        }
        for answer in conn.exchange(&pipeline).map_err(|failure| failure.reason)? {
            if let Value::ServerError(error) = answer {
                return Err(error.to_string());
            }
        }
        self.own.switch(true);
        Ok(())
    }

    /// Only a listener that tracks removes the kept changes of this process.
    fn stop_tracking(&mut self) {
        if std::mem::take(&mut self.tracks) {
            self.own.switch(false);
        }
    }

    /// The next message, if one comes in time.
    fn listen(&mut self, timeout: Duration) -> io::Result<Option<Notice>> {
        let until = Instant::now() + timeout;
        loop {
            let Some(conn) = &mut self.conn else { return Err(io::ErrorKind::NotConnected.into()) };
            let now = Instant::now();
            let read_timeout = self.pool.config().read_timeout;
            match self.asked {
                Some(asked) if now - asked > read_timeout => return Err(io::ErrorKind::TimedOut.into()),
                None if now - self.heard > PING_AFTER => {
                    let mut ping = Pipeline::default();
                    ping.command("PING");
                    conn.wire.send(&ping.render(false, None))?;
                    self.asked = Some(now);
                }
                _ => {}
            }
            let left = until.saturating_duration_since(now);
            if !conn.wire.wait(left.min(PING_AFTER).min(read_timeout))? {
                if now >= until {
                    return Ok(None);
                }
                continue;
            }
            let answer = conn.wire.receive()?;
            (self.heard, self.asked) = (Instant::now(), None);
            match self.understand(&answer) {
                Some(notice) => return Ok(Some(notice)),
                // Even if meaningless messages come.
                None if now >= until => return Ok(None),
                None => {}
            }
        }
    }

    /// Decodes a message of the server; `None` if nothing changed.
    fn understand(&mut self, said: &Value) -> Option<Notice> {
        let Value::Array(words) = said else { return None };
        match &words[..] {
            [Value::BulkString(kind), _, Value::BulkString(message)] if kind == b"message" => {
                let notice = Notice::decode(message);
                if self.tracks {
                    self.expected.notice(&notice, &self.own);
                }
                // An empty message: a client checks its right to publish.
                let says_nothing = notice.writer == 0 && notice.changes.is_empty();
                (!says_nothing).then_some(notice)
            }
            [Value::BulkString(kind), Value::Array(keys)] if kind == b"invalidate" => {
                let changes = keys.iter().filter_map(|key| match key {
                    Value::BulkString(key) => match self.keys.record(key, b"")? {
                        Key::Node(ino) => Some(Change::Node(ino)),
                        Key::Entry(dir, _) => Some(Change::Names(dir)),
                        _ => None,
                    },
                    _ => None,
                });
                let unannounced = self.expected.unannounced(changes.collect());
                (!unannounced.is_empty()).then(|| Notice::anonymous(unannounced))
            }
            // All keys were removed.
            [Value::BulkString(kind), Value::Nil] if kind == b"invalidate" => Some(Notice::anything()),
            _ => None,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.stop_tracking();
    }
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        if std::mem::take(&mut self.missed) {
            return Ok(vec![Notice::anything()]);
        }
        match self.listen(timeout) {
            Ok(notice) => Ok(notice.into_iter().collect()),
            // Messages may have been lost meanwhile.
            Err(_) => self.subscribe().map(|()| vec![Notice::anything()]),
        }
    }

    fn set_silent_clients(&mut self, silent: bool) -> Result<bool, EngineError> {
        let rests = self.refused.is_some_and(|at| at.elapsed() < TRACKING_RETRY);
        let wanted = silent && self.can_track && !rests;
        if wanted != self.tracks {
            self.stop_tracking();
            self.tracks = wanted;
            self.missed = true;
            self.subscribe()?;
        }
        Ok(self.tracks)
    }
}
