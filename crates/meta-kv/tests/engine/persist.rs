//! Work that goes on once the servers are back.

use std::time::{Duration, Instant};

use sluice_meta::engine::EngineError;

/// Tries until the servers are back.
pub(crate) fn persist<T>(mut what: impl FnMut() -> Result<T, EngineError>) -> T {
    let until = Instant::now() + Duration::from_mins(1);
    loop {
        match what() {
            Ok(done) => return done,
            Err(error @ (EngineError::Unavailable { .. } | EngineError::Indeterminate { .. })) => {
                assert!(Instant::now() < until, "{error}");
            }
            Err(error) => panic!("{error}"),
        }
    }
}
