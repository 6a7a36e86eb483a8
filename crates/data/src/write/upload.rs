//! The upload of one block.
//!
//! What must stay true: its bytes stay readable here until the store has them. It always ends,
//! because the flush of a file waits for it.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use sluice_object::ObjectError;

use crate::{blocks::BlockStore, budget::Charge, layout::BlockKey};

#[derive(Debug)]
pub(super) struct Upload {
    pub(super) key: BlockKey,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Waiting { data: Bytes, _charge: Charge },
    Stored,
    Failed(ObjectError),
}

impl Upload {
    pub(super) fn new(key: BlockKey, data: Bytes, charge: Charge) -> Arc<Self> {
        Arc::new(Self { key, state: Mutex::new(State::Waiting { data, _charge: charge }) })
    }

    /// The bytes, unless the store has them or the upload failed.
    pub(super) fn data(&self) -> Option<Bytes> {
        match &*self.state.lock() {
            State::Waiting { data, .. } => Some(data.clone()),
            _ => None,
        }
    }

    /// Its result, if it has ended.
    pub(super) fn outcome(&self) -> Option<Result<(), ObjectError>> {
        match &*self.state.lock() {
            State::Waiting { .. } => None,
            State::Stored => Some(Ok(())),
            State::Failed(error) => Some(Err(error.clone())),
        }
    }

    /// Stores the block, on the calling thread. Returns false if `gone` returned before that no
    /// caller waits any more: then the upload has not ended.
    pub(super) fn run(&self, blocks: &BlockStore, gone: &mut dyn FnMut() -> bool) -> bool {
        let Some(data) = self.data() else { return true };
        match catch_unwind(AssertUnwindSafe(|| blocks.write(self.key, &data, gone))) {
            Ok(Some(result)) => self.finish(result),
            Ok(None) => return false,
            Err(_) => self.abandon(),
        }
        true
    }

    /// Stores the block, on the runtime. If this is dropped early, call [`Self::abandon`].
    pub(super) async fn run_async(&self, blocks: &BlockStore) {
        if let Some(data) = self.data() {
            self.finish(blocks.write_async(self.key, &data).await);
        }
    }

    /// Makes it fail, unless it has ended.
    pub(super) fn abandon(&self) {
        if self.outcome().is_none() {
            self.finish(Err(ObjectError::Unavailable {
                action: "write",
                key: format!("block {} of slice {}", self.key.index, self.key.id),
                store: "the object store".into(),
                reason: "its upload was broken off".into(),
            }));
        }
    }

    fn finish(&self, result: Result<(), ObjectError>) {
        let state = match result {
            Ok(()) => State::Stored,
            Err(error) => State::Failed(error),
        };
        // The charge is returned outside of the lock.
        let before = std::mem::replace(&mut *self.state.lock(), state);
        drop(before);
    }
}
