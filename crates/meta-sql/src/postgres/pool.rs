//! The connections of one client.
//!
//! What must stay true: there are never more than the URL allows, nobody waits for one for ever,
//! and one that failed or that the server has closed is not handed out.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};

use parking_lot::{Condvar, Mutex};
use sluice_meta::engine::EngineError;

use super::{
    conn::{Conn, Failure},
    flight::{Answer, Flight},
    hello,
    options::Options,
    wire::{Kind, Wire},
};

/// Connections, idle or lent.
pub(super) struct Pool {
    pub(super) options: Options,
    state: Mutex<State>,
    returned: Condvar,
    /// Whether the server cannot flush what was committed before.
    blunt: AtomicBool,
}

#[derive(Default)]
struct State {
    /// The one used last at the end.
    idle: Vec<Conn>,
    lent: usize,
}

/// A connection that goes back to the pool.
struct Lent<'p> {
    pool: &'p Pool,
    conn: Option<Conn>,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        Self { options, state: Mutex::default(), returned: Condvar::new(), blunt: AtomicBool::new(false) }
    }

    /// A new connection, not one of the pool's.
    pub(super) fn connect(&self) -> Result<Wire, EngineError> {
        hello::connect(&self.options).map_err(|error| self.options.unreached(&error))
    }

    fn take(&self) -> Result<Lent<'_>, EngineError> {
        let until = Instant::now() + self.options.read_timeout;
        let mut state = self.state.lock();
        loop {
            let (dropped, found) = self.choose(&mut state);
            if found.is_some() || state.lent < self.options.max_open {
                state.lent += 1;
                drop(state);
                drop(dropped);
                let mut lent = Lent { pool: self, conn: found };
                if lent.conn.is_none() {
                    lent.conn = Some(Conn::new(self.connect()?, &self.options));
                }
                return Ok(lent);
            }
            if self.returned.wait_until(&mut state, until).timed_out() {
                return Err(self.options.unavailable(format!(
                    "all {} connections are busy; raise max_open_conns",
                    self.options.max_open
                )));
            }
        }
    }

    /// The idle connection used last, if it is still of use, and those that have become too old.
    fn choose(&self, state: &mut State) -> (Vec<Conn>, Option<Conn>) {
        let now = Instant::now();
        let aged = |since: Instant, limit: Option<_>| limit.is_some_and(|limit| now - since > limit);
        let old = |conn: &mut Conn| {
            aged(conn.idle, self.options.max_idle_time) || aged(conn.born, self.options.max_life_time)
        };
        let mut dropped: Vec<Conn> = state.idle.extract_if(.., old).collect();
        while let Some(conn) = state.idle.pop() {
            if !conn.is_stale() {
                return (dropped, Some(conn));
            }
            dropped.push(conn);
        }
        (dropped, None)
    }

    /// Asks what may be asked twice: a connection that went stale is replaced.
    pub(super) fn ask(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failed> {
        loop {
            let mut lent = self.take().map_err(Failed::Engine)?;
            let Some(conn) = &mut lent.conn else { continue };
            let used = conn.used;
            match conn.exchange(flight, Kind::Look, &self.options) {
                Err(Failure::NotSent(_) | Failure::NoAnswer(_)) if used => self.forget(),
                Err(Failure::NotSent(reason) | Failure::NoAnswer(reason)) => {
                    return Err(Failed::Engine(self.options.unavailable(reason)));
                }
                answered => return answered.map_err(|failure| self.failed(failure)),
            }
        }
    }

    /// Commits what must not be done twice.
    pub(super) fn commit(&self, flight: &Flight<'_>) -> Result<Vec<Answer>, Failed> {
        loop {
            let mut lent = self.take().map_err(Failed::Engine)?;
            let Some(conn) = &mut lent.conn else { continue };
            let used = conn.used;
            match conn.exchange(flight, Kind::Change, &self.options) {
                Err(Failure::NotSent(_)) if used => self.forget(),
                Err(Failure::NoAnswer(reason)) => {
                    self.forget();
                    return Err(Failed::Engine(self.options.indeterminate(reason)));
                }
                Err(Failure::NotFlushed(error)) => {
                    let reason = error.message.clone();
                    if error.is_lack() {
                        tracing::warn!(%reason, "the server cannot flush its log on request; commits wait for it one by one");
                        self.blunt.store(true, Ordering::Relaxed);
                    }
                    return Err(Failed::Engine(self.options.indeterminate(reason)));
                }
                answered => return answered.map_err(|failure| self.failed(failure)),
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

    /// Whatever closed one connection closed the other idle ones too.
    fn forget(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
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

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.lent -= 1;
        let mut closing = None;
        if let Some(mut conn) = self.conn.take() {
            if conn.sound && state.idle.len() < self.pool.options.max_idle {
                conn.idle = Instant::now();
                state.idle.push(conn);
            } else {
                closing = Some(conn);
            }
        }
        drop(state);
        self.pool.returned.notify_one();
        drop(closing);
    }
}
