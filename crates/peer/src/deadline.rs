//! A deadline that is moved far more often than it passes.
//!
//! What must stay true: moving it costs no work of the runtime's timer, except if it comes nearer.

use std::{pin::Pin, time::Duration};

use tokio::time::{Instant, Sleep, sleep_until};

/// When something has to have happened.
pub(crate) struct Deadline {
    at: Instant,
    /// Fires at the deadline or before it.
    timer: Pin<Box<Sleep>>,
}

impl Deadline {
    /// In so long from now.
    pub(crate) fn after(delay: Duration) -> Self {
        let at = Instant::now() + delay;
        Self { at, timer: Box::pin(sleep_until(at)) }
    }

    /// Moves it to so long from now.
    pub(crate) fn set(&mut self, delay: Duration) {
        self.at = Instant::now() + delay;
        if self.at < self.timer.deadline() {
            self.timer.as_mut().reset(self.at);
        }
    }

    /// Completes when it has passed. May be dropped and called again.
    pub(crate) async fn passed(&mut self) {
        loop {
            self.timer.as_mut().await;
            if self.at <= self.timer.deadline() {
                return;
            }
            self.timer.as_mut().reset(self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_passes_when_it_was_moved_to_and_not_before() {
        let (begun, short) = (Instant::now(), Duration::from_millis(30));
        let mut deadline = Deadline::after(short);
        deadline.set(2 * short);
        deadline.passed().await;
        assert!(begun.elapsed() >= 2 * short);
        deadline.set(Duration::from_hours(1));
        deadline.set(short);
        let begun = Instant::now();
        deadline.passed().await;
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}
