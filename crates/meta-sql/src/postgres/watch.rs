//! Messages between the clients of a volume: NOTIFY after a commit, LISTEN on a connection of its own.
//!
//! A message may be lost whenever that connection is: the listener then says that anything may have changed. Messages
//! are sent behind the mark of a commit, for PostgreSQL lets transactions that send some commit only one at a time.

use std::{
    io::ErrorKind,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::BytesMut;
use postgres_protocol::message::{backend::Message, frontend};
use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Told,
};

use crate::naming::Naming;

use super::{
    conn::story,
    options::Options,
    pool::Pool,
    wire::{Kind, Wire},
};

/// The channel of the volume. Channels belong to the database, in which there may be other volumes.
pub(super) fn channel(options: &Options) -> String {
    let schema = options.settings.iter().find(|(name, _)| name == "search_path");
    let schema = schema.map_or_else(|| "public".to_owned(), |(_, path)| path.replace('"', ""));
    format!("{}changes:{schema}", options.naming.own_prefix())
}

/// The statement that tells of a commit, which runs whether that succeeded or not: so it looks first. Messages are
/// texts of less than 8,000 bytes: twice the bytes of ours.
pub(super) fn notify(channel: &str, told: &Told, naming: &Naming) -> String {
    let message = hex::encode(told.encode());
    let Told { writer, lane, n, .. } = told;
    if *writer == 0 {
        return format!("NOTIFY \"{channel}\",'{message}'");
    }
    let (writers, writer, n) = (naming.table("sluice_writer"), *writer as i64, *n as i64);
    format!(
        "SELECT pg_notify('{}','{message}') FROM \"{writers}\" WHERE writer={writer} AND lane={lane} AND n={n}",
        channel.replace('\'', "''")
    )
}

/// What a message says.
fn decode(message: &str) -> Told {
    hex::decode(message).map_or_else(|_| Told::anything(), |bytes| Told::decode(&bytes))
}

/// A subscription.
pub(super) struct Listener {
    pool: Arc<Pool>,
    channel: String,
    wire: Option<Wire>,
}

impl Listener {
    pub(super) fn new(pool: Arc<Pool>, channel: String) -> Result<Self, EngineError> {
        let mut listener = Self { pool, channel, wire: None };
        listener.wire = Some(listener.subscribe()?);
        Ok(listener)
    }

    fn subscribe(&self) -> Result<Wire, EngineError> {
        let mut wire = self.pool.connect()?;
        let until = Instant::now() + self.pool.options.connect_timeout;
        let mut request = BytesMut::new();
        let said = frontend::query(&format!("LISTEN \"{}\"", self.channel), &mut request);
        let mut listening = said.and_then(|()| wire.send(&request, Kind::Look, until));
        while listening.is_ok() {
            listening = match wire.receive(until) {
                Ok(Message::ReadyForQuery(_)) => return Ok(wire),
                Ok(Message::ErrorResponse(_)) => Err(std::io::Error::other("the server refuses LISTEN")),
                other => other.map(drop),
            };
        }
        let reason = listening.err().map_or_else(String::new, |error| story(&error));
        Err(self.pool.options.unavailable(reason))
    }
}

impl Watch for Listener {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Told>, EngineError> {
        let until = Instant::now() + timeout.max(Duration::from_millis(1));
        let Some(wire) = &mut self.wire else {
            self.wire = Some(self.subscribe()?);
            return Ok(vec![Told::anything()]);
        };
        loop {
            match wire.receive(until) {
                Ok(Message::NotificationResponse(body)) => {
                    return Ok(vec![body.message().map_or_else(|_| Told::anything(), decode)]);
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(Vec::new()),
                Err(_) => {
                    self.wire = None;
                    self.wire = Some(self.subscribe()?);
                    return Ok(vec![Told::anything()]);
                }
            }
        }
    }
}
