//! Blocks kept near: in memory while they are hot, in local files for longer.
//!
//! What must stay true: a cache may forget anything at any time, and never answers other bytes than
//! the block's.

mod dir;
mod dir_index;
mod disk;
pub(crate) mod file;
mod second_chance;
mod upkeep;

pub(crate) use disk::DiskCache;
pub(crate) use second_chance::{AWAITED, BEGUN, SecondChance};
