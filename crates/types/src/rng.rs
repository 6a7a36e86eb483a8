//! Randomness with a seed that can be printed and replayed.

use rand::{RngCore, SeedableRng, rngs::SmallRng};

/// A seeded generator. Not for secrets: ciphers take their keys from the cipher library.
#[derive(Clone, Debug)]
pub struct Rng(SmallRng);

impl Rng {
    /// The generator that `seed` stands for.
    pub fn seeded(seed: u64) -> Self {
        Self(SmallRng::seed_from_u64(seed))
    }

    /// A generator seeded by the operating system.
    pub fn from_os() -> Self {
        Self(SmallRng::from_os_rng())
    }

    /// 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// A number below `bound`, or 0 if `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        if bound == 0 { 0 } else { self.0.next_u64() % bound }
    }

    /// Fills `buffer`.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        self.0.fill_bytes(buffer);
    }
}
