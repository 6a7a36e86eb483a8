//! The block caches: in memory for blocks in frequent use, in local files for longer.
//!
//! What must stay true: a cache may drop any block at any time. It returns only the bytes of the
//! block.

mod dir;
mod dir_index;
mod disk;
pub(crate) mod file;
mod kept;
pub(crate) mod resident;
mod second_chance;
mod upkeep;

pub(crate) use disk::{DiskCache, most_open};
pub(crate) use file::BlockFile;
pub use resident::{Cached, Served};
pub(crate) use second_chance::{AWAITED, BEGUN, SecondChance};
