//! The state that all connections of a member share.
//!
//! What must stay true: a disk that hangs blocks some threads, and no connection.

use std::{
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_data::{BlockKey, Cached, Served};
use tokio::{sync::Semaphore, time::timeout};

use crate::{blocks::Blocks, frame::MAX_BLOCK, group::Group, outgoing::Buffers};

/// Reads of local files that may wait for their disk at once: each has a thread.
const COLD: usize = 32;
/// How long a disk may take to give a block. Clients have the object store to turn to.
const HANGING: Duration = Duration::from_secs(1);
/// How long a disk that took longer is not read.
const REST: Duration = Duration::from_secs(5);

/// Bytes of a permit for memory.
pub(crate) const UNIT: usize = 4 << 10;

/// A member's blocks, and what may be in memory of them at once.
pub(crate) struct Serving {
    pub(crate) group: Arc<Group>,
    pub(crate) blocks: Box<dyn Blocks>,
    /// Permits of [`UNIT`] bytes each.
    pub(crate) memory: Arc<Semaphore>,
    units: usize,
    /// For the answers that connections gather.
    pub(crate) buffers: Buffers,
    cold: Arc<Semaphore>,
    /// When a disk took too long.
    hung: Mutex<Option<Instant>>,
}

/// Connections among which the memory is shared, if each takes all that it may.
const SHARES: usize = 16;
/// Permits of the largest block, and one.
const LEAST: usize = MAX_BLOCK as usize / UNIT + 1;

impl Serving {
    /// How many permits one connection may have.
    pub(crate) fn share(&self) -> usize {
        (self.units / SHARES).max(LEAST)
    }

    /// With so many bytes of memory.
    pub(crate) fn new(group: Arc<Group>, blocks: impl Blocks, memory: usize) -> Arc<Self> {
        let units = (memory / UNIT).max(LEAST);
        Arc::new(Self {
            group,
            blocks: Box::new(blocks),
            memory: Arc::new(Semaphore::new(units)),
            units,
            buffers: Buffers::default(),
            cold: Arc::new(Semaphore::new(COLD)),
            hung: Mutex::default(),
        })
    }

    /// Bytes of a block that are in a local file, and their checksums. A thread of its own waits
    /// for the disk; `Cold` if the disk takes too long.
    pub(crate) async fn read_file(
        self: &Arc<Self>,
        block: BlockKey,
        range: Range<u32>,
    ) -> Cached<(Bytes, Vec<u32>)> {
        if self.hung.lock().is_some_and(|hung| hung.elapsed() < REST) {
            return Cached::Cold;
        }
        let this = Arc::clone(self);
        let read = async move {
            let place = Arc::clone(&this.cold).acquire_owned().await.ok()?;
            let read = tokio::task::spawn_blocking(move || {
                let _place = place;
                let (mut bytes, mut sums) = (Vec::new(), Vec::new());
                match this.blocks.serve(block, &range, (&mut bytes, 0), &mut sums, true) {
                    Cached::Here(Served::Copied) => Some((bytes.into(), sums)),
                    Cached::Here(Served::Shared(bytes)) => Some((bytes, sums)),
                    Cached::Cold | Cached::Missing => None,
                }
            });
            read.await.ok().flatten()
        };
        match timeout(HANGING, read).await {
            Ok(Some(found)) => Cached::Here(found),
            Ok(None) => Cached::Missing,
            Err(_) => {
                *self.hung.lock() = Some(Instant::now());
                tracing::warn!(
                    "a disk of the cache took more than {HANGING:?}; it is left alone for {REST:?}"
                );
                Cached::Cold
            }
        }
    }
}
