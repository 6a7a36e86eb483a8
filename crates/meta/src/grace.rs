//! How long a client waits before it takes other clients for dead.

use crate::options::LIFETIME;

/// Heartbeats without a renewal from which on others may have missed so many that they look dead.
const MISSED: i64 = 3;

/// Since when this client has shown without a break that it lives.
///
/// When nobody could commit for longer than a session lasts, all sessions have expired, and all
/// their clients are about to renew them. Who comes first leaves them the time for it: nobody is
/// buried by a client whose own renewals went through for less than a session's lifetime.
#[derive(Debug)]
pub(crate) struct Grace {
    since: i64,
    last: i64,
}

impl Grace {
    /// Of a client whose session was just made, Unix seconds.
    pub(crate) fn new(now: i64) -> Self {
        Self { since: now, last: now }
    }

    /// Notes a renewal; whether the grace is over.
    pub(crate) fn renewed(&mut self, now: i64, heartbeat: i64) -> bool {
        // A clock that was put back says nothing either.
        if !(0..=MISSED * heartbeat).contains(&(now - self.last)) {
            self.since = now;
        }
        self.last = now;
        now - self.since >= LIFETIME * heartbeat
    }
}
