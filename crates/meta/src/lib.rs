//! Metadata: operations written once, over engines that only know records.
//!
//! [`engine`] is the contract with a database, [`schema`] the records, [`ops`] one file per operation, [`batch`] the
//! group commit that every operation goes through. This crate knows nothing of object storage, FUSE or any particular
//! database.

pub mod batch;
pub mod engine;
mod env;
pub mod mem;
pub mod op;
pub mod ops;
mod overlay;
pub mod schema;
mod view;

pub use env::Env;
pub use view::{Stop, View};
