//! What of a file is not committed, and that the index knows whether there is any.
//!
//! What must stay true: the index is told before a write is acknowledged, and that all is there
//! only once it is.

use sluice_types::CHUNK_SIZE;

use super::{FileWriter, State};

impl FileWriter {
    /// First offset behind all data that the metadata does not show yet; 0 if it shows everything.
    pub fn dirty_end(&self) -> u64 {
        let state = self.state.lock();
        let active = state.active.iter().map(|(index, active)| (*index, active.extents.end()));
        let pending = state.pending.iter().map(|batch| (batch.index, batch.end()));
        let ends = active.chain(pending).map(|(index, end)| u64::from(index) * CHUNK_SIZE + u64::from(end));
        ends.max().unwrap_or(0)
    }

    /// Data is about to be taken.
    pub(super) fn soils(&self, state: &mut State) {
        if !state.dirty {
            state.dirty = true;
            self.context.index.dirty(self.ino, true);
        }
    }

    /// Tells the index once it has everything, and nobody has to be told of a failure.
    pub(super) fn cleaned(&self, state: &mut State) {
        if state.dirty && state.is_clean() {
            state.dirty = false;
            self.context.index.dirty(self.ino, false);
        }
    }
}

impl State {
    pub(super) fn is_clean(&self) -> bool {
        self.active.is_empty() && self.pending.is_empty() && !self.failures.are_new()
    }
}
