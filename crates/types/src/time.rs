//! Points in time as the volume stores them, and the clock they are read from.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Seconds and nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Whole seconds, negative before 1970.
    pub sec: i64,
    /// 0 to 999,999,999, on top.
    pub nsec: u32,
}

impl Time {
    /// The instant `nanos` nanoseconds after the epoch.
    pub const fn from_nanos(nanos: i64) -> Self {
        Self { sec: nanos.div_euclid(1_000_000_000), nsec: nanos.rem_euclid(1_000_000_000) as u32 }
    }

    /// Nanoseconds since the epoch; saturates in the year 2262.
    pub const fn nanos(self) -> i64 {
        self.sec.saturating_mul(1_000_000_000).saturating_add(self.nsec as i64)
    }

    /// One nanosecond later: the smallest change another client can see.
    #[must_use]
    pub const fn next(self) -> Self {
        if self.nsec == 999_999_999 {
            Self { sec: self.sec + 1, nsec: 0 }
        } else {
            Self { sec: self.sec, nsec: self.nsec + 1 }
        }
    }

    /// Time passed since `earlier`, zero if that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()).max(0) as u64)
    }
}

/// Where the wall clock is read. Nothing else in Sluice may ask the machine for the time of day.
pub trait Clock: Send + Sync + 'static {
    /// The current time of day.
    fn now(&self) -> Time;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one place")]
    fn now(&self) -> Time {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Time { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
    }
}

/// A clock that moves only when told to; each reading is one nanosecond after the one before.
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicU64>);

impl ManualClock {
    /// A clock that stands at `start`.
    pub fn new(start: Time) -> Self {
        Self(Arc::new(AtomicU64::new(start.nanos() as u64)))
    }

    /// Moves the clock on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(by.as_nanos() as u64, Ordering::Relaxed);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Time {
        Time::from_nanos(self.0.fetch_add(1, Ordering::Relaxed) as i64)
    }
}
