//! The files of a rendering farm, by the histogram of a published test of 3,000 clients.
//!
//! What must stay true: sizes and contents follow from the scale alone, so every process knows them
//! without reading anything.

use sluice_types::Rng;

/// Files of the published test up to each size, above the one before.
const HISTOGRAM: [(u64, u64); 4] =
    [(11_053, 1 << 10), (1_804, 4 << 10), (49_504, 128 << 10), (1_675, 1 << 20)];
/// Larger files of the published test.
const LARGE: u64 = 1_077;
/// Bytes of the published test.
const BYTES: f64 = 35e9;
/// Largest size of those, before they are scaled to the sum.
const LARGEST: u64 = 100 << 20;
/// Smallest size.
const SMALLEST: u64 = 64;
/// Files in a directory.
pub(crate) const IN_DIR: usize = 100;
/// The directory of the directories.
pub(crate) const TOP: &str = "set";

/// The sizes of all files.
pub(crate) struct DataSet {
    sizes: Vec<u64>,
}

impl DataSet {
    /// A part of the published set: of its files and of its bytes.
    pub(crate) fn new(scale: f64) -> Self {
        let mut rng = Rng::seeded(1);
        let count = |of: u64| ((of as f64 * scale).round() as usize).max(1);
        let (mut sizes, mut above) = (Vec::new(), SMALLEST);
        for (of, most) in HISTOGRAM {
            sizes.extend((0..count(of)).map(|_| spread(&mut rng, above, most)));
            above = most + 1;
        }
        let small: u64 = sizes.iter().sum();
        let large: Vec<u64> = (0..count(LARGE)).map(|_| spread(&mut rng, above, LARGEST)).collect();
        let factor = (BYTES * scale - small as f64).max(0.0) / large.iter().sum::<u64>() as f64;
        sizes.extend(large.iter().map(|size| ((*size as f64 * factor) as u64).max(above)));
        shuffle(&mut sizes, &mut rng);
        Self { sizes }
    }

    pub(crate) fn files(&self) -> usize {
        self.sizes.len()
    }

    pub(crate) fn dirs(&self) -> usize {
        self.sizes.len().div_ceil(IN_DIR)
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.sizes.iter().sum()
    }

    pub(crate) fn size(&self, file: usize) -> u64 {
        self.sizes[file]
    }
}

/// The number of a file's directory.
pub(crate) fn dir_of(file: usize) -> usize {
    file / IN_DIR
}

pub(crate) fn dir_name(dir: usize) -> String {
    format!("d{dir:04}")
}

pub(crate) fn file_name(file: usize) -> String {
    format!("f{file:06}")
}

/// A size between two, spread evenly over the orders of magnitude.
fn spread(rng: &mut Rng, least: u64, most: u64) -> u64 {
    let at = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
    let (low, high) = ((least as f64).ln(), (most as f64).ln());
    ((low + at * (high - low)).exp() as u64).clamp(least, most)
}

/// Brings `items` into a random order.
pub(crate) fn shuffle<T>(items: &mut [T], rng: &mut Rng) {
    for at in (1..items.len()).rev() {
        items.swap(at, rng.below(at as u64 + 1) as usize);
    }
}

/// Whether bytes are those of a file from `offset` on. It allocates nothing, because the time that
/// a client takes to compare is part of what is measured.
pub(crate) fn is_content(file: usize, offset: u64, bytes: &[u8]) -> bool {
    let skip = ((8 - offset % 8) % 8) as usize;
    let (head, rest) = bytes.split_at(skip.min(bytes.len()));
    let at = offset.div_ceil(8);
    let words = rest.chunks_exact(8);
    let tail = words.remainder();
    let end = at + (rest.len() / 8) as u64;
    let mut differ = 0;
    for (number, found) in words.enumerate() {
        let wanted = u64::from_le_bytes(word(file, at + number as u64));
        differ |= wanted ^ found.try_into().map_or(!wanted, u64::from_le_bytes);
    }
    let first = &word(file, offset / 8)[(offset % 8) as usize..];
    differ == 0 && first.starts_with(head) && word(file, end).starts_with(tail)
}

/// Eight bytes of a file.
fn word(file: usize, at: u64) -> [u8; 8] {
    let mut x = (file as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ at.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ (x >> 31)).to_le_bytes()
}

/// The bytes of a file from `offset` on.
pub(crate) fn content(file: usize, offset: u64, length: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(length + 16);
    let mut at = offset / 8;
    let skip = (offset % 8) as usize;
    while out.len() < length + skip {
        out.extend_from_slice(&word(file, at));
        at += 1;
    }
    out.drain(..skip);
    out.truncate(length);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_has_the_shape_of_the_whole() {
        let (whole, part) = (DataSet::new(1.0), DataSet::new(0.01));
        assert_eq!(whole.files(), 65_113);
        assert_eq!(part.files(), 651 + 1, "rounded");
        for (set, bytes) in [(&whole, BYTES), (&part, BYTES / 100.0)] {
            assert!((set.bytes() as f64 - bytes).abs() < bytes / 100.0, "{}", set.bytes());
        }
        let small = |set: &DataSet| set.sizes.iter().filter(|size| **size <= 128 << 10).count();
        assert_eq!(small(&whole), 11_053 + 1_804 + 49_504);
        assert!(small(&part).abs_diff(small(&whole) / 100) < 3);
    }

    #[test]
    fn content_is_the_same_wherever_it_begins() {
        let whole = content(7, 0, 100);
        assert!((0..90).all(|at| content(7, at, 10) == whole[at as usize..at as usize + 10]));
        assert_ne!(content(8, 0, 100), whole);
    }

    #[test]
    fn every_wrong_byte_is_seen() {
        for (offset, length) in (0..20).flat_map(|offset| (0..40).map(move |length| (offset, length))) {
            let mut bytes = content(7, offset, length);
            assert!(is_content(7, offset, &bytes), "{length} bytes at {offset}");
            assert!(length == 0 || !is_content(7, offset + 8, &bytes), "{length} bytes at {offset}");
            for at in 0..length {
                bytes[at] ^= 1;
                assert!(!is_content(7, offset, &bytes), "byte {at} of {length} at {offset}");
                bytes[at] ^= 1;
            }
        }
    }
}
