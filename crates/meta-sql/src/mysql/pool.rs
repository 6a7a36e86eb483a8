//! The connections of one client.
//!
//! Nothing is held on the server between two trips, so any connection serves any of them. What must
//! stay true: a commit is not sent on a connection that the server may have closed.

use std::time::Duration;

use sluice_meta::engine::EngineError;
use sluice_net::Pool as Connections;

use super::{
    connection::{Answers, Connection, Failure},
    options::Options,
};

/// After so long without use a connection may have been closed by the server, by whatever lies
/// between, or by a restart: before a commit, whose outcome would be in doubt, it is tried.
const DOUBTFUL: Duration = Duration::from_secs(5);

/// Connections, idle or lent.
pub(super) struct Pool {
    pub(super) options: Options,
    connections: Connections<Connection>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        let connections = Connections::new(options.limits.clone(), options.connect_timeout);
        Self { options, connections }
    }

    fn with<R>(&self, work: impl FnOnce(&mut Connection) -> R) -> Result<R, EngineError> {
        let connect = || Connection::open(&self.options);
        self.connections.with(connect, |reason| self.options.unavailable(reason), work)
    }

    /// Asks what may be asked twice: a connection that went stale is replaced.
    pub(super) fn ask(&self, text: &str) -> Result<Answers, Failure> {
        loop {
            let asked = self.with(|connection| (connection.used.is_some(), connection.exchange(text)));
            match asked.map_err(Failure::Known)? {
                // Whatever broke it broke the idle ones too.
                (true, Err(Failure::Lost(_))) => self.connections.forget(),
                (_, answered) => return answered,
            }
        }
    }

    /// Does what must not be done twice, on a connection that very likely works.
    pub(super) fn commit(
        &self,
        commit: impl Fn(&mut Connection) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        loop {
            let done = self.with(|connection| {
                let doubtful = connection.used.is_some_and(|used| used.elapsed() > DOUBTFUL);
                (!doubtful || connection.exchange("DO 1").is_ok()).then(|| commit(connection))
            })?;
            match done {
                Some(done) => return done,
                None => self.connections.forget(),
            }
        }
    }
}
