//! A connection on which the messages of the protocol are read as they come.

use std::{collections::BTreeSet, io, time::Instant};

use bytes::BytesMut;
use fallible_iterator::FallibleIterator;
use postgres_protocol::message::{backend::Message, frontend};
use sluice_net::{Deadline, Kind, Stream};

use super::error::ServerError;

/// A connection to a server.
pub(super) struct Wire(pub(super) Stream);

impl Wire {
    /// Sends a request whole.
    pub(super) fn send(&mut self, request: &[u8], kind: Kind, until: Instant) -> io::Result<()> {
        self.0.send(request, kind, Deadline::At(until))
    }

    /// Runs statements without parameters: the first column of what they answer, or what the server
    /// has against them.
    pub(super) fn query(
        &mut self,
        text: &str,
        kind: Kind,
        until: Instant,
    ) -> io::Result<Result<BTreeSet<String>, ServerError>> {
        let mut request = BytesMut::new();
        frontend::query(text, &mut request)?;
        self.send(&request, kind, until)?;
        self.answered(until)
    }

    /// Receives what is answered until the server is ready for more, or ends the connection.
    pub(super) fn answered(&mut self, until: Instant) -> io::Result<Result<BTreeSet<String>, ServerError>> {
        let (mut found, mut failed) = (BTreeSet::new(), None);
        loop {
            match self.receive(until)? {
                Message::ReadyForQuery(_) => return Ok(failed.map_or(Ok(found), Err)),
                Message::DataRow(body) => {
                    if let Some(Some(range)) = body.ranges().next()? {
                        found.insert(String::from_utf8_lossy(&body.buffer()[range]).into_owned());
                    }
                }
                Message::ErrorResponse(body) => {
                    let error = ServerError::read(&body);
                    if error.fatal {
                        return Ok(Err(error));
                    }
                    failed = Some(error);
                }
                _ => {}
            }
        }
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
