//! The connections of one client, and what is said on them.
//!
//! What must stay true: a commit is sent again only if the server cannot have seen it whole.

use std::sync::atomic::{AtomicBool, Ordering};

use sluice_meta::engine::EngineError;
use sluice_net::{Kind, Pool as Connections};

use super::{
    conn::{Conn, Failure},
    flight::{Answer, Flight},
    handshake,
    options::Options,
    wire::Wire,
};

/// Connections, idle or lent.
pub(super) struct Pool {
    pub(super) options: Options,
    connections: Connections<Conn>,
    /// Whether the server cannot flush what was committed before.
    blunt: AtomicBool,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        let connections = Connections::new(options.limits.clone(), options.read_timeout);
        Self { options, connections, blunt: AtomicBool::new(false) }
    }

    /// A new connection, not one of the pool's.
    pub(super) fn connect(&self) -> Result<Wire, EngineError> {
        handshake::connect(&self.options).map_err(|error| self.options.unreached(&error))
    }

    /// One exchange, on whichever connection there is, and whether that had served before.
    fn exchange(
        &self,
        flight: &Flight<'_>,
        kind: Kind,
    ) -> Result<(Result<Vec<Answer>, Failure>, bool), Failed> {
        let connect = || Ok(Conn::new(self.connect()?, &self.options));
        let work = |conn: &mut Conn| {
            let used = conn.used;
            (conn.exchange(flight, kind, &self.options), used)
        };
        self.connections
            .with(connect, |reason| self.options.unavailable(reason), work)
            .map_err(Failed::Engine)
    }

    /// Asks what may be asked twice: a connection that went stale is replaced.
    pub(super) fn ask(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failed> {
        loop {
            match self.exchange(flight, Kind::Read)? {
                (Err(Failure::NotSent(_) | Failure::NoAnswer(_)), true) => self.connections.forget(),
                (answered, _) => return answered.map_err(|failure| self.failed(failure)),
            }
        }
    }

    /// Commits what must not be done twice.
    pub(super) fn commit(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failed> {
        loop {
            match self.exchange(flight, Kind::Commit)? {
                (Err(Failure::NotSent(_)), true) => self.connections.forget(),
                (Err(Failure::NoAnswer(reason)), _) => {
                    self.connections.forget();
                    return Err(Failed::Engine(self.options.indeterminate(reason)));
                }
                (Err(Failure::NotFlushed(error)), _) => {
                    let reason = error.message.clone();
                    if error.is_lack() {
                        tracing::warn!(%reason, "the server cannot flush its log on request; commits wait for it one by one");
                        self.blunt.store(true, Ordering::Relaxed);
                    }
                    return Err(Failed::Engine(self.options.indeterminate(reason)));
                }
                (answered, _) => return answered.map_err(|failure| self.failed(failure)),
            }
        }
    }

    /// Whether commits may leave it to a flush behind them to be safe.
    pub(super) fn flushes(&self) -> bool {
        !self.blunt.load(Ordering::Relaxed)
    }

    fn failed(&self, failure: Failure) -> Failed {
        match failure {
            Failure::Server(at, error) => Failed::Statement(at, error),
            Failure::NotSent(reason) | Failure::NoAnswer(reason) => {
                Failed::Engine(self.options.unavailable(reason))
            }
            Failure::NotFlushed(error) => Failed::Engine(self.options.unavailable(error.message)),
            Failure::Unfit(reason) => Failed::Engine(self.options.refused(reason)),
        }
    }
}

/// Why a flight failed.
pub(super) enum Failed {
    /// The statement at that place.
    Statement(usize, super::error::ServerError),
    /// As a whole.
    Engine(EngineError),
}

impl Failed {
    /// What it means where the statement does not matter.
    pub(super) fn plain(self, options: &Options) -> EngineError {
        match self {
            Self::Statement(_, error) => options.judge(&error),
            Self::Engine(error) => error,
        }
    }
}
