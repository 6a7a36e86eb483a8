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

    /// One exchange, on whichever connection there is. One that went stale is replaced, if the
    /// server cannot have seen the flight whole, or may see it twice.
    fn exchange(&self, flight: &Flight<'_>, kind: Kind) -> Result<Vec<Answer>, Failure> {
        let connect = || Ok(Conn::new(self.connect()?, &self.options));
        let busy = |reason| self.options.unavailable(reason);
        loop {
            let work = |conn: &mut Conn| (conn.used, conn.exchange(flight, kind, &self.options));
            match self.connections.with(connect, busy, work).map_err(Failure::Known)? {
                (true, Err(Failure::NotSent(_))) => {}
                (true, Err(Failure::NoAnswer(_))) if kind == Kind::Read => {}
                (_, answered) => return answered,
            }
            self.connections.forget();
        }
    }

    /// Asks what may be asked twice.
    pub(super) fn ask(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failure> {
        self.exchange(flight, Kind::Read)
    }

    /// Commits what must not be done twice.
    pub(super) fn commit(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failure> {
        self.exchange(flight, Kind::Commit).map_err(|failure| match failure {
            Failure::NoAnswer(reason) => {
                self.connections.forget();
                Failure::Known(self.options.indeterminate(reason))
            }
            Failure::NotFlushed(error) => {
                let reason = error.message.clone();
                if error.is_lack() {
                    tracing::warn!(%reason, "the server cannot flush its log on request; commits wait for it one by one");
                    self.blunt.store(true, Ordering::Relaxed);
                }
                Failure::Known(self.options.indeterminate(reason))
            }
            failure => failure,
        })
    }

    /// Whether commits may leave it to a flush behind them to be safe.
    pub(super) fn flushes(&self) -> bool {
        !self.blunt.load(Ordering::Relaxed)
    }
}
