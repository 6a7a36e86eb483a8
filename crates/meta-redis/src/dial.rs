//! Connects to a server and authenticates: the part that all connections share.

use std::{
    io,
    sync::OnceLock,
    time::{Duration, Instant},
};

use redis::Value;
use sluice_meta::engine::{EngineError, Label};
use sluice_net::{Address, Deadline, Stream, Tls, describe, tls::Files};

use crate::{config::Config, error::Errors, keys::Keys, pipeline::Pipeline, wire::Wire};

/// Makes new connections.
pub(crate) struct Dialer {
    pub(crate) config: Config,
    pub(crate) errors: Errors,
    tls: Option<Tls>,
    /// Whether the servers are a cluster, if that is known.
    pub(crate) clustered: OnceLock<bool>,
}

impl Dialer {
    pub(crate) fn new(config: Config, clustered: Option<bool>) -> Result<Self, EngineError> {
        let errors = Errors { label: Label(config.label().into()) };
        let tls = config.tls.as_ref().map(Files::load);
        let tls = tls.transpose().map_err(|reason| errors.refused(reason))?;
        let clustered = clustered.map_or_else(OnceLock::new, OnceLock::from);
        Ok(Self { config, errors, tls, clustered })
    }

    /// A connection on which every answer has to come within `timeout`.
    pub(crate) fn dial(&self, address: &Address, timeout: Duration) -> io::Result<Wire> {
        let until = Instant::now() + timeout;
        let mut stream = Stream::connect(address, until)?;
        if let (Some(tls), Address::Tcp(host, _), Some(options)) = (&self.tls, address, &self.config.tls) {
            stream.encrypt(tls, options.server_name.as_deref().unwrap_or(host), until)?;
        }
        Ok(Wire::new(stream, Deadline::Idle(timeout)))
    }

    /// Sends commands to a server on a connection of their own.
    pub(crate) fn talk(
        &self,
        whom: &Address,
        pipeline: &Pipeline,
        timeout: Duration,
    ) -> Result<Vec<Value>, String> {
        let talk = |mut wire: Wire| wire.talk(&pipeline.render(false, None), pipeline.len());
        self.dial(whom, timeout).and_then(talk).map_err(|error| describe(&error))
    }

    /// Adds the commands that authenticate.
    pub(crate) fn authenticate(&self, pipeline: &mut Pipeline) {
        if let Some(password) = &self.config.password {
            let auth = pipeline.command("AUTH");
            auth.extend(self.config.user.as_deref().map(str::as_bytes));
            auth.push(password.as_bytes());
        }
    }

    /// Adds the command that selects the database.
    pub(crate) fn select(&self, pipeline: &mut Pipeline) {
        if self.config.db != 0 {
            pipeline.command("SELECT").push_number(u64::from(self.config.db));
        }
    }

    /// The prefix of all keys of a volume in a cluster. The part in braces alone decides the slot.
    pub(crate) fn prefix(&self) -> String {
        format!("{{{}}}", self.config.db)
    }

    /// A key that never exists, in the slot of the volume. While the slot moves, a script that
    /// declares this key is rejected before it runs, instead of failing half-way at a key that has
    /// moved.
    pub(crate) fn slot_key(&self) -> Vec<u8> {
        Keys::new(self.prefix().as_bytes(), self.config.db).missing_key().to_vec()
    }
}
