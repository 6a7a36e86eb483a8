//! The trait by which the data path requests blocks from other clients of the cache group.

use std::{fmt, future::Future, ops::Range, pin::Pin};

use bytes::Bytes;

use crate::layout::BlockKey;

/// What another client was asked for.
pub type Asked<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// What the owner of a block does with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OwnerAction {
    /// Reads it into its cache. Whether it is there then.
    Warm,
    /// Says whether it is in its cache.
    Find,
    /// Drops it from its cache. Always true.
    Evict,
}

/// Other clients that have blocks for this one.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Whether this client is the one that reads `block` from the object store for all.
    fn owns(&self, block: BlockKey) -> bool;

    /// The machine with the client that owns `block`; `None` if no client owns it.
    fn owner_host(&self, block: BlockKey) -> Option<String>;

    /// Bytes `range` of `block` from another client; `None` if none gives them, so that the object
    /// store is to be read. Ends in a time that does not depend on other clients.
    fn fetch(&self, block: BlockKey, range: Range<u32>) -> Asked<'_, Bytes>;

    /// All of `block` from the member that owned it before this one joined, if it is cached there;
    /// `None` if this one joined long ago, or if another member owns the block now.
    fn fetch_from_former(&self, block: BlockKey) -> Asked<'_, Bytes>;

    /// Has the owner of `block` do something with it. The result is said there; `None` if nobody
    /// answers, or if this client owns it.
    fn at_owner(&self, block: BlockKey, action: OwnerAction) -> Asked<'_, bool>;

    /// Offers a block that was just uploaded to its owner, who may take it. Does not wait.
    fn offer(&self, block: BlockKey, data: &Bytes);
}
