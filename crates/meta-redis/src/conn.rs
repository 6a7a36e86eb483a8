//! A blocking connection: a pipeline out, all its answers in.
//!
//! A failed exchange says whether the server can have seen any of the request: only then its effect
//! is in doubt, since a server runs the commands that it has whole, be it that others were to
//! follow. A connection on which an exchange failed is never used again.

use std::sync::Arc;

use redis::Value;
use sluice_net::{Address, Connection, describe};

use crate::{pipeline::Pipeline, wire::Wire};

/// Why there is no answer.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Whether the server may have seen some of the request.
    pub(crate) sent: bool,
    pub(crate) reason: String,
}

/// A connection.
pub(crate) struct Conn {
    pub(crate) wire: Wire,
    /// Where it leads.
    pub(crate) address: Address,
    /// Which process it leads to; 0 if that is not known.
    pub(crate) process: u64,
    /// The key that scripts declare in a cluster.
    pub(crate) slot_key: Option<Arc<[u8]>>,
    /// Whether an exchange succeeded on it before.
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
    /// Sends all commands in one piece and takes all answers. Scripts that the server does not know
    /// are sent again with their sources: an unknown script has done nothing.
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
