//! The steps of a writer, as a function of its seed and a number, so that the checker can compute
//! them.

use crate::pattern;
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::collections::BTreeMap;

const FILES: usize = 12;

/// One durable change of one file. It counts once the file and its directory were fsynced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A new file under another name, renamed over the old.
    Replace {
        /// Bytes.
        length: usize,
    },
    /// Bytes written in place.
    Write {
        /// Where.
        offset: usize,
        /// Bytes.
        length: usize,
    },
    /// Cut or grown.
    Truncate {
        /// The new size.
        length: usize,
    },
    /// Unlinked.
    Remove,
}

/// Step `number` of a writer: the file, and what happens to it.
pub(super) fn step(seed: u64, number: u64) -> (usize, Step) {
    let mut rng = StdRng::seed_from_u64(seed.rotate_left(32) ^ number);
    let length =
        if rng.random_bool(0.03) { rng.random_range(1..9 << 20) } else { rng.random_range(1..150_000) };
    let step = match rng.random_range(0..20) {
        0..8 => Step::Replace { length },
        8..16 => Step::Write { offset: rng.random_range(0..200_000), length },
        16..18 => Step::Truncate { length },
        _ => Step::Remove,
    };
    (rng.random_range(0..FILES), step)
}

/// The bytes that step `number` writes.
pub(super) fn content(seed: u64, number: u64, length: usize) -> Vec<u8> {
    pattern::bytes(seed.rotate_left(17) ^ number, length)
}

/// The files of a writer as its steps left them.
#[derive(Debug, Default, Clone)]
pub(super) struct Model {
    /// Content by file.
    pub(super) files: BTreeMap<usize, Vec<u8>>,
}

impl Model {
    /// Step `number` has happened.
    pub(super) fn apply(&mut self, seed: u64, number: u64) {
        let (file, step) = step(seed, number);
        match step {
            Step::Replace { length } => {
                self.files.insert(file, content(seed, number, length));
            }
            Step::Write { offset, length } => {
                let bytes = self.files.entry(file).or_default();
                if bytes.len() < offset + length {
                    bytes.resize(offset + length, 0);
                }
                bytes[offset..offset + length].copy_from_slice(&content(seed, number, length));
            }
            Step::Truncate { length } => self.files.entry(file).or_default().resize(length, 0),
            Step::Remove => {
                self.files.remove(&file);
            }
        }
    }

    /// Whether `seen` may be what a crash in the middle of step `number` left of its file: all of
    /// it, nothing of it, or, for bytes in place, any part.
    pub(super) fn allows(&self, seed: u64, number: u64, seen: Option<&[u8]>) -> bool {
        let (file, step) = step(seed, number);
        let before = self.files.get(&file).map(Vec::as_slice);
        let mut after = self.clone();
        after.apply(seed, number);
        let after = after.files.get(&file).map(Vec::as_slice);
        if seen == before || seen == after {
            return true;
        }
        match (step, seen, after) {
            (Step::Write { .. } | Step::Truncate { .. }, Some(seen), Some(after)) => {
                let before = before.unwrap_or_default();
                let least = before.len().min(after.len());
                (least..=before.len().max(after.len())).contains(&seen.len())
                    && seen.iter().enumerate().all(|(at, byte)| {
                        *byte == before.get(at).copied().unwrap_or(0) || Some(byte) == after.get(at)
                    })
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crash_may_leave_some_of_a_write_and_nothing_else() {
        let seed = 3;
        let number =
            (0..1000).find(|number| matches!(step(seed, *number).1, Step::Write { .. })).expect("a write");
        let (file, Step::Write { offset, length }) = step(seed, number) else { unreachable!("found above") };
        let mut model = Model::default();
        model.files.insert(file, vec![1; offset + length]);
        let mut some = vec![1; offset + length];
        some[offset..offset + length / 2].copy_from_slice(&content(seed, number, length)[..length / 2]);
        assert!(model.allows(seed, number, Some(&some)));
        some[offset + length - 1] = 0;
        assert!(!model.allows(seed, number, Some(&some)));
        assert!(!model.allows(seed, number, None));
        assert!(!model.allows(seed, number, Some(&[])));
    }
}
