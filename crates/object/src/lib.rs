//! Object stores: one seam ([`ObjectStore`]), one table of drivers, and layers that add to any of them.
//!
//! Knows nothing of chunks, slices, files or metadata. Everything is asynchronous on tokio, and the caller brings
//! the runtime.

mod compress;
mod config;
pub mod crypto;
mod file;
pub mod layers;
mod mem;
mod open;
mod store;

pub use compress::{CodecError, Compression};
pub use config::{Encryption, Limits, RetryPolicy, Secret, StoreConfig};
pub use file::FileStore;
pub use mem::MemStore;
pub use open::open;
pub use store::{ObjectError, ObjectMeta, ObjectStore};
