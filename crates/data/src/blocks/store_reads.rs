//! Reads of the object store for which several readers wait: one read per block.

use std::fmt;

use bytes::Bytes;
use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use sluice_object::ObjectError;

use crate::layout::BlockKey;

/// What a read of the object store gives.
pub(super) type Fetched = Result<Bytes, ObjectError>;

type Read = Shared<BoxFuture<'static, Fetched>>;

/// The reads under way, by block.
#[derive(Default)]
pub(super) struct StoreReads(Mutex<FxHashMap<BlockKey, Read>>);

impl fmt::Debug for StoreReads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} reads", self.0.lock().len())
    }
}

impl StoreReads {
    /// The read of a block that is under way, or one that `start` begins.
    pub(super) fn join(&self, key: BlockKey, start: impl FnOnce() -> BoxFuture<'static, Fetched>) -> Read {
        self.0.lock().entry(key).or_insert_with(|| start().shared()).clone()
    }

    /// The read of a block has ended; the next one reads again.
    pub(super) fn end(&self, key: BlockKey) {
        self.0.lock().remove(&key);
    }
}
