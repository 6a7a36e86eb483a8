//! The connections of one client.
//!
//! What must stay true: there are never more connections than the URL allows, no caller waits for
//! one for ever, and a connection that failed or that the server has closed is never used again.

use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::url::{duration, number};

/// A connection that a pool keeps.
pub trait Connection {
    /// Whether it may be used again: no exchange on it failed half-way.
    fn is_sound(&self) -> bool;

    /// Whether, since its last use, the server closed it or sent something unexpected.
    fn is_stale(&self) -> bool;
}

/// Limits of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once.
    pub max_open: usize,
    /// The limit that 0 stands for in `max_open`.
    pub unlimited: usize,
    /// Most idle connections that are kept.
    pub max_idle: usize,
    /// How long an idle connection is kept; `None` is for ever.
    pub max_idle_time: Option<Duration>,
    /// How long any connection is used; `None` is for ever.
    pub max_life_time: Option<Duration>,
}

impl Limits {
    /// Up to `max_open` connections. Idle ones are kept for a minute. 0 in a URL means `unlimited`.
    pub const fn new(max_open: usize, unlimited: usize) -> Self {
        let max_idle_time = Some(Duration::from_mins(1));
        Self { max_open, unlimited, max_idle: usize::MAX, max_idle_time, max_life_time: None }
    }

