//! The files that are read.

use crate::pattern;

/// How many there are.
pub(super) const FILES: usize = 96;
/// Bytes of each.
pub(super) const SIZE: usize = 1 << 20;

/// What a file has to hold.
pub(super) fn content(seed: u64, file: usize) -> Vec<u8> {
    pattern::bytes(seed.wrapping_mul(1000) + file as u64, SIZE)
}

pub(super) fn file_name(file: usize) -> String {
    format!("file{file}")
}
