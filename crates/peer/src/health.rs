//! Whether a client sends requests to a member, or excludes it for a while.
//!
//! What must stay true: no read waits for a member that was excluded. A request in the background
//! must succeed first. Each new exclusion lasts longer.

use std::time::{Duration, Instant};

/// Slow or damaged answers in a row after which a member is excluded …
const BAD: u32 = 3;
/// … the slow ones only if it has not answered anything for this long: a member that has much to do
/// is no less busy if its clients go elsewhere and come back.
const SILENT: Duration = Duration::from_millis(500);
/// How long a member is excluded: the first time, doubling up to the last. After it was in use for
/// as long as the last, the first one applies again.
const PAUSE: std::ops::Range<Duration> = Duration::from_secs(1)..Duration::from_mins(1);

/// What is known of a member.
#[derive(Debug)]
pub(crate) struct Health {
    /// When it last began an answer, or was connected to.
    heard: Instant,
    /// Slow answers since the last good one.
    slow: u32,
    /// When the first of them was asked for.
    unanswered: Option<Instant>,
    /// Damaged answers since the last good one.
    damaged: u32,
    /// How often it was excluded recently.
    pauses: u32,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is asked, since then.
    Asked(Instant),
    /// It is excluded until then.
    Alone(Instant),
    /// A request in the background finds out whether it answers.
    Tried,
}

/// What to do with a member that one wants to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advice {
    Ask,
    /// Ask another member, and try this one in the background.
    Try,
    LeaveAlone,
}

impl Health {
    pub(crate) fn new(now: Instant) -> Self {
        let state = State::Asked(now);
        Self { heard: now, slow: 0, unanswered: None, damaged: 0, pauses: 0, state }
    }

    /// Whether it is excluded, or being tried.
    pub(crate) fn is_suspended(&self) -> bool {
        !matches!(self.state, State::Asked(_))
    }

    /// Whether to ask it. Whoever is told to try has to say how it went.
    pub(crate) fn advice(&mut self, now: Instant) -> Advice {
        match self.state {
            State::Asked(_) => Advice::Ask,
            State::Alone(until) if now >= until => {
                self.state = State::Tried;
                Advice::Try
            }
            State::Alone(_) | State::Tried => Advice::LeaveAlone,
        }
    }

    /// It was tried, and answered well or not.
    pub(crate) fn tried(&mut self, well: bool, now: Instant) {
        if well {
            (self.heard, self.state) = (now, State::Asked(now));
            // Those that were asked before ended meanwhile.
            (self.slow, self.unanswered) = (0, None);
        } else {
            self.leave_alone(now);
        }
    }

    /// Whether it began an answer, or was connected to, less than `time` ago.
    pub(crate) fn was_heard_within(&self, time: Duration, now: Instant) -> bool {
        now.duration_since(self.heard) < time
    }

    /// It began an answer, or was connected to.
    pub(crate) fn heard(&mut self, now: Instant) {
        self.heard = now;
    }

    /// It answered. Returns whether it must be excluded.
    #[must_use]
    pub(crate) fn answered(&mut self, damaged: bool) -> bool {
        (self.slow, self.unanswered) = (0, None);
        self.damaged = if damaged { self.damaged + 1 } else { 0 };
        self.damaged >= BAD
    }

    /// It did not answer in time what it was asked at `begun`. Returns whether it must be excluded.
    #[must_use]
    pub(crate) fn was_slow(&mut self, begun: Instant, now: Instant) -> bool {
        self.slow += 1;
        // A client that asks seldom has not heard of it for long, which says nothing.
        let since = *self.unanswered.get_or_insert(begun);
        self.slow >= BAD && now.duration_since(since.max(self.heard)) > SILENT
    }

    /// Excludes it for a while. Returns for how long; `None` if it is excluded already.
    pub(crate) fn leave_alone(&mut self, now: Instant) -> Option<Duration> {
        match self.state {
            State::Alone(_) => return None,
            State::Asked(since) if now.duration_since(since) >= PAUSE.end => self.pauses = 0,
            State::Asked(_) | State::Tried => {}
        }
        let pause = PAUSE.start.saturating_mul(1 << self.pauses.min(6)).min(PAUSE.end);
        self.pauses += 1;
        (self.slow, self.unanswered, self.damaged) = (0, None, 0);
        self.state = State::Alone(now + pause);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn one_that_was_left_alone_is_tried_by_one_before_others_ask_it() {
        let begin = Instant::now();
        let mut health = Health::new(begin);
        assert_eq!(health.advice(begin), Advice::Ask);
        assert_eq!(health.leave_alone(begin), Some(SECOND));
        assert_eq!(health.leave_alone(begin), None, "it is left alone already");
        assert_eq!(health.advice(begin + SECOND / 2), Advice::LeaveAlone);
        let later = begin + SECOND;
        assert_eq!((health.advice(later), health.advice(later)), (Advice::Try, Advice::LeaveAlone));
        assert!(health.is_suspended());
        health.tried(false, later);
        assert_eq!(health.advice(later + SECOND), Advice::LeaveAlone, "for twice as long");
        let later = later + 2 * SECOND;
        assert_eq!(health.advice(later), Advice::Try);
        health.tried(true, later);
        assert_eq!(health.advice(later), Advice::Ask);
    }

    #[test]
    fn one_that_fails_again_soon_is_left_alone_for_longer() {
        let mut now = Instant::now();
        let mut health = Health::new(now);
        for pause in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(health.leave_alone(now), Some(SECOND * pause));
            now += SECOND * pause;
            assert_eq!(health.advice(now), Advice::Try);
            health.tried(true, now);
            assert!(!health.answered(false));
            now += SECOND * 59;
        }
        now += SECOND;
        assert_eq!(health.leave_alone(now), Some(SECOND), "it was well for long");
    }

    #[test]
    fn slow_answers_count_while_nobody_hears_of_it() {
        let begin = Instant::now();
        let mut health = Health::new(begin);
        let late = begin + SECOND;
        assert!(!health.was_slow(begin, late) && !health.was_slow(begin, late));
        assert!(health.was_slow(begin, late));
        health.heard(late);
        assert!(!health.was_slow(begin, late + SILENT / 2), "it answers others");
        assert!(!health.answered(false) && !health.was_slow(late, late + SECOND));
        for damaged in 1..=BAD {
            assert_eq!(health.answered(true), damaged == BAD);
        }
    }
}