    /// Applies an option of a URL. Returns whether it is an option of the pool.
    ///
    /// # Errors
    /// A message, if its value cannot be read.
    pub fn set(&mut self, name: &str, value: &str) -> Result<bool, String> {
        let time = || duration(name, value).map(|time| Some(time).filter(|time| !time.is_zero()));
        match &*name.replace('-', "_") {
            "max_open_conns" => {
                self.max_open = Some(number(name, value)?).filter(|most| *most > 0).unwrap_or(self.unlimited);
            }
            "max_idle_conns" => self.max_idle = number(name, value)?,
            "max_idle_time" => self.max_idle_time = time()?,
            "max_life_time" => self.max_life_time = time()?,
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// A pool of connections.
pub struct Pool<C> {
    limits: Limits,
    /// How long to wait for one while all are in use.
    timeout: Duration,
    state: Mutex<State<C>>,
    returned: Condvar,
}

struct State<C> {
    /// The idle connections; the one used last is at the end.
    idle: Vec<Kept<C>>,
    lent: usize,
    /// How often [`Pool::forget`] was called.
    forgotten: u64,
}

/// A connection and its age.
struct Kept<C> {
    connection: C,
    born: Instant,
    idle: Instant,
}

/// The right to use a connection. When it is dropped, the connection goes back to the pool.
struct Slot<'p, C> {
    pool: &'p Pool<C>,
    forgotten: u64,
    back: Option<Kept<C>>,
}

impl<C: Connection> Pool<C> {
    /// An empty pool whose callers wait up to `timeout` for a connection.
    pub fn new(limits: Limits, timeout: Duration) -> Self {
        let state = State { idle: Vec::new(), lent: 0, forgotten: 0 };
        Self { limits, timeout, state: Mutex::new(state), returned: Condvar::new() }
    }

    /// Calls `work` with a connection: an idle one, a new one of `connect`, or the next that is
    /// returned.
    ///
    /// # Errors
    /// Those of `connect`; `busy` makes the error if all connections are in use for too long.
    pub fn with<R, E>(
        &self,
        connect: impl FnOnce() -> Result<C, E>,
        busy: impl FnOnce(String) -> E,
        work: impl FnOnce(&mut C) -> R,
    ) -> Result<R, E> {
        let (mut slot, found) = self.slot().ok_or_else(|| {
            busy(format!("all {} connections are busy; raise max_open_conns", self.limits.max_open))
        })?;
        let mut kept = if let Some(kept) = found {
            kept
        } else {
            let (connection, now) = (connect()?, Instant::now());
            Kept { connection, born: now, idle: now }
        };
        let result = work(&mut kept.connection);
        if kept.connection.is_sound() {
            kept.idle = Instant::now();
            slot.back = Some(kept);
        }
        Ok(result)
    }

    /// Waits for a slot, and takes an idle connection if there is any.
    fn slot(&self) -> Option<(Slot<'_, C>, Option<Kept<C>>)> {
        let until = Instant::now() + self.timeout;
        let mut state = self.state.lock();
        loop {
            let (dropped, found) = self.choose(&mut state);
            if found.is_some() || state.lent < self.limits.max_open {
                state.lent += 1;
                let slot = Slot { pool: self, forgotten: state.forgotten, back: None };
                drop(state);
                drop(dropped);
                return Some((slot, found));
            }
            if self.returned.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }

    /// The idle connection used last, if it is still valid, and those that are not.
    fn choose(&self, state: &mut State<C>) -> (Vec<Kept<C>>, Option<Kept<C>>) {
        let now = Instant::now();
        let aged = |since: Instant, limit: Option<_>| limit.is_some_and(|limit| now - since > limit);
        let old = |kept: &mut Kept<C>| {
            aged(kept.idle, self.limits.max_idle_time) || aged(kept.born, self.limits.max_life_time)
        };
        let mut dropped: Vec<_> = state.idle.extract_if(.., old).collect();
        while let Some(kept) = state.idle.pop() {
            if !kept.connection.is_stale() {
                return (dropped, Some(kept));
            }
            dropped.push(kept);
        }
        (dropped, None)
    }

    /// Drops all idle connections, and those in use when they come back: what broke one may have
    /// broken the others.
    pub fn forget(&self) {
        let mut state = self.state.lock();
        state.forgotten += 1;
        let idle = std::mem::take(&mut state.idle);
        drop(state);
        drop(idle);
    }
}

impl<C> Drop for Slot<'_, C> {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.lent -= 1;
        if state.idle.len() < self.pool.limits.max_idle && state.forgotten == self.forgotten {
            state.idle.extend(self.back.take());
        }
        drop(state);
        self.pool.returned.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    struct Fake {
        number: u32,
        sound: bool,
        stale: bool,
    }

    impl Connection for Fake {
        fn is_sound(&self) -> bool {
            self.sound
        }

        fn is_stale(&self) -> bool {
            self.stale
        }
    }

    /// A pool and a counter of the connections that were made.
    fn pool(limits: Limits) -> (Pool<Fake>, Cell<u32>) {
        (Pool::new(limits, Duration::from_millis(20)), Cell::new(0))
    }

    fn with<R>(
        (pool, made): &(Pool<Fake>, Cell<u32>),
        work: impl FnOnce(&mut Fake) -> R,
    ) -> Result<R, String> {
        let connect = || {
            made.set(made.get() + 1);
            Ok(Fake { number: made.get(), sound: true, stale: false })
        };
        pool.with(connect, |reason| reason, work)
    }

    #[test]
    fn a_connection_is_used_again_while_it_is_of_use() {
        let pool = pool(Limits::new(2, 2));
        assert_eq!(with(&pool, |fake| fake.number), Ok(1));
        assert_eq!(with(&pool, |fake| std::mem::replace(&mut fake.stale, true)), Ok(false));
        assert_eq!(with(&pool, |fake| fake.number), Ok(2), "the server closed it");
        assert_eq!(with(&pool, |fake| std::mem::replace(&mut fake.sound, false)), Ok(true));
        assert_eq!(with(&pool, |fake| fake.number), Ok(3), "an exchange failed on it");
        let forget = |fake: &mut Fake| {
            pool.0.forget();
            fake.number
        };
        assert_eq!(with(&pool, forget), Ok(3));
        assert_eq!(with(&pool, |fake| fake.number), Ok(4), "it was forgotten while it was lent");
    }

    #[test]
    fn there_are_never_more_than_allowed_and_a_failure_frees_its_place() {
        let pool = pool(Limits { max_open: 1, ..Limits::new(1, 1) });
        let inner = with(&pool, |_| with(&pool, |_| ())).expect("one");
        assert!(inner.is_err_and(|reason| reason.contains("max_open_conns")));
        let failed: Result<(), _> = pool.0.with(|| Err("refused".to_owned()), |reason| reason, |_| ());
        pool.0.forget();
        let refused: Result<(), _> = pool.0.with(|| Err("refused".to_owned()), |reason| reason, |_| ());
        assert_eq!((failed, refused), (Ok(()), Err("refused".into())));
        assert_eq!(with(&pool, |fake| fake.number), Ok(2));
    }

    #[test]
    fn old_and_surplus_connections_are_dropped() {
        let aged = pool(Limits { max_life_time: Some(Duration::ZERO), ..Limits::new(2, 2) });
        let spare = pool(Limits { max_idle: 0, ..Limits::new(2, 2) });
        for pool in [aged, spare] {
            assert_eq!(with(&pool, |fake| fake.number), Ok(1));
            assert_eq!(with(&pool, |fake| fake.number), Ok(2));
        }
    }

    #[test]
    fn limits_are_set_by_their_names() {
        let mut limits = Limits::new(8, 64);
        for (name, value) in [("max-open-conns", "0"), ("max_idle_conns", "2"), ("max_life_time", "1h")] {
            assert_eq!(limits.set(name, value), Ok(true));
        }
        assert_eq!((limits.max_open, limits.max_idle), (64, 2));
        assert_eq!(limits.max_life_time, Some(Duration::from_hours(1)));
        assert_eq!(limits.set("max_idle_time", "0"), Ok(true));
        assert_eq!(limits.max_idle_time, None);
        assert_eq!(limits.set("other", "1"), Ok(false));
        assert!(limits.set("max_open_conns", "many").is_err());
    }
}
