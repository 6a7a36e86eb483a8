//! Whole trees: remove, clone and count them.
//!
//! Nothing here has code for batches: each walks a tree and submits the operations of single entries, many at a time.

mod clone;
mod remove;
mod summary;

pub use clone::CloneTree;
pub use summary::{Summary, SummaryNode};

/// How far a walk has come, called with the number of entries done since the last call.
pub type Progress<'p> = &'p (dyn Fn(u64) + Sync);
