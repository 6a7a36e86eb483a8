//! The writer record of a lane: the number of its last commit, and the parts that it has not yet
//! added to the volume's totals.
//!
//! Every change of a file system changes the two totals. If they were keys of their own, the
//! commits of all clients would conflict there. So each lane keeps its additions in the writer
//! record, which its commit writes anyway. These additions are added to the totals periodically,
//! and at the latest when the record is removed. What must stay true: the total is the stored
//! number plus the additions in all writer records.

use sluice_meta::schema::Counter;

use crate::{
    parts::{numbers, read_numbers},
    stored::Damage,
};

/// The counters with parts in the writer records.
pub(crate) const TOTALS: [Counter; 2] = [Counter::UsedSpace, Counter::TotalInodes];

/// Whether a counter has parts in the writer records.
pub(crate) fn is_spread(counter: Counter) -> bool {
    TOTALS.contains(&counter)
}

/// The value of a writer record: three 8-byte numbers, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Number of the last commit.
    pub(crate) n: u64,
    /// The parts that are not folded yet, in the order of [`TOTALS`].
    pub(crate) parts: [i64; 2],
}

impl Lane {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let [space, inodes] = self.parts;
        numbers(&[self.n as i64, space, inodes])
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let [n, space, inodes] = read_numbers(bytes)?;
        Ok(Self { n: n as u64, parts: [space, inodes] })
    }

    /// Its part of a counter.
    pub(crate) fn part_of(&self, counter: Counter) -> i64 {
        TOTALS.iter().position(|total| *total == counter).map_or(0, |at| self.parts[at])
    }

    /// Adds to a part.
    pub(crate) fn add(&mut self, counter: Counter, by: i64) {
        if let Some(at) = TOTALS.iter().position(|total| *total == counter) {
            self.parts[at] += by;
        }
    }
}
