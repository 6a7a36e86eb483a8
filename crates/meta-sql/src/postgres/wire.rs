//! A connection on which the messages of the protocol are read as they come.

use std::{io, time::Instant};

use postgres_protocol::message::backend::Message;
use sluice_net::{Deadline, Kind, Stream};

/// A connection to a server.
pub(super) struct Wire(pub(super) Stream);

impl Wire {
    /// Sends a request whole.
    pub(super) fn send(&mut self, request: &[u8], kind: Kind, until: Instant) -> io::Result<()> {
        self.0.send(request, kind, Deadline::At(until))
    }

    /// The next message.
    pub(super) fn receive(&mut self, until: Instant) -> io::Result<Message> {
        loop {
            if let Some(message) = Message::parse(&mut self.0.input)? {
                return Ok(message);
            }
            self.0.fill(Deadline::At(until))?;
        }
    }
}
