//! Counts how often mount processes died, and decides what the guardian does next.
//!
//! What must stay true: a mount process that dies again and again is not restarted for ever. A
//! mount process that only waits for its database is not given up too early.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// So many deaths in [`WINDOW`] are the last.
const MOST: usize = 5;
const WINDOW: Duration = Duration::from_mins(1);
/// How long an engine may be away: as long as operations wait for it.
const TIMEOUT: Duration = Duration::from_mins(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// What to do after a death.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Start another at once.
    Start,
    /// Start another after so long.
    Wait(Duration),
    /// Start no other.
    GiveUp,
}

/// The deaths so far.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    recent: VecDeque<Instant>,
    /// Since when no engine was reached, and how long the next pause is.
    away: Option<(Instant, Duration)>,
}

impl Deaths {
    /// One died.
    pub(super) fn died(&mut self, now: Instant) -> Next {
        self.recent.push_back(now);
        while self.recent.front().is_some_and(|then| now.duration_since(*then) >= WINDOW) {
            self.recent.pop_front();
        }
        if self.recent.len() >= MOST { Next::GiveUp } else { Next::Start }
    }

    /// One could not begin, since it did not reach the engine.
    pub(super) fn not_reached(&mut self, now: Instant) -> Next {
        let (since, pause) = self.away.unwrap_or((now, Duration::from_millis(500)));
        self.away = Some((since, (pause * 2).min(LONGEST_PAUSE)));
        if now.duration_since(since) >= TIMEOUT { Next::GiveUp } else { Next::Wait(pause) }
    }

    /// One serves.
    pub(super) fn serves(&mut self) {
        self.away = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn five_deaths_in_a_minute_are_the_last() {
        let begin = Instant::now();
        let at = |seconds| begin + Duration::from_secs(seconds);
        let mut deaths = Deaths::default();
        for number in 0..20 {
            assert_eq!(deaths.died(at(number * 15)), Next::Start, "four a minute are borne");
        }
        for number in 0..3 {
            deaths.died(at(1000 + number));
            deaths.serves();
        }
        assert_eq!(deaths.died(at(1003)), Next::Start);
        assert_eq!(deaths.died(at(1059)), Next::GiveUp);
    }

    #[test]
    fn an_engine_is_waited_for() {
        let begin = Instant::now();
        let mut deaths = Deaths::default();
        let mut now = begin;
        let mut tries = 0;
        while let Next::Wait(pause) = deaths.not_reached(now) {
            now += pause;
            tries += 1;
        }
        assert!((30..50).contains(&tries) && now - begin >= TIMEOUT, "{tries} tries");
        deaths.serves();
        assert_eq!(deaths.not_reached(now), Next::Wait(Duration::from_millis(500)));
    }
}
