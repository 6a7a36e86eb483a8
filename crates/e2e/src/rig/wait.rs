//! Waiting with a deadline.

use anyhow::ensure;
use std::{
    thread,
    time::{Duration, Instant},
};

/// How long anything may take that is not the work itself: a server to start, a mount to come or
/// go.
pub(crate) const TIMEOUT: Duration = Duration::from_mins(1);

/// Waits until `done`, at most until the deadline.
///
/// # Errors
/// When the deadline has passed, naming `what`.
pub fn until(what: &str, timeout: Duration, mut done: impl FnMut() -> bool) -> anyhow::Result<()> {
    let deadline = Instant::now() + timeout;
    while !done() {
        ensure!(Instant::now() < deadline, "{what}: not within {timeout:?}");
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
