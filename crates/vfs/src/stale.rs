//! What another client changed, or what changed without the kernel having asked for it.
//!
//! What must stay true: this client forgets first, the kernel is told after that; else the kernel's
//! next question would be answered with what is stale. Nothing here runs on a thread that a request
//! needs.

mod tell;

use sluice_meta::schema::Change;

/// What the kernel is to be told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It changed.
    Changed,
    /// It may have changed: enough to ask again, not enough to let go of what is mounted there.
    Suspected,
}

/// Told of what the kernel may still believe; whether the kernel knew of it.
pub(crate) type OnStale = Box<dyn Fn(&Change, Certainty) -> bool + Send + Sync>;
