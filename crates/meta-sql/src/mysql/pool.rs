//! The connections of one client.
//!
//! Nothing is held on the server between two trips, so any connection serves any of them. What must
//! stay true: never more connections than the URL allows, and who waits for one waits within a
//! deadline.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use sluice_meta::engine::EngineError;

use super::{
    commit::Style,
    connection::{Answers, Connection, Failure},
    options::Options,
};

/// After so long without use a connection may have been closed by the server, by whatever lies
/// between, or by a restart: before a commit, whose outcome would be in doubt, it is tried.
const DOUBTFUL: Duration = Duration::from_secs(5);

/// Connections, idle and in use.
pub(super) struct Pool {
    pub(super) options: Options,
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Default)]
struct State {
    /// Last used last.
    idle: Vec<Connection>,
    /// All that exist or are being made.
    open: usize,
    /// Counted up when those that are idle are not to be trusted.
    era: u64,
}

/// A connection in use.
pub(super) struct Lease<'p> {
    pool: &'p Pool,
    connection: Option<Connection>,
    /// Whether it served before.
    used: bool,
    era: u64,
}

impl Pool {
    pub(super) fn new(options: Options) -> Self {
        Self { options, state: Mutex::default(), freed: Condvar::new() }
    }

    /// An idle connection, or a new one, or the next that gets free.
    pub(super) fn take(&self) -> Result<Lease<'_>, EngineError> {
        let until = Instant::now() + self.options.connect_timeout;
        let mut state = self.state.lock();
        loop {
            let stale = self.expired(&mut state);
            if let Some(connection) = state.idle.pop() {
                let era = state.era;
                drop(state);
                drop(stale);
                return Ok(Lease { pool: self, connection: Some(connection), used: true, era });
            }
            if state.open < self.options.max_open {
                state.open += 1;
                let era = state.era;
                drop(state);
                let mut lease = Lease { pool: self, connection: None, used: false, era };
                lease.connection = Some(Connection::open(&self.options)?);
                return Ok(lease);
            }
            if self.freed.wait_until(&mut state, until).timed_out() {
                let most = self.options.max_open;
                return Err(self.options.unavailable(format!(
                    "all {most} connections are in use; raise max_open_conns in the URL"
                )));
            }
        }
    }

    /// Takes out idle connections that nobody has needed for long.
    fn expired(&self, state: &mut State) -> Vec<Connection> {
        let aged = |connection: &Connection| {
            connection.used.elapsed() > self.options.idle_time
                || self.options.life_time.is_some_and(|life| connection.made.elapsed() > life)
        };
        let (stale, fresh) = std::mem::take(&mut state.idle).into_iter().partition(aged);
        state.idle = fresh;
        let stale: Vec<Connection> = stale;
        state.open -= stale.len();
        stale
    }

    /// Asks what may be asked twice. A connection that went stale is replaced once.
    pub(super) fn ask(&self, text: &str) -> Result<Answers, Failed> {
        let mut lease = self.take()?;
        match lease.exchange(text) {
            Err(Failure::Lost(_)) if lease.used => {
                drop(lease);
                Ok(self.take_new()?.exchange(text)?)
            }
            answered => Ok(answered?),
        }
    }

    /// A connection for a commit: one that very likely works.
    pub(super) fn take_sound(&self) -> Result<Lease<'_>, EngineError> {
        let mut lease = self.take()?;
        let doubtful = lease.used && lease.connection.as_ref().is_some_and(|c| c.used.elapsed() > DOUBTFUL);
        if doubtful && lease.exchange("DO 1").is_err() {
            drop(lease);
            return self.take_new();
        }
        Ok(lease)
    }

    /// A new connection: whatever broke one broke the idle ones too.
    fn take_new(&self) -> Result<Lease<'_>, EngineError> {
        let dropped = self.distrust();
        drop(dropped);
        self.take()
    }

    fn distrust(&self) -> Vec<Connection> {
        let mut state = self.state.lock();
        let idle = std::mem::take(&mut state.idle);
        state.open -= idle.len();
        state.era += 1;
        idle
    }
}

/// Why a question has no answer.
pub(super) enum Failed {
    /// There was no connection.
    Unasked(EngineError),
    /// It failed on its connection.
    Asked(Failure),
}

impl From<EngineError> for Failed {
    fn from(error: EngineError) -> Self {
        Self::Unasked(error)
    }
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Self {
        Self::Asked(failure)
    }
}

impl Options {
    /// What a failure to read means.
    pub(super) fn unanswered(&self, failed: Failed) -> EngineError {
        match failed {
            Failed::Unasked(error) => error,
            Failed::Asked(failure) => self.failed(&failure),
        }
    }
}

impl Lease<'_> {
    pub(super) fn exchange(&mut self, text: impl Into<String>) -> Result<Answers, Failure> {
        match &mut self.connection {
            Some(connection) => connection.exchange(text.into()),
            None => Err(Failure::Lost("there is no connection".into())),
        }
    }

    /// How the server takes a transaction.
    pub(super) fn style(&self) -> Style {
        self.connection.as_ref().map_or(Style::Single, |connection| connection.style)
    }

    /// Bytes of the largest request.
    pub(super) fn max_packet(&self) -> usize {
        self.connection.as_ref().map_or(1 << 20, |connection| connection.max_packet)
    }
}

impl Drop for Lease<'_> {
    fn drop(&mut self) {
        let mut connection = self.connection.take();
        let mut state = self.pool.state.lock();
        let wanted = state.idle.len() < self.pool.options.max_idle && state.era == self.era;
        match connection.take_if(|connection| wanted && connection.is_open()) {
            Some(connection) => state.idle.push(connection),
            None => state.open -= 1,
        }
        drop(state);
        self.pool.freed.notify_one();
    }
}
