//! One block on its way to the store.
//!
//! What must stay true: its bytes stay readable here until the store has them, and it comes to an
//! end whatever happens: a file's flush waits for it.

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

    /// The bytes, unless the store has them or refused them.
    pub(super) fn data(&self) -> Option<Bytes> {
        match &*self.state.lock() {
            State::Waiting { data, .. } => Some(data.clone()),
            _ => None,
        }
    }

    /// Whether it came to an end, and to which.
    pub(super) fn outcome(&self) -> Option<Result<(), ObjectError>> {
        match &*self.state.lock() {
            State::Waiting { .. } => None,
            State::Stored => Some(Ok(())),
            State::Failed(error) => Some(Err(error.clone())),
        }
    }

    /// Stores the block, on the calling thread. Answers false if `gone` said before that nobody
    /// waits for it any more: then it has not come to an end.
    pub(super) fn run(&self, blocks: &BlockStore, gone: &mut dyn FnMut() -> bool) -> bool {
        let Some(data) = self.data() else { return true };
        match catch_unwind(AssertUnwindSafe(|| blocks.write(self.key, &data, gone))) {
            Ok(Some(result)) => self.finish(result),
            Ok(None) => return false,
            Err(_) => self.abandon(),
        }
        true
    }

    /// Stores the block, on the runtime. Whoever drops this early calls [`Self::abandon`].
    pub(super) async fn run_async(&self, blocks: &BlockStore) {
        if let Some(data) = self.data() {
            self.finish(blocks.write_async(self.key, &data).await);
        }
    }

    /// Fails unless it has come to an end.
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
        // The charge is given back outside the lock.
        let before = std::mem::replace(&mut *self.state.lock(), state);
        drop(before);
    }
}
