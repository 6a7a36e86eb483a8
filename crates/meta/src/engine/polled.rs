//! Change notifications for databases without publish/subscribe: polls a value that changes with
//! each commit.
//!
//! What must stay true: the value is read only while there is a listener.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{EngineError, Watch};
use crate::schema::Notice;

/// Something that changes with commits.
pub trait Version: Send + Sync {
    /// What it is: a number, or values.
    type Version: PartialEq + Send;

    /// How often it is read.
    const PERIOD: Duration;

    /// As it is now; `None` if it cannot be read soon.
    fn version(&self) -> Result<Option<Self::Version>, EngineError>;
}

/// A listener that hears of each change of a [`Version`] after its begin, and not what changed.
pub struct Polled<T: Version> {
    source: Arc<T>,
    /// As it was at the last read.
    last: Option<T::Version>,
}

impl<T: Version + 'static> Polled<T> {
    /// From now on. What cannot be read now counts as changed.
    ///
    /// # Errors
    /// Those of the read.
    pub fn watch(source: Arc<T>) -> Result<Box<dyn Watch>, EngineError> {
        let last = source.version()?;
        Ok(Box::new(Self { source, last }))
    }
}

impl<T: Version> Watch for Polled<T> {
    fn next(&mut self, timeout: Duration) -> Result<Vec<Notice>, EngineError> {
        let until = Instant::now() + timeout;
        loop {
            let now = self.source.version()?;
            if now.is_some() && now != self.last {
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
