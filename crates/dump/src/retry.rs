//! Waits for an engine that does not answer for a while.

use std::{
    thread,
    time::{Duration, Instant},
};

use sluice_meta::engine::EngineError;

/// How long.
const TIMEOUT: Duration = Duration::from_mins(5);
/// How long until it is asked again.
const PAUSE: Duration = Duration::from_millis(200);

/// Tries what may be done twice until the engine answers.
pub(crate) fn retry<T>(mut ask: impl FnMut() -> Result<T, EngineError>) -> Result<T, EngineError> {
    let until = Instant::now() + TIMEOUT;
    let mut said = false;
    loop {
        match ask() {
            Err(error @ (EngineError::Unavailable { .. } | EngineError::Indeterminate { .. }))
                if Instant::now() < until =>
            {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(%error, "trying again for up to {} s", TIMEOUT.as_secs());
                }
                thread::sleep(PAUSE);
            }
            answered => return answered,
        }
    }
}
