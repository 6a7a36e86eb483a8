//! A random choice with weights.

use sluice_types::Rng;

/// Things with their weights.
#[derive(Clone, Debug)]
pub struct Mix<T>(Vec<(T, u64)>);

impl<T: Copy> Mix<T> {
    /// As it says.
    pub(crate) fn of(weights: &[(T, u64)]) -> Self {
        Self(weights.to_vec())
    }

    /// About half of `all`, each with a weight of its own, and `least` in any case.
    pub(crate) fn drawn(all: &[T], least: T, rng: &mut Rng) -> Self {
        let mut mix = vec![(least, 1)];
        for one in all {
            if rng.below(2) == 0 {
                mix.push((*one, 1 << rng.below(4)));
            }
        }
        Self(mix)
    }

    /// The next; `below` draws a number below its bound.
    pub(crate) fn next(&self, below: impl Fn(u64) -> u64) -> T {
        let mut drawn = below(self.0.iter().map(|(_, weight)| weight).sum());
        for (one, weight) in &self.0 {
            if drawn < *weight {
                return *one;
            }
            drawn -= weight;
        }
        self.0[0].0
    }
}
