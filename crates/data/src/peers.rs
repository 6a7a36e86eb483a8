//! What the data path asks of clients that share their caches.

use std::{fmt, future::Future, ops::Range, pin::Pin};

use bytes::Bytes;

use crate::layout::BlockKey;

/// Bytes on their way from another client.
pub type Fetching<'a> = Pin<Box<dyn Future<Output = Option<Bytes>> + Send + 'a>>;

/// Other clients that have blocks for this one.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Whether this client is the one that reads `block` from the object store for all.
    fn owns(&self, block: BlockKey) -> bool;

    /// Bytes `range` of `block` from another client; `None` if none gives them, so that the object
    /// store is to be read. Ends in a time that does not depend on other clients.
    fn fetch(&self, block: BlockKey, range: Range<u32>) -> Fetching<'_>;

    /// Offers a block that was just uploaded to its owner, who may take it. Does not wait.
    fn offer(&self, block: BlockKey, data: &Bytes);
}
