//! Waiting for what other processes and threads do.

use std::{
    io, thread,
    time::{Duration, Instant},
};

/// The pause between two looks. It begins short, because most waits are short.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(10)];

/// Waits until `done`, at most `timeout`.
///
/// # Errors
/// [`io::ErrorKind::TimedOut`] if it does not hold by then. The message names `what`.
pub fn until(what: &str, timeout: Duration, mut done: impl FnMut() -> bool) -> io::Result<()> {
    let [mut pause, longest] = PAUSES;
    let deadline = Instant::now() + timeout;
    while !done() {
        if Instant::now() > deadline {
            return Err(io::Error::new(io::ErrorKind::TimedOut, format!("{what}: not within {timeout:?}")));
        }
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
    Ok(())
}
