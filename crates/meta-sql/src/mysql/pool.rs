//! The connections of one client.
//!
//! Between two round trips, the client has no lock and no transaction on the server. So a request
//! may use any connection. What must stay true: a commit is not sent on a connection that the
//! server may have closed.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use sluice_meta::engine::EngineError;
use sluice_net::{Limits, Pool as Connections};

use super::{
    connection::{Answers, Connection, Failure},
    options::Options,
};

/// After this long without use, the server, a proxy or a restart may have closed a connection. So
/// it is tested before a commit, whose outcome would be unknown otherwise.
const DOUBTFUL: Duration = Duration::from_secs(5);

/// How long a thread waits for the shared connection of a snapshot.
const TIMEOUT: Duration = Duration::from_mins(5);
/// Begins a transaction that sees one snapshot, however long it takes: MariaDB ends one without
/// work otherwise.
const BEGIN: &str = "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ;\
     SET autocommit=1/*M!100300 ,idle_transaction_timeout=0 */;\
     START TRANSACTION WITH CONSISTENT SNAPSHOT,READ ONLY";

/// The pool of connections.
pub(super) struct Pool {
    pub(super) options: Options,
    connections: Connections<Connection>,
    /// Whether the only connection there may be was made, if it is to see one snapshot.
    begun: Option<AtomicBool>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        let connections = Connections::new(options.limits.clone(), options.connect_timeout);
        Self { options, connections, begun: None }
    }

    /// One connection, which sees what there is when it begins.
    pub(super) fn at_a_moment(mut options: Options) -> Self {
        options.limits = Limits { max_idle_time: None, ..Limits::new(1, 1) };
        // Several threads share it.
        let connections = Connections::new(options.limits.clone(), TIMEOUT);
        Self { options, connections, begun: Some(AtomicBool::new(false)) }
    }

    fn connect(&self) -> Result<Connection, EngineError> {
        let Some(begun) = &self.begun else { return Connection::open(&self.options) };
        if begun.load(Ordering::Relaxed) {
            return Err(self.options.volume.refused(
                "the moment that was to be read is gone: the server was restarted, or ended the connection; \
                 begin again",
            ));
        }
        let mut connection = Connection::open(&self.options)?;
        connection.exchange(BEGIN).map_err(|failed| self.options.unanswered(failed))?;
        begun.store(true, Ordering::Relaxed);
        Ok(connection)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Connection) -> R) -> Result<R, EngineError> {
        self.connections.with(|| self.connect(), |reason| self.options.volume.unavailable(reason), work)
    }

    /// Runs statements that may run twice. A stale connection is replaced.
    pub(super) fn ask(&self, text: &str) -> Result<Answers, Failure> {
        loop {
            let asked = self.with(|connection| (connection.used.is_some(), connection.exchange(text)));
            match asked.map_err(Failure::Known)? {
                // What broke it may have broken the idle ones, too.
                (true, Err(Failure::Lost(_))) => self.connections.forget(),
                (_, answered) => return answered,
            }
        }
    }

    /// As [`Pool::ask`], where it does not matter which statement the server refuses.
    pub(super) fn answers(&self, text: &str) -> Result<Answers, EngineError> {
        self.ask(text).map_err(|failed| self.options.unanswered(failed))
    }

    /// Runs statements that must not run twice, on a tested connection.
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
