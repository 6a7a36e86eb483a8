//! Invalidation of what the kernel may have cached: another client changed it, or it changed
//! without the kernel having asked for it.
//!
//! What must stay true: this client forgets first, the kernel is notified after that; else the
//! kernel's next question would be answered with what is stale. Nothing here runs on a thread that
//! a request needs.

mod notify;

use sluice_meta::schema::Change;

/// How sure it is that something changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It changed.
    Changed,
    /// It may have changed: enough to ask again, not enough to let go of what is mounted there.
    Suspected,
}

/// Invalidates something in the kernel; whether the kernel had it cached.
pub(crate) type OnInvalidate = Box<dyn Fn(&Change, Certainty) -> bool + Send + Sync>;
