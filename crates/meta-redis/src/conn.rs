//! A blocking connection: sends a pipeline, receives all its answers.
//!
//! A failed exchange says whether the server can have received any of the request. The effect of
//! the request is unknown only if the server received a part of it, because a server runs each
//! complete command, even if the rest of the request is missing. A connection on which an exchange
//! failed is never used again.

use std::{io, iter::once, sync::Arc};

use redis::Value;
use sluice_net::{Address, Connection, describe};

use crate::{pipeline::Pipeline, wire::Wire};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether the server may have received some of the request.
    pub(crate) sent: bool,
    pub(crate) reason: String,
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) wire: Wire,
    /// The address of the server.
    pub(crate) address: Address,
    /// The server process; 0 if it is unknown.
    pub(crate) process: u64,
    /// The key that scripts declare in a cluster.
    pub(crate) slot_key: Option<Arc<[u8]>>,
    /// Whether an earlier exchange succeeded.
    pub(crate) used: bool,
    /// Whether it may be used again.
    pub(crate) sound: bool,
}

impl Connection for Conn {
    fn is_sound(&self) -> bool {
        self.sound
    }

    fn is_stale(&self) -> bool {
        self.wire.is_stale()
    }
}

impl Conn {
    /// Sends all commands at once and receives all answers. Scripts that the server does not know
    /// are sent again with their sources, because an unknown script has done nothing.
    pub(crate) fn exchange(&mut self, pipeline: &Pipeline) -> Result<Vec<Value>, Failure> {
        self.sound = false;
        let answers = self.once(pipeline, false)?;
        let unknown = |answer: &Value| matches!(answer, Value::ServerError(e) if e.code() == "NOSCRIPT");
        let answers = if answers.iter().any(unknown) { self.once(pipeline, true)? } else { answers };
        self.sound = true;
        Ok(answers)
    }

    /// Sends commands without scripts, whose answers [`Self::proceed`] receives.
    pub(crate) fn begin(&mut self, pipeline: &Pipeline) -> Result<(), Failure> {
        self.sound = false;
        self.wire.send(&pipeline.render(false, None)).map_err(|error| self.failure(&error))
    }

    /// Receives the answers to so many commands. `next` makes the next pipeline of the first value
    /// of the first answer. It is sent as soon as that value has come, and returned.
    pub(crate) fn proceed(
        &mut self,
        commands: usize,
        next: impl FnOnce(&Value) -> Option<Pipeline>,
    ) -> Result<(Vec<Value>, Option<Pipeline>), Failure> {
        let mut following = None;
        let first = self.wire.receive_early(|wire, value| {
            following = next(value);
            following.as_ref().map_or(Ok(()), |next| wire.send(&next.render(false, None)))
        });
        let rest = |first| once(Ok(first)).chain((1..commands).map(|_| self.wire.receive())).collect();
        let answers: Vec<Value> = first.and_then(rest).map_err(|error| self.failure(&error))?;
        self.used = true;
        self.sound = following.is_none();
        Ok((answers, following))
    }

    fn failure(&self, error: &io::Error) -> Failure {
        Failure { sent: self.wire.began(), reason: describe(error) }
    }

    fn once(&mut self, pipeline: &Pipeline, sources: bool) -> Result<Vec<Value>, Failure> {
        let request = pipeline.render(sources, self.slot_key.as_deref());
        let answers = self.wire.talk(&request, pipeline.len());
        let answers = answers.map_err(|error| self.failure(&error))?;
        self.used = true;
        Ok(answers)
    }
}
