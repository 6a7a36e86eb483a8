//! Object stores: one interface ([`ObjectStore`]), one table of drivers, and layers that wrap any
//! driver.
//!
//! This crate knows nothing of chunks, slices, files or metadata. Everything is asynchronous on
//! tokio, and the caller provides the runtime.

mod bucket_address;
mod buffers;
mod compress;
mod config;
pub mod crypto;
pub mod direct;
mod drivers;
mod durable;
mod file;
mod idle;
pub mod layers;
mod mapped;
mod mem;
mod missing;
mod offload;
mod open;
pub mod positional;
mod probe;
mod remote;
mod store;

pub use buffers::{Buffer, shed as shed_buffers};
pub use compress::{CodecError, Compression};
pub use config::{Encryption, Limits, RetryPolicy, Secret, StoreConfig};
pub use drivers::names as driver_names;
pub use file::{FileStore, unfinished};
pub use idle::keep_idle;
pub use mem::MemStore;
pub use missing::check as check_driver;
pub use open::{open, open_observed};
pub use probe::{ensure_empty, probe};
pub use store::{ObjectError, ObjectMeta, ObjectStore};
