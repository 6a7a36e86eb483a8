//! The events that a guardian handles.

use std::os::fd::OwnedFd;

use super::{upgrade::Caller, wire::Message};

/// What the guardian learns.
#[derive(Debug)]
pub(super) enum Event {
    Signal(i32),
    Message(u64, Message, Vec<OwnedFd>),
    Closed(u64),
    Caller(Caller),
    /// The time has come for what waits for it.
    Late,
}
