//! Messages between the clients of a volume.
//!
//! The script of each commit publishes; a listener has a connection of its own. A message may be
//! lost whenever that connection is: the listener then says that anything may have changed. In a
//! cluster messages are plain ones, which all nodes pass on: older servers have no others, and a
//! listener hears them wherever the volume's slot goes.
//!
//! While clients have sessions that tell nothing, a listener asks the server which keys change
//! ([`crate::tracking`]). Not in a cluster, where only the node that has a key knows that.

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

/// A server that was silent for so long is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(15);

/// A server that does not report which keys change is not asked to for so long.
const REST: Duration = Duration::from_mins(1);

/// The channel of a volume without the number of its database, which channels do not know.
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
    /// When it did not do so last.
    refused: Option<Instant>,
    /// Whether something may have changed unheard.
    missed: bool,
    conn: Option<Conn>,
    /// When the server was last heard.
    heard: Instant,
    /// When it was asked whether it is still there, if it has not answered.
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
            // What it made of those words is not known.
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

    /// Has the server report on `conn` which keys change, or says why it does not.
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

    /// Nobody but the one that tracks takes out what is kept of own changes.
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
            let patience = self.pool.config().read_timeout;
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
            match self.understand(&answer) {
                Some(notice) => return Ok(Some(notice)),
                // However much is said that means nothing.
                None if now >= until => return Ok(None),
                None => {}
            }
        }
    }

    /// What something that the server said means; `None` if nothing changed.
    fn understand(&mut self, said: &Value) -> Option<Notice> {
        let Value::Array(words) = said else { return None };
        match &words[..] {
            [Value::BulkString(kind), _, Value::BulkString(message)] if kind == b"message" => {
                let notice = Notice::decode(message);
                if self.tracks {
                    self.expected.notice(&notice, &self.own);
                }
                // Somebody tried whether he may tell.
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
                let untold = self.expected.untold(changes.collect());
                (!untold.is_empty()).then(|| Notice::anonymous(untold))
            }
            // All keys are gone.
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
            // Nobody knows what was said meanwhile.
            Err(_) => self.subscribe().map(|()| vec![Notice::anything()]),
        }
    }

    fn set_silent_clients(&mut self, silent: bool) -> Result<bool, EngineError> {
        let rests = self.refused.is_some_and(|at| at.elapsed() < REST);
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
