//! A blocking connection: sends a pipeline, receives all its answers.
//!
//! A failed exchange says whether the server can have received any of the request. The effect of
//! the request is unknown only if the server received a part of it, because a server runs each
//! complete command, even if the rest of the request is missing. A connection on which an exchange
//! failed is never used again.

use std::sync::Arc;

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

    fn once(&mut self, pipeline: &Pipeline, sources: bool) -> Result<Vec<Value>, Failure> {
        let request = pipeline.render(sources, self.slot_key.as_deref());
        let answers = self.wire.talk(&request, pipeline.len());
        let answers =
            answers.map_err(|error| Failure { sent: self.wire.began(), reason: describe(&error) })?;
        self.used = true;
        Ok(answers)
    }
}
