//! Points in time as the volume stores them, and the clock they are read from.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use jiff::{Span, SpanRelativeTo, Timestamp, civil::DateTime, tz::TimeZone};

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

    /// This instant in UTC, in the words of `strftime`: `%Y-%m-%d`. Years beyond -9999 and 9999 are
    /// written as those.
    pub fn utc(self, format: &str) -> String {
        let first_or_last = if self.sec < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Timestamp::new(self.sec, self.nsec as i32).unwrap_or(first_or_last).strftime(format).to_string()
    }

    /// The instant that `text` names in UTC, in the words of `strftime`; `None` if it names none.
    pub fn from_utc(format: &str, text: &str) -> Option<Self> {
        let time = DateTime::strptime(format, text).ok()?.to_zoned(TimeZone::UTC).ok()?.timestamp();
        let nanos = i64::try_from(time.as_nanosecond()).ok()?;
        Some(Self::from_nanos(nanos))
    }

    /// The hour of the day in the machine's time zone, 0 to 23.
    pub fn local_hour(self) -> u8 {
        let instant = Timestamp::new(self.sec, self.nsec as i32).unwrap_or_default();
        instant.to_zoned(TimeZone::system()).hour().unsigned_abs()
    }

    /// Time passed since `earlier`, zero if that lies in the future.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos().saturating_sub(earlier.nanos()).max(0) as u64)
    }
}

/// Reads a duration such as `1h30m`, `100ms`, `1.5h` or `7d`; a bare number is seconds.
///
/// A day has 24 hours. `None` if the text is none, or less than nothing.
pub fn parse_duration(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let span: Span = text.parse().ok()?;
    span.to_duration(SpanRelativeTo::days_are_24_hours()).ok()?.try_into().ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc() {
        let time = Time { sec: 1_709_210_096, nsec: 7_000 };
        assert_eq!(time.utc("%Y-%m-%dT%H:%M:%S%.6fZ"), "2024-02-29T12:34:56.000007Z");
        assert_eq!(Time { sec: -1, nsec: 0 }.utc("%Y-%m-%d-%H"), "1969-12-31-23");
        assert_eq!(Time { sec: i64::MAX, nsec: 0 }.utc("%Y"), "9999");
        assert_eq!(Time::from_utc("%Y.%m.%d %H:%M:%S%.f", "2024.02.29 12:34:56.000007"), Some(time));
        assert_eq!(Time::from_utc("%Y-%m-%d-%H", "1970-01-02-03"), Some(Time { sec: 97_200, nsec: 0 }));
        assert_eq!(Time::from_utc("%Y.%m.%d %H:%M:%S%.f", "2024.02.30 12:34:56.000007"), None);
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        let millis = [
            ("30s", 30_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("7d", 604_800_000),
            ("1d12h", 129_600_000),
            ("2500us", 2),
            ("7", 7000),
            ("0.25", 250),
            ("0", 0),
        ];
        for (text, millis) in millis {
            assert_eq!(parse_duration(text).map(|time| time.as_millis()), Some(millis), "{text}");
        }
        for wrong in ["", "soon", "5x", "s", "-1s", "-1", "1e30h", ".", "1mo", "1y", "NaN", "inf"] {
            assert_eq!(parse_duration(wrong), None, "{wrong}");
        }
    }
}
