//! One block on its way to the store.
//!
//! What must stay true: its bytes stay readable here until the store has them.

use std::sync::Arc;

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

    /// Stores the block, on the calling thread.
    pub(super) fn run(&self, blocks: &BlockStore) {
        if let Some(data) = self.data() {
            self.finish(blocks.write(self.key, &data));
        }
    }

    /// Stores the block, on the runtime.
    pub(super) async fn run_async(&self, blocks: &BlockStore) {
        if let Some(data) = self.data() {
            self.finish(blocks.write_async(self.key, &data).await);
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
