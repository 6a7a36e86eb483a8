//! Limits how many threads do the same thing at once.
//!
//! What must stay true: no thread waits. Beyond the limit it gets no slot.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of slots in use.
#[derive(Debug, Default)]
pub(crate) struct TryLimiter(AtomicUsize);

/// A slot. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Slot<'t>(&'t TryLimiter);

impl TryLimiter {
    /// Takes a slot, unless `most` are in use; 0 is no limit.
    pub(crate) fn enter(&self, most: usize) -> Option<Slot<'_>> {
        let others = self.0.fetch_add(1, Ordering::Relaxed);
        let slot = Slot(self);
        (most == 0 || others < most).then_some(slot)
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_slots_than_the_limit() {
        let limiter = TryLimiter::default();
        let first = limiter.enter(2);
        let second = limiter.enter(2);
        assert!(first.is_some() && second.is_some() && limiter.enter(2).is_none());
        drop(first);
        assert!(limiter.enter(2).is_some() && limiter.enter(0).is_some());
    }
}
