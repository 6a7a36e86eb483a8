//! How long a client waits before it removes the sessions of other clients (fences them).

use crate::options::LIFETIME;

/// After so many heartbeats without a renewal, others may have missed as many and look dead.
const MISSED: i64 = 3;

/// Since when this client has renewed its session without a break.
///
/// If nobody could commit for longer than a session lasts, all sessions have expired, and all
/// clients are about to renew them. The first client gives the others time for that: it declares
/// nobody dead until its own renewals have succeeded for a session's lifetime.
#[derive(Debug)]
pub(crate) struct Grace {
    since: i64,
    last: i64,
}

impl Grace {
    /// For a client whose session was just made, Unix seconds.
    pub(crate) fn new(now: i64) -> Self {
        Self { since: now, last: now }
    }

    /// Records a renewal. Returns whether the grace period is over.
    pub(crate) fn renewed(&mut self, now: i64, heartbeat: i64) -> bool {
        // A clock that was set back gives no information either.
        if !(0..=MISSED * heartbeat).contains(&(now - self.last)) {
            self.since = now;
        }
        self.last = now;
        now - self.since >= LIFETIME * heartbeat
    }
}
