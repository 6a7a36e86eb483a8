//! The background work of a mount: it deletes removed files, compacts chunks and renews the
//! session.
//!
//! What must stay true: no operation waits for this work, and all of it is done before the next row
//! begins.

use std::{
    sync::{
        Arc,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    time::{Duration, Instant},
};

use sluice_meta::{
    Interrupt, Meta,
    ops::{
        chunks::ReadChunk,
        compact::{Compact, DropDelayed},
    },
};
use sluice_types::{Clock, FsError, FsResult, Ino, Slice, SystemClock};

use super::scratch::NoBlocks;

/// Files deleted together, as in a mount.
const TOGETHER: usize = 256;
/// Gathered files are deleted once no other has come for this long.
const GATHER: Duration = Duration::from_millis(100);
/// Time between two heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(12);

enum Task {
    /// Delete the chunks of a file of this length.
    Delete(Ino, u64),
    /// Compact the first chunk of a file.
    Compact(Ino),
    /// Report when all earlier tasks are done, and the first failure.
    Finish(Sender<FsResult<()>>),
}

/// The thread that does this work.
pub(super) struct Beside {
    meta: Arc<Meta>,
    sender: Sender<Task>,
    receiver: Receiver<Task>,
}

/// Sends tasks to it. It ends when the last handle is dropped.
#[derive(Clone)]
pub(super) struct Handle(Sender<Task>);

impl Handle {
    /// A file was removed.
    pub(super) fn delete(&self, (ino, length): (Ino, u64)) {
        // Sending fails only after a panic, which `finish` reports.
        let _ = self.0.send(Task::Delete(ino, length));
    }

    /// The first chunk of a file has many records.
    pub(super) fn compact(&self, ino: Ino) {
        let _ = self.0.send(Task::Compact(ino));
    }

    /// Waits until all tasks are done.
    pub(super) fn finish(&self) -> FsResult<()> {
        let (sender, receiver) = mpsc::channel();
        let _ = self.0.send(Task::Finish(sender));
        receiver.recv().unwrap_or_else(|_| Err(FsError::io("what works beside has ended")))
    }
}

impl Beside {
    pub(super) fn new(meta: Arc<Meta>) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { meta, sender, receiver }
    }

    pub(super) fn handle(&self) -> Handle {
        Handle(self.sender.clone())
    }

    /// Works until no handle is left.
    pub(super) fn run(self) {
        let Self { meta, sender, receiver } = self;
        drop(sender);
        let mut failed = Ok(());
        let mut files = Vec::new();
        let mut beaten = Instant::now();
        loop {
            let task = match receiver.recv_timeout(GATHER) {
                Ok(task) => Some(task),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let due = files.len() >= TOGETHER || !matches!(task, Some(Task::Delete(..) | Task::Compact(_)));
            if due && !files.is_empty() {
                let files = std::mem::take(&mut files);
                failed = failed.and(meta.delete_files(&files, &NoBlocks, &Interrupt::never()));
            }
            match task {
                Some(Task::Delete(ino, length)) => files.push((ino, length)),
                Some(Task::Compact(ino)) => failed = failed.and(compact(&meta, ino)),
                Some(Task::Finish(done)) => {
                    let _ = done.send(std::mem::replace(&mut failed, Ok(())));
                }
                None => {}
            }
            if beaten.elapsed() >= HEARTBEAT {
                beaten = Instant::now();
                let beat = meta.beat().and_then(|beat| beat.map_err(FsError::io));
                failed = failed.and(beat);
            }
        }
    }
}

/// Replaces the records of a file's first chunk by one, as if their bytes had been written anew.
fn compact(meta: &Meta, ino: Ino) -> FsResult<()> {
    let never = Interrupt::never();
    let old = meta.read(&ReadChunk { ino, index: 0 }, &never)?;
    let end = old.iter().map(Slice::end).max().unwrap_or(0);
    let new = Slice::whole(0, meta.new_slice(&never)?, end);
    let slices: Vec<(u64, u32)> = old.iter().map(|slice| (slice.id, slice.size)).collect();
    let begun = SystemClock.now().sec;
    let mut unused = match meta.run(Compact { ino, index: 0, old, keep: 0, new }, &never) {
        Ok(unused) => unused,
        // A second write of the chunk changed it meanwhile.
        Err(FsError::Again) => return Ok(()),
        Err(error) => return Err(error),
    };
    if meta.env().format().trash_days > 0 {
        // The replaced slices are recorded, like the trash, under the second of the replacement.
        for time in begun..=SystemClock.now().sec {
            unused.extend(meta.run(DropDelayed { id: new.id, time, slices: slices.clone() }, &never)?);
        }
    }
    meta.delete_slices(&unused, &NoBlocks, &never)
}
