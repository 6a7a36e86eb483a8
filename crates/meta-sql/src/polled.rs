//! Notices for servers without messages: polls a number that changes with every commit.
//!
//! What must stay true: the number is read only while there is a listener.

use std::time::{Duration, Instant};

use sluice_meta::{
    engine::{EngineError, Watch},
    schema::Notice,
};

/// A number that changes with commits.
pub(crate) trait Version: Send {
    /// How often it is read.
    const PERIOD: Duration;

    /// The number; `None` if it cannot be read soon.
    fn version(&self) -> Result<Option<i64>, EngineError>;
}

/// Polls a number.
pub(crate) struct Polled<T> {
    source: T,
    /// Its value at the last read.
    last: i64,
}

impl<T: Version + 'static> Polled<T> {
    /// From now on. What it cannot read now counts as changed.
    pub(crate) fn watch(source: T) -> Result<Box<dyn Watch>, EngineError> {
        let last = source.version()?.unwrap_or_default();
        Ok(Box::new(Self { source, last }))
    }
}

impl<T: Version> Watch for Polled<T> {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let until = Instant::now() + timeout;
        loop {
            if let Some(now) = self.source.version()?.filter(|now| *now != self.last) {
                self.last = now;
                return Ok(vec![Notice::anything()]);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(Vec::new());
            }
            std::thread::sleep(left.min(T::PERIOD));
        }
    }
}
