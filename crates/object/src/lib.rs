//! Object stores: one seam ([`ObjectStore`]), one table of drivers, and layers that add to any of them.
//!
//! Knows nothing of chunks, slices, files or metadata.

mod store;

pub use store::{ObjectError, ObjectMeta, ObjectStore};
