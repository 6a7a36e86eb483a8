//! Commits uploaded data to the metadata, one batch of a file after the other.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use parking_lot::MutexGuard;
use sluice_types::{FsError, FsResult, Slice};

use super::{FileWriter, ROOM_TRIES, State, WriteContext, batch::Batch};

impl FileWriter {
    pub(super) fn commit_head<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let Some(batch) = state.pending.front().cloned() else { return state };
        state.committing = true;
        drop(state);
        let result = catch_unwind(AssertUnwindSafe(|| self.commit(&batch)))
            .unwrap_or_else(|_| Err(FsError::io("storing written data panicked; this is a fault in sluice")));
        state = self.state.lock();
        state.committing = false;
        state.pending.pop_front();
        state.ended = batch.seq;
        if let Err(error) = result {
            tracing::error!(ino = %self.ino, chunk = batch.index, %error, "written data could not be stored");
            self.context.blocks.stats.commit_errors.add(1);
            state.failures.add(error);
        }
        self.mark_clean(&mut state);
        self.changed.notify_all();
        state
    }

    fn commit(&self, batch: &Batch) -> FsResult<()> {
        let WriteContext { compactor, blocks, .. } = &*self.context;
        if let Some(Err(error)) = batch.outcome() {
            self.discard(batch.slices().collect());
            return Err(error);
        }
        for (number, records) in batch.commits.iter().enumerate() {
            match self.commit_records(batch, records, number + 1 < batch.commits.len()) {
                Ok(count) => {
                    blocks.stats.commits.add(1);
                    blocks.stats.committed_records.add(records.len() as u64);
                    compactor.after_commit(self.ino, batch.index, records.len(), count as usize);
                }
                Err(error) => {
                    // After an I/O error it is unknown whether the records exist. A leaked block is
                    // better than a lost one.
                    if !matches!(error, FsError::Io(_) | FsError::Interrupted | FsError::Again) {
                        let refused: Vec<u64> =
                            batch.commits[number..].iter().flatten().map(|record| record.id).collect();
                        self.discard(batch.slices().filter(|(id, _)| refused.contains(id)).collect());
                    }
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Appends records to a chunk. If it has no room for them, it is compacted first. Other clients
    /// may fill it again meanwhile.
    fn commit_records(&self, batch: &Batch, records: &[Slice], more: bool) -> FsResult<u32> {
        let WriteContext { index, compactor, .. } = &*self.context;
        let is_last = || !more && self.has_only_the_head();
        for _ in 1..ROOM_TRIES {
            match index.commit(self.ino, batch.index, records, batch.mtime, &is_last) {
                Err(FsError::TooBig) => compactor.make_room(self.ino, batch.index)?,
                done => return done,
            }
        }
        index.commit(self.ino, batch.index, records, batch.mtime, &is_last)
    }

    /// Whether all data of the file but the batch that is being committed is committed. After a
    /// failure, be it reported or not, it never is.
    fn has_only_the_head(&self) -> bool {
        let state = self.state.lock();
        state.pending.len() == 1 && state.active.is_empty() && state.failures.count == 0
    }

    fn discard(&self, slices: Vec<(u64, u32)>) {
        let blocks = Arc::clone(&self.context.blocks);
        let deletions = async move {
            for (id, size) in slices {
                if let Err(error) = blocks.delete_slice(id, size).await {
                    tracing::warn!(%error, slice = id, "blocks of a refused write stay behind for gc");
                }
            }
        };
        self.context.discards.spawn_on(deletions, self.context.blocks.runtime());
    }
}
