//! Requests that wait for a reader.
//!
//! What must stay true: large requests take limited memory. Small ones are always queued.

use std::{collections::VecDeque, sync::Arc};

use crate::call::Call;

/// Memory that large queued requests may take.
const QUEUE_BYTES: usize = 64 << 20;
/// Requests up to this size are always queued. Their callers wait, so there are at most as many as
/// threads on the machine.
const SMALL: usize = 8 << 10;

/// A request that waits for a reader.
pub(crate) struct QueuedRequest {
    pub(crate) call: Arc<Call>,
    pub(crate) bytes: Box<[u8]>,
}

impl QueuedRequest {
    /// The bytes that it counts for.
    fn weight(&self) -> usize {
        if self.bytes.len() > SMALL { self.bytes.len() } else { 0 }
    }
}

/// Queued requests.
#[derive(Default)]
pub(crate) struct RequestQueue {
    queue: VecDeque<QueuedRequest>,
    /// Bytes of the large ones.
    bytes: usize,
}

impl RequestQueue {
    /// Queues a request; `false` if that would take too much memory.
    pub(crate) fn add(&mut self, queued: QueuedRequest) -> bool {
        let size = queued.weight();
        if size > 0 && self.bytes + size > QUEUE_BYTES {
            return false;
        }
        self.bytes += size;
        self.queue.push_back(queued);
        true
    }

    /// The request that waited longest.
    pub(crate) fn take(&mut self) -> Option<QueuedRequest> {
        let queued = self.queue.pop_front()?;
        self.bytes -= queued.weight();
        Some(queued)
    }

    /// How many wait.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }
}
