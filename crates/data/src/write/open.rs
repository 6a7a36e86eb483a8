//! The writer of one open file.
//!
//! What must stay true: as in [`failures`](super::failures), each open file gets all failures.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sluice_types::{FsResult, Interrupt, Time};

use super::FileWriter;

/// The writer of a file that was opened for writing: one for each open, so that each gets all
/// failures.
#[derive(Debug)]
pub struct OpenWriter {
    writer: Arc<FileWriter>,
    /// Failures that a write or an fsync of this open file reported.
    written: AtomicU64,
    /// Failures that an fsync of this open file reported.
    synced: AtomicU64,
    /// Lost staged blocks, of all files, that an fsync of this open file reported.
    lost: AtomicU64,
}

impl OpenWriter {
    /// Earlier failures that were not reported yet are reported here, too.
    pub(crate) fn new(writer: Arc<FileWriter>) -> Self {
        let reported = writer.state.lock().failures.reported;
        let (_, lost) = writer.context.blocks.lost();
        Self { writer, written: reported.into(), synced: reported.into(), lost: lost.into() }
    }

    /// [`FileWriter::write`]. `interrupt` ends a wait.
    ///
    /// # Errors
    /// As there, except failures that an earlier write or fsync of this open file reported; and
    /// `EINTR`.
    pub fn write(&self, offset: u64, data: &[u8], mtime: Time, interrupt: &Interrupt) -> FsResult<()> {
        self.writer.take(offset, data, mtime, interrupt, |failures| {
            let reported = failures.report(self.written.load(Ordering::Relaxed));
            self.written.store(failures.count, Ordering::Relaxed);
            reported
        })
    }

    /// [`FileWriter::flush`], when one of several descriptors is closed.
    ///
    /// # Errors
    /// What failed with any data written since the last fsync of this open file. The next fsync
    /// reports it again.
    pub fn flush(&self) -> FsResult<()> {
        self.writer.settle_all(&|| true)?;
        let mut state = self.writer.state.lock();
        let reported = state.failures.report(self.synced.load(Ordering::Relaxed));
        self.writer.mark_clean(&mut state);
        reported
    }

    /// [`FileWriter::fsync`]. `caller_waits` returns whether a caller still waits for the answer.
    /// If not, the next fsync reports the failure.
    ///
    /// # Errors
    /// What failed with any data written since the last fsync of this open file whose caller got
    /// the result; `EINTR` as there.
    pub fn fsync(&self, caller_waits: impl Fn() -> bool) -> FsResult<()> {
        self.writer.settle_all(&caller_waits)?;
        let mut state = self.writer.state.lock();
        let since = self.synced.load(Ordering::Relaxed);
        let caller_waits = caller_waits();
        let failed = if caller_waits {
            self.written.store(state.failures.count, Ordering::Relaxed);
            self.synced.store(state.failures.count, Ordering::Relaxed);
            state.failures.report(since)
        } else {
            state.failures.last_since(since)
        };
        self.writer.mark_clean(&mut state);
        drop(state);
        failed?;
        let blocks = &self.writer.context.blocks;
        blocks.harden()?;
        let (lost, _) = blocks.lost();
        let since = if caller_waits {
            self.lost.swap(lost, Ordering::Relaxed)
        } else {
            self.lost.load(Ordering::Relaxed)
        };
        blocks.tell_lost(since, caller_waits)
    }
}
