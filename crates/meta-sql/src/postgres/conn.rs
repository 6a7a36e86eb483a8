//! A connection: sends a flight, receives all its answers.
//!
//! What must stay true: a failed exchange says whether the server can have received the complete
//! flight, because its effect is unknown only if it was received completely. A connection on which
//! an exchange failed half-way is never used again.

use std::{
    io::{self, ErrorKind},
    time::Instant,
};

use bytes::BytesMut;
use postgres_protocol::message::backend::Message;
use rustc_hash::FxHashSet;
use sluice_meta::engine::EngineError;
use sluice_net::{Connection, Kind, describe};

use super::{
    error::ServerError,
    flight::{Answer, Flight, RawRow},
    options::Options,
    wire::Wire,
};

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server cannot have received the complete flight.
    NotSent(String),
    /// The flight was sent, the answer did not come.
    NoAnswer(String),
    /// It was committed, but the server could not flush it to the disk.
    NotFlushed(ServerError),
    /// The server refused the statement at that place; nothing was done.
    Server(usize, ServerError),
    /// The flight cannot be encoded in the protocol.
    Unfit(String),
    /// What it means is known.
    Known(EngineError),
}

impl Failure {
    /// What it means where the statement does not matter, and nothing was to be done.
    pub(super) fn plain(self, options: &Options) -> EngineError {
        match self {
            Self::Server(_, error) => options.classify(&error),
            Self::NotSent(reason) | Self::NoAnswer(reason) => options.volume.unavailable(reason),
            Self::NotFlushed(error) => options.volume.unavailable(error.message),
            Self::Unfit(reason) => options.volume.refused(reason),
            Self::Known(error) => error,
        }
    }
}

/// A connection.
pub(super) struct Conn {
    wire: Wire,
    /// Statements that the server knows; `None` if it is to know none.
    prepared: Option<FxHashSet<u32>>,
    output: BytesMut,
    /// Whether it may be used again.
    pub(super) sound: bool,
    /// Whether an exchange succeeded on it before.
    pub(super) used: bool,
    /// Marks of the last flight whose answers are not received yet: its caller does not wait for
    /// the notification.
    owed: usize,
}

impl Connection for Conn {
    fn is_sound(&self) -> bool {
        self.sound
    }

    fn is_stale(&self) -> bool {
        self.owed == 0 && self.wire.0.is_stale()
    }
}

impl Conn {
    pub(super) fn new(wire: Wire, options: &Options) -> Self {
        Self {
            wire,
            prepared: options.prepared.then(FxHashSet::default),
            output: BytesMut::new(),
            sound: true,
            used: false,
            owed: 0,
        }
    }

    /// Receives the remaining answers of the last flight. On a connection that was idle for a
    /// moment, they have arrived already.
    fn drain(&mut self, until: Instant) -> io::Result<()> {
        if self.owed == 0 {
            return Ok(());
        }
        while self.owed > 0 {
            if let Message::ReadyForQuery(_) = self.wire.receive(until)? {
                self.owed -= 1;
            }
        }
        if self.wire.0.is_stale() { Err(ErrorKind::ConnectionReset.into()) } else { Ok(()) }
    }

    /// Sends a flight and takes the answers to its statements.
    pub(super) fn exchange(
        &mut self,
        flight: &Flight<'_>,
        kind: Kind,
        options: &Options,
    ) -> Result<Vec<Answer>, Failure> {
        self.sound = false;
        let until = Instant::now() + options.read_timeout;
        self.drain(until).map_err(|error| Failure::NotSent(describe(&error)))?;
        self.output.clear();
        let (prepares, whole) = match flight.encode(self.prepared.as_ref(), &mut self.output) {
            Ok(encoded) => encoded,
            Err(reason) => {
                self.sound = true;
                return Err(Failure::Unfit(reason));
            }
        };
        self.wire.send(&self.output, kind, until).map_err(|error| {
            let gone = self.wire.0.sent() >= whole;
            if gone { Failure::NoAnswer(describe(&error)) } else { Failure::NotSent(describe(&error)) }
        })?;
        let answers = self.answers(flight, &prepares, until);
        self.used |= self.sound;
        if self.output.capacity() > 1 << 20 {
            self.output = BytesMut::new();
        }
        answers
    }

    /// Takes the answers to a flight that was sent. What the server refuses leaves the connection
    /// sound.
    fn answers(
        &mut self,
        flight: &Flight<'_>,
        prepares: &[u32],
        until: Instant,
    ) -> Result<Vec<Answer>, Failure> {
        let mut answers: Vec<Answer> = Vec::with_capacity(flight.len());
        let mut rows = Answer::new();
        let mut prepares = prepares.iter();
        let mut failed = None;
        self.owed = flight.marks();
        // The flush must also be acknowledged. The answers to the notification are not waited for.
        while self.owed > flight.notices_marks() {
            let first = self.owed == flight.marks();
            let message = self.wire.receive(until).map_err(|error| match &failed {
                // The server sends an error before it closes the connection.
                Some(Failure::Server(_, error)) => Failure::NoAnswer(error.message.clone()),
                _ => Failure::NoAnswer(describe(&error)),
            })?;
            match message {
                Message::ParseComplete => {
                    if let (Some(prepared), Some(id)) = (&mut self.prepared, prepares.next()) {
                        prepared.insert(*id);
                    }
                }
                Message::DataRow(body) if first => {
                    let row = RawRow::read(&body).map_err(|error| Failure::NoAnswer(describe(&error)))?;
                    rows.push(row);
                }
                Message::CommandComplete(_) | Message::EmptyQueryResponse if first => {
                    answers.push(std::mem::take(&mut rows));
                }
                Message::ErrorResponse(body) if first && failed.is_none() => {
                    failed = Some(Failure::Server(answers.len(), ServerError::read(&body)));
                }
                Message::ErrorResponse(body) if failed.is_none() => {
                    failed = Some(Failure::NotFlushed(ServerError::read(&body)));
                }
                Message::ReadyForQuery(_) => self.owed -= 1,
                _ => {}
            }
        }
        self.sound = !matches!(&failed, Some(Failure::Server(_, error)) if error.spoils_connection());
        match failed {
            Some(failure) => Err(failure),
            None if answers.len() == flight.len() => Ok(answers),
            None => Err(Failure::NoAnswer("the server left out an answer".into())),
        }
    }
}
