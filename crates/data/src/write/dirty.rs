//! Uncommitted data of a file. Tells the index whether there is any.
//!
//! What must stay true: the index learns of dirty data before the write is acknowledged, and that a
//! file is clean only after everything is committed.

use sluice_types::CHUNK_SIZE;

use super::{FileWriter, State};

impl FileWriter {
    /// The end of the data that the metadata does not contain yet; 0 if it contains all.
    pub fn dirty_end(&self) -> u64 {
        let state = self.state.lock();
        let active = state.active.iter().map(|(index, active)| (*index, active.extents.end()));
        let pending = state.pending.iter().map(|batch| (batch.index, batch.end()));
        // Refused batches have no end.
        let ends = active.chain(pending).filter(|(_, end)| *end > 0);
        ends.map(|(index, end)| u64::from(index) * CHUNK_SIZE + u64::from(end)).max().unwrap_or(0)
    }

    /// Marks the file as dirty, before data is accepted.
    pub(super) fn mark_dirty(&self, state: &mut State) {
        if !state.dirty {
            state.dirty = true;
            self.context.index.dirty(self.ino, true);
        }
    }

    /// Marks the file as clean, if all is committed and all failures are reported.
    pub(super) fn mark_clean(&self, state: &mut State) {
        if state.dirty && state.is_clean() {
            state.dirty = false;
            self.context.index.dirty(self.ino, false);
        }
    }
}

impl State {
    pub(super) fn is_clean(&self) -> bool {
        self.active.is_empty() && self.pending.is_empty() && !self.failures.any_unreported()
    }
}
