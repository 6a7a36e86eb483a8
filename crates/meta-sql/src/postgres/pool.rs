//! The connections of one client, and the requests on them.
//!
//! What must stay true: a commit is sent again only if the server cannot have received all of it.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use parking_lot::Mutex;
use sluice_meta::engine::EngineError;
use sluice_net::{Kind, Pool as Connections, describe};

use super::{
    conn::{Conn, Failure},
    flight::{Answer, Flight},
    handshake,
    options::Options,
    wire::Wire,
};

/// The pool of connections.
pub(super) struct Pool {
    pub(super) options: Options,
    connections: Connections<Conn>,
    /// Whether the server refuses the flush after commits.
    blunt: AtomicBool,
    /// What every connection joins, if all are to see one snapshot. Also the connection that
    /// exported it: its transaction stays open, and it is not used any more.
    moment: Option<(String, Mutex<Wire>)>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        let connections = Connections::new(options.limits.clone(), options.read_timeout);
        Self { options, connections, blunt: AtomicBool::new(false), moment: None }
    }

    /// Connections that see an exported snapshot.
    pub(super) fn at(mut options: Options, (moment, exporter): (String, Wire), most: usize) -> Self {
        let limits = &mut options.limits;
        limits.max_open = limits.max_open.min(most).max(1);
        Self { moment: Some((moment, Mutex::new(exporter))), ..Self::new(options) }
    }

    /// A new connection, which is not part of the pool.
    pub(super) fn connect(&self) -> Result<Wire, EngineError> {
        let mut wire = handshake::connect(&self.options).map_err(|error| self.options.unreached(&error))?;
        if let Some((moment, _)) = &self.moment {
            self.join(&mut wire, moment)?;
        }
        Ok(wire)
    }

    /// Begins a transaction that uses an exported snapshot.
    fn join(&self, wire: &mut Wire, moment: &str) -> Result<(), EngineError> {
        let text = format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;\
             SET LOCAL idle_in_transaction_session_timeout=0;SET TRANSACTION SNAPSHOT '{moment}'"
        );
        self.query(wire, &text, Kind::Read).map(drop).map_err(|error| match error {
            EngineError::Refused { reason, .. } => self.options.volume.refused(format!(
                "the moment that was to be read is gone ({reason}): the server was restarted, or ended the \
                 connection; begin again"
            )),
            error => error,
        })
    }

    /// Runs statements without parameters; the first column of what they answer.
    pub(super) fn query(
        &self,
        wire: &mut Wire,
        text: &str,
        kind: Kind,
    ) -> Result<BTreeSet<String>, EngineError> {
        match wire.query(text, kind, Instant::now() + self.options.read_timeout) {
            Ok(answered) => answered.map_err(|error| self.options.classify(&error)),
            Err(error) => Err(self.options.volume.unavailable(describe(&error))),
        }
    }

    /// One exchange on any connection. A stale connection is replaced, if the server cannot have
    /// received the complete flight, or the flight may run twice.
    fn exchange(&self, flight: &Flight<'_>, kind: Kind) -> Result<Vec<Answer>, Failure> {
        let connect = || Ok(Conn::new(self.connect()?, &self.options));
        let busy = |reason| self.options.volume.unavailable(reason);
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

    /// Runs a flight that may run twice.
    pub(super) fn ask(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failure> {
        self.exchange(flight, Kind::Read)
    }

    /// Commits a flight that must not run twice.
    pub(super) fn commit(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failure> {
        self.exchange(flight, Kind::Commit).map_err(|failure| match failure {
            Failure::NoAnswer(reason) => {
                self.connections.forget();
                Failure::Known(self.options.volume.indeterminate(reason))
            }
            Failure::NotFlushed(error) => {
                let reason = error.message.clone();
                if error.is_lack() {
                    tracing::warn!(%reason, "the server cannot flush its log on request; commits wait for it one by one");
                    self.blunt.store(true, Ordering::Relaxed);
                }
                Failure::Known(self.options.volume.indeterminate(reason))
            }
            failure => failure,
        })
    }

    /// Whether commits may leave it to a flush after them to be durable.
    pub(super) fn flushes(&self) -> bool {
        !self.blunt.load(Ordering::Relaxed)
    }
}
