//! The writer as one open file has it.
//!
//! What must stay true: as in [`failures`](super::failures), whoever opened the file is told what
//! went wrong.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use sluice_types::{FsResult, Interrupt, Time};

use super::FileWriter;

/// The writer of a file that was opened for writing: one for each open, so that each is told what
/// went wrong.
#[derive(Debug)]
pub struct OpenWriter {
    writer: Arc<FileWriter>,
    /// Failures that a write or an fsync here told.
    written: AtomicU64,
    /// Failures that an fsync here told.
    synced: AtomicU64,
    /// Lost staged blocks, of whatever file, that an fsync here told.
    lost: AtomicU64,
}

impl OpenWriter {
    /// What failed before and nobody knows of is told here, too.
    pub(crate) fn new(writer: Arc<FileWriter>) -> Self {
        let reported = writer.state.lock().failures.reported;
        let (_, lost) = writer.context.blocks.lost();
        Self { writer, written: reported.into(), synced: reported.into(), lost: lost.into() }
    }

    /// [`FileWriter::write`], which `interrupt` ends while it waits.
    ///
    /// # Errors
    /// As there, but for what an earlier write or fsync of this open file told; and `EINTR`.
    pub fn write(&self, offset: u64, data: &[u8], mtime: Time, interrupt: &Interrupt) -> FsResult<()> {
        self.writer.take(offset, data, mtime, interrupt, |failures| {
            let reported = failures.tell(self.written.load(Ordering::Relaxed));
            self.written.store(failures.count, Ordering::Relaxed);
            reported
        })
    }

    /// [`FileWriter::flush`], as one of perhaps several descriptors is closed.
    ///
    /// # Errors
    /// What went wrong with any data written since the last fsync of this open file; an fsync tells
    /// it again.
    pub fn flush(&self) -> FsResult<()> {
        self.writer.settle_all(&|| true)?;
        let mut state = self.writer.state.lock();
        let reported = state.failures.tell(self.synced.load(Ordering::Relaxed));
        self.writer.cleaned(&mut state);
        reported
    }

    /// [`FileWriter::fsync`]. `heard` says whether anybody still waits for the answer: if not, the
    /// next one tells it.
    ///
    /// # Errors
    /// What went wrong with any data written since the last fsync of this open file that was heard;
    /// `EINTR` as there.
    pub fn fsync(&self, heard: impl Fn() -> bool) -> FsResult<()> {
        self.writer.settle_all(&heard)?;
        let mut state = self.writer.state.lock();
        let since = self.synced.load(Ordering::Relaxed);
        let heard = heard();
        let failed = if heard {
            self.written.store(state.failures.count, Ordering::Relaxed);
            self.synced.store(state.failures.count, Ordering::Relaxed);
            state.failures.tell(since)
        } else {
            state.failures.last_since(since)
        };
        self.writer.cleaned(&mut state);
        drop(state);
        failed?;
        let blocks = &self.writer.context.blocks;
        blocks.harden()?;
        let (lost, _) = blocks.lost();
        let since =
            if heard { self.lost.swap(lost, Ordering::Relaxed) } else { self.lost.load(Ordering::Relaxed) };
        blocks.tell_lost(since, heard)
    }
}
