//! What a lane of a process keeps: the number of its last commit, and what it has not yet added to
//! the volume's totals.
//!
//! Every change of a file system changes the two totals; as keys of their own every commit of every
//! client would meet there. So they ride in the record that the commit writes anyway, and are
//! folded into the totals from time to time, at the latest when the record is removed. What must
//! stay true: the total is the stored number plus what is in all of these records.

use sluice_meta::schema::Counter;

use crate::{
    parts::{numbers, read_numbers},
    stored::Damage,
};

/// The counters of which parts ride in the writer records.
pub(crate) const TOTALS: [Counter; 2] = [Counter::UsedSpace, Counter::TotalInodes];

/// Whether parts of that counter ride in the writer records.
pub(crate) fn is_spread(counter: Counter) -> bool {
    TOTALS.contains(&counter)
}

/// The value of a writer record: three 8-byte numbers, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Number of the last commit.
    pub(crate) n: u64,
    /// What is not yet folded, in the order of [`TOTALS`].
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

    /// What it adds to a counter.
    pub(crate) fn part_of(&self, counter: Counter) -> i64 {
        TOTALS.iter().position(|total| *total == counter).map_or(0, |at| self.parts[at])
    }

    /// Adds to what is not yet folded.
    pub(crate) fn add(&mut self, counter: Counter, by: i64) {
        if let Some(at) = TOTALS.iter().position(|total| *total == counter) {
            self.parts[at] += by;
        }
    }
}
