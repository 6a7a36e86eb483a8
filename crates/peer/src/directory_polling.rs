//! When the metadata engine is asked for the list of members.
//!
//! What must stay true: clients that lost all members at once do not ask at once, and those that
//! ask in vain ask less and less often.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_types::Rng;

/// Pause after a first question.
const FIRST: Duration = Duration::from_millis(500);
/// Time after which earlier questions are forgotten.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// The questions of one client.
#[derive(Debug)]
pub(crate) struct Inquiries(Mutex<State>);

#[derive(Debug)]
struct State {
    asked: Option<Instant>,
    /// Questions since the list was another one.
    vain: u32,
    rng: Rng,
    /// How much longer or shorter the next pause is than usual.
    percent: u32,
}

impl State {
    fn ask(&mut self, now: Instant) {
        self.asked = Some(now);
        self.percent = 75 + self.rng.below(51) as u32;
    }
}

impl Inquiries {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Mutex::new(State { asked: None, vain: 0, rng, percent: 100 }))
    }

    /// It is asked, or will be at once.
    pub(crate) fn ask(&self, now: Instant) {
        self.0.lock().ask(now);
    }

    /// How long ago it was asked.
    pub(crate) fn elapsed(&self, now: Instant) -> Option<Duration> {
        self.0.lock().asked.map(|asked| now.saturating_duration_since(asked))
    }

    /// Whether a client that got no answer from a member asks now. `most` is the longest pause. One
    /// that is told so has to ask.
    pub(crate) fn is_due(&self, now: Instant, most: Duration) -> bool {
        let mut state = self.0.lock();
        let elapsed = state.asked.map_or(FORGOTTEN, |asked| now.saturating_duration_since(asked));
        if elapsed >= FORGOTTEN {
            state.vain = 0;
        }
        let pause = FIRST.saturating_mul(1 << state.vain.min(8)).min(most) * state.percent / 100;
        let due = elapsed >= pause;
        if due {
            state.vain += 1;
            state.ask(now);
        }
        due
    }

    /// The list was another one.
    pub(crate) fn learned(&self) {
        self.0.lock().vain = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_in_vain_become_rare_and_those_of_many_clients_spread() {
        let begin = Instant::now();
        let most = Duration::from_secs(5);
        let clients: Vec<_> = (0..200).map(|seed| Inquiries::new(Rng::seeded(seed))).collect();
        let (mut asked, mut at_once) = (0, [0; 2]);
        for millis in (0..60_000).step_by(100) {
            let now = begin + Duration::from_millis(millis);
            let due = clients.iter().filter(|client| client.is_due(now, most)).count();
            asked += due;
            if millis > 0 {
                at_once[0] = at_once[0].max(due);
            }
        }
        assert!((200 * 13..200 * 17).contains(&asked), "{asked} questions in a minute");
        assert!(at_once[0] < 150, "{} at once", at_once[0]);
        let now = begin + Duration::from_secs(61);
        clients[0].ask(now);
        assert!(!clients[0].is_due(now + FIRST * 3, most));
        clients[0].learned();
        assert!(!clients[0].is_due(now + FIRST / 2, most) && clients[0].is_due(now + FIRST * 3 / 2, most));
        assert_eq!(clients[0].elapsed(now + FIRST * 2), Some(FIRST / 2));
    }
}
