//! The work that uploads written data before a program flushes it: on a thread of its own, or in a
//! timetable that several volumes share.
//!
//! What must stay true: it never blocks on a file's lock for long, and never on the store or the
//! metadata.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    thread,
    time::Duration,
};

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_types::{FsResult, Ino, Timetable, job};

use super::{FileWriter, WriteContext, pressure::Pressure};
use crate::blocks::BlockStore;

/// Longest time between two checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// So many times longer it may be in a timetable that many clients share, if there are no writers.
const NOTHING_TO_WRITE: u32 = 4;

/// The writers of a volume, and the signal that wakes the flusher thread.
#[derive(Debug)]
pub(crate) struct Flusher {
    writers: Mutex<FxHashMap<Ino, Arc<FileWriter>>>,
    pressure: Arc<Pressure>,
    age: Duration,
    idle: Duration,
}

impl Flusher {
    pub(crate) fn new(age: Duration, idle: Duration) -> Arc<Self> {
        Arc::new(Self { writers: Mutex::default(), pressure: Arc::default(), age, idle })
    }

    /// The signal that wakes its thread.
    pub(crate) fn pressure(&self) -> Arc<Pressure> {
        Arc::clone(&self.pressure)
    }

    /// The writer of `ino`, made if there is none.
    pub(crate) fn writer(&self, ino: Ino, context: &Arc<WriteContext>) -> Arc<FileWriter> {
        let mut writers = self.writers.lock();
        Arc::clone(writers.entry(ino).or_insert_with(|| FileWriter::new(ino, Arc::clone(context))))
    }

    /// The writer of `ino`, if there is one.
    pub(crate) fn find(&self, ino: Ino) -> Option<Arc<FileWriter>> {
        self.writers.lock().get(&ino).cloned()
    }

    /// Flushes every file, also after an error. Returns the first error.
    pub(crate) fn flush_all(&self) -> FsResult<()> {
        let writers: Vec<_> = self.writers.lock().values().cloned().collect();
        writers.iter().map(FileWriter::flush).fold(Ok(()), FsResult::and)
    }

    pub(crate) fn stop(&self) {
        self.pressure.stop();
        self.writers.lock().clear();
    }

    /// Starts its work, in `timetable` or on a thread of its own.
    pub(crate) fn start(
        self: &Arc<Self>,
        blocks: &Arc<BlockStore>,
        timetable: Option<&Timetable>,
    ) -> std::io::Result<()> {
        let (flusher, blocks) = (Arc::clone(self), Arc::clone(blocks));
        let tick = CHECK_INTERVAL.min(flusher.idle).max(Duration::from_millis(1));
        if let Some(timetable) = timetable {
            let task = timetable.add(tick, move || {
                let pressure = flusher.pressure.take()?;
                flusher.check(&blocks, pressure);
                Some(if flusher.writers.lock().is_empty() { tick * NOTHING_TO_WRITE } else { tick })
            });
            self.pressure.wakes(task);
            return Ok(());
        }
        let work = job("sluice-flush", move || {
            while let Some(pressure) = flusher.pressure.wait(tick) {
                flusher.check(&blocks, pressure);
            }
        });
        thread::Builder::new().name("sluice-flush".into()).spawn(work)?;
        Ok(())
    }

    fn check(&self, blocks: &BlockStore, pressure: bool) {
        blocks.shrink_memory();
        sluice_object::shed_buffers();
        let look = || self.look(pressure, blocks.budget.limit());
        if catch_unwind(AssertUnwindSafe(look)).is_err() {
            tracing::error!("sending data on its way panicked");
        }
    }

    fn look(&self, pressure: bool, limit: u64) {
        let writers: Vec<_> = {
            let mut writers = self.writers.lock();
            writers.retain(|_, writer| Arc::strong_count(writer) > 1 || !writer.is_clean());
            writers.values().cloned().collect()
        };
        if pressure {
            reduce_memory(&writers, limit / 4);
        }
        for writer in &writers {
            writer.flush_old(self.age, self.idle);
        }
    }
}

/// Starts to upload the data of the largest writers, until the rest takes less than `goal`.
fn reduce_memory(writers: &[Arc<FileWriter>], goal: u64) {
    let mut sizes: Vec<_> = writers.iter().map(|writer| (writer.active_bytes(), writer)).collect();
    sizes.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let mut total: u64 = sizes.iter().map(|(bytes, _)| bytes).sum();
    for (bytes, writer) in sizes {
        if total <= goal {
            return;
        }
        writer.flush_old(Duration::ZERO, Duration::ZERO);
        total -= bytes;
    }
}
