//! File data: chunks of slices of blocks, between the file system above and an object store below.
//!
//! [`DataStore`] is the entry point. It knows metadata only as a [`ChunkIndex`].
//!
//! What must stay true: nothing here names a metadata engine, and no layer above sees an object.

mod assembly;
mod block_on;
mod blocks;
mod budget;
mod cache;
mod compact;
mod config;
mod error;
mod flight;
mod free_space;
mod index;
mod layout;
mod peers;
mod pool;
mod read;
mod read_ahead_windows;
mod request_limit;
mod staged_upload;
mod staging;
mod stats;
mod store;
mod streams;
mod try_limiter;
mod write;

use std::{fmt, ops::Deref, sync::Arc};

pub use cache::{Cached, Served};
pub use compact::{Plan, plan};
pub use config::{CacheConfig, DataConfig, Eviction, UploadHours, Verify, WritebackConfig};
pub use error::{DataError, WarmError};
pub use index::ChunkIndex;
pub use layout::{BlockKey, Layout, Part, pages, parse_name, visible};
pub use peers::{Asked, OwnerAction, Peers};
pub use read::FileReader;
/// Memory for a whole block from elsewhere.
pub use sluice_object::Buffer;
pub use stats::{Stats, Times};
pub use store::{CachedFile, DataStore};
pub use write::{FileWriter, OpenWriter};

/// The index, as it is passed around inside.
#[derive(Clone)]
pub(crate) struct IndexRef(Arc<dyn ChunkIndex>);

impl Deref for IndexRef {
    type Target = dyn ChunkIndex;
    fn deref(&self) -> &Self::Target {
        &*self.0
    }
}

impl fmt::Debug for IndexRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ChunkIndex")
    }
}
