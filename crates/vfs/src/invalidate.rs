//! Invalidation of names and inodes that the kernel may have cached, after a change by another
//! client, or a change that the kernel did not request.
//!
//! What must stay true: this client drops its own cache first, then it invalidates the kernel's
//! cache. Otherwise the kernel's next request would get a stale answer. Nothing here runs on a
//! thread that a request needs.

use sluice_meta::schema::Change;

/// Whether a change is certain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Certainty {
    /// It changed.
    Changed,
    /// It may have changed. The kernel must look it up again, but mounts below it must not be
    /// detached.
    Suspected,
}

/// Invalidates something in the kernel. Returns whether the kernel had it cached.
pub(crate) type OnInvalidate = Box<dyn Fn(&Change, Certainty) -> bool + Send + Sync>;
