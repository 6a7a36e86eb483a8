//! When a client reads the list of members from the metadata engine.
//!
//! What must stay true: if many clients lose all members at the same moment, they do not query the
//! engine at the same moment. A client whose queries bring no new list waits longer before each
//! further query.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use sluice_types::Rng;

/// Pause after a first query.
const FIRST: Duration = Duration::from_millis(500);
/// Time after which earlier queries do not count any more.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// The queries of one client.
#[derive(Debug)]
pub(crate) struct DirectoryPolling(Mutex<State>);

#[derive(Debug)]
struct State {
    asked: Option<Instant>,
    /// Queries since the list changed.
    unchanged: u32,
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

impl DirectoryPolling {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(Mutex::new(State { asked: None, unchanged: 0, rng, percent: 100 }))
    }

    /// The engine is queried now.
    pub(crate) fn ask(&self, now: Instant) {
        self.0.lock().ask(now);
    }

    /// How long ago the last query was.
    pub(crate) fn elapsed(&self, now: Instant) -> Option<Duration> {
        self.0.lock().asked.map(|asked| now.saturating_duration_since(asked))
    }

    /// Whether a client that got no answer from a member must query the engine now. `most` is the
    /// longest pause. A caller that gets `true` has to send the query.
    pub(crate) fn is_due(&self, now: Instant, most: Duration) -> bool {
        let mut state = self.0.lock();
        let elapsed = state.asked.map_or(FORGOTTEN, |asked| now.saturating_duration_since(asked));
        if elapsed >= FORGOTTEN {
            state.unchanged = 0;
        }
        let pause = FIRST.saturating_mul(1 << state.unchanged.min(8)).min(most) * state.percent / 100;
        let due = elapsed >= pause;
        if due {
            state.unchanged += 1;
            state.ask(now);
        }
        due
    }

    /// A query brought another list.
    pub(crate) fn learned(&self) {
        self.0.lock().unchanged = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_without_a_new_list_become_rare_and_those_of_many_clients_spread() {
        let begin = Instant::now();
        let most = Duration::from_secs(5);
        let clients: Vec<_> = (0..200).map(|seed| DirectoryPolling::new(Rng::seeded(seed))).collect();
        let (mut asked, mut at_once) = (0, [0; 2]);
        for millis in (0..60_000).step_by(100) {
            let now = begin + Duration::from_millis(millis);
            let due = clients.iter().filter(|client| client.is_due(now, most)).count();
            asked += due;
            if millis > 0 {
                at_once[0] = at_once[0].max(due);
            }
        }
        assert!((200 * 13..200 * 17).contains(&asked), "{asked} queries in a minute");
        assert!(at_once[0] < 150, "{} at once", at_once[0]);
        let now = begin + Duration::from_secs(61);
        clients[0].ask(now);
        assert!(!clients[0].is_due(now + FIRST * 3, most));
        clients[0].learned();
        assert!(!clients[0].is_due(now + FIRST / 2, most) && clients[0].is_due(now + FIRST * 3 / 2, most));
        assert_eq!(clients[0].elapsed(now + FIRST * 2), Some(FIRST / 2));
    }
}
