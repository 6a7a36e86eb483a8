//! Limits how many threads do the same thing at once.
//!
//! What must stay true: no thread waits. Beyond the limit it gets no slot.

use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of slots in use.
#[derive(Debug, Default)]
pub(crate) struct Turns(AtomicUsize);

/// A slot. It is free again when this is dropped.
#[derive(Debug)]
pub(crate) struct Turn<'t>(&'t Turns);

impl Turns {
    /// Takes a slot, unless `most` are in use; 0 is no limit.
    pub(crate) fn enter(&self, most: usize) -> Option<Turn<'_>> {
        let others = self.0.fetch_add(1, Ordering::Relaxed);
        let turn = Turn(self);
        (most == 0 || others < most).then_some(turn)
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_than_the_limit_are_at_it() {
        let turns = Turns::default();
        let first = turns.enter(2);
        let second = turns.enter(2);
        assert!(first.is_some() && second.is_some() && turns.enter(2).is_none());
        drop(first);
        assert!(turns.enter(2).is_some() && turns.enter(0).is_some());
    }
}
