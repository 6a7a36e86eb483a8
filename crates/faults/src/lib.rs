//! The whole stack below FUSE, real engines and all, with parts that fail on command. For
//! development only.
//!
//! * [`volume`] makes volumes and mounts them, each client with an engine and a data path of its
//!   own.
//! * [`store`] is an object store that fails, falls silent, loses answers and damages what it
//!   holds.
//! * [`check`] reads every record and every object of a volume and reports every inconsistency.
//! * [`load`] is work for many threads whose outcome is known exactly.
//!
//! What must stay true: if the stack breaks a promise, everything here panics with a message that
//! gives the context.

#![allow(clippy::missing_panics_doc, reason = "a test tool panics when the test fails")]
#![allow(clippy::unwrap_used, reason = "a test tool panics when the test fails")]

pub mod check;
pub mod load;
pub mod store;
pub mod volume;

use std::time::{Duration, Instant};

/// How long anything that must happen may take.
pub const GENEROUS: Duration = Duration::from_secs(90);

/// Waits until `done`; fails after a generous time.
pub fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + GENEROUS;
    while !done() {
        assert!(Instant::now() < deadline, "waited too long for: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
