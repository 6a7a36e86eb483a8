//! Which member of a group owns a block: weighted rendezvous hashing.
//!
//! What must stay true: the owner depends on the names and weights of the members alone, so that
//! all clients with the same list agree. If a member joins, only the blocks that it now owns move.
//! If a member leaves, only the blocks that it owned move.

use sluice_data::BlockKey;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// A member, as far as the placement goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share {
    /// Hash of the member's name.
    seed: u64,
    weight: f64,
}

impl Share {
    pub(crate) fn new(name: &str, weight: u32) -> Self {
        Self { seed: xxh3_64_with_seed(name.as_bytes(), 0), weight: f64::from(weight) }
    }

    /// How strongly the member claims a block: `-weight / ln u`, with a uniform `u` from the hash
    /// of both. The largest score owns it. A member of weight 0 claims nothing.
    fn score(self, key: BlockKey) -> f64 {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&key.id.to_le_bytes());
        bytes[8..12].copy_from_slice(&key.index.to_le_bytes());
        bytes[12..].copy_from_slice(&key.size.to_le_bytes());
        // 53 bits are what a double holds; the half keeps `u` between 0 and 1.
        let bits = xxh3_64_with_seed(&bytes, self.seed) >> 11;
        let u = (bits as f64 + 0.5) / (1u64 << 53) as f64;
        -self.weight / u.ln()
    }
}

/// The positions of the members that claim a block most, the owner first; at most `count`. Members
/// of weight 0 and those that `usable` leaves out are none.
pub(crate) fn owners(
    shares: &[Share],
    key: BlockKey,
    count: usize,
    usable: impl Fn(usize) -> bool,
) -> Vec<usize> {
    let mut best: Vec<(f64, usize)> = Vec::with_capacity(count + 1);
    for (at, share) in shares.iter().enumerate() {
        if share.weight == 0.0 || !usable(at) {
            continue;
        }
        let score = share.score(key);
        let place = best.partition_point(|(other, _)| *other > score);
        if place < count {
            best.insert(place, (score, at));
            best.truncate(count);
        }
    }
    best.into_iter().map(|(_, at)| at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(id: u64) -> BlockKey {
        BlockKey { id, index: (id % 7) as u32, size: 4 << 20 }
    }

    fn group(weights: &[u32]) -> Vec<Share> {
        weights.iter().enumerate().map(|(at, weight)| Share::new(&format!("node{at}:9"), *weight)).collect()
    }

    fn owner(shares: &[Share], id: u64) -> Option<usize> {
        owners(shares, key(id), 1, |_| true).first().copied()
    }

    #[test]
    fn blocks_spread_by_weight() {
        let shares = group(&[100, 200, 0, 100]);
        let mut counts = [0i64; 4];
        for id in 0..40_000 {
            counts[owner(&shares, id).expect("an owner")] += 1;
        }
        assert_eq!(counts[2], 0, "a drained member owns nothing");
        for (count, wanted) in counts.into_iter().zip([10_000, 20_000, 0, 10_000]) {
            assert!((count - wanted).abs() < 600, "{counts:?}");
        }
    }

    #[test]
    fn a_member_that_comes_or_goes_moves_only_its_own_blocks() {
        let (few, many) = (group(&[100; 5]), group(&[100; 6]));
        let mut moved = 0;
        for id in 0..20_000 {
            let (before, after) = (owner(&few, id), owner(&many, id));
            if before != after {
                assert_eq!(after, Some(5));
                moved += 1;
            }
            // Without the owner, the second one is asked.
            let both = owners(&few, key(id), 2, |_| true);
            assert_eq!(owners(&few, key(id), 1, |at| at != both[0]), both[1..]);
        }
        assert!((3_000..3_700).contains(&moved), "a sixth moves, not {moved} of 20,000");
    }

    #[test]
    fn the_hash_is_part_of_the_protocol() {
        let shares = group(&[100, 100, 100]);
        let owned: Vec<usize> = (0..16).filter_map(|id| owner(&shares, id)).collect();
        assert_eq!(
            owned,
            [1, 1, 2, 0, 2, 0, 1, 1, 1, 1, 2, 1, 2, 1, 0, 0],
            "clients of different builds have to agree"
        );
        assert!(owners(&[], key(1), 2, |_| true).is_empty());
    }
}
