//! What a lane of a process keeps: the number of its last commit, and what it has not yet added to
//! the volume's totals.
//!
//! Every change of a file system changes the two totals; as keys of their own every commit of every
//! client would meet there. So they ride in the record that the commit writes anyway, and are
//! folded into the totals from time to time, at the latest when the record is removed. What must
//! stay true: the total is the stored number plus what is in all of these records.

use sluice_meta::schema::Counter;

use crate::stored::Damage;

/// The value of a writer record: three 8-byte numbers, big endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Lane {
    /// Number of the last commit.
    pub(crate) n: u64,
    /// Bytes not yet folded.
    pub(crate) space: i64,
    /// Inodes not yet folded.
    pub(crate) inodes: i64,
}

impl Lane {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = self.n.to_be_bytes().to_vec();
        out.extend(self.space.to_be_bytes());
        out.extend(self.inodes.to_be_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, Damage> {
        let ([n, space, inodes], []) = bytes.as_chunks::<8>() else {
            return Err("a writer record is three 8-byte numbers");
        };
        Ok(Self {
            n: u64::from_be_bytes(*n),
            space: i64::from_be_bytes(*space),
            inodes: i64::from_be_bytes(*inodes),
        })
    }

    /// What it adds to a counter.
    pub(crate) fn part_of(&self, counter: Counter) -> i64 {
        match counter {
            Counter::UsedSpace => self.space,
            Counter::TotalInodes => self.inodes,
            _ => 0,
        }
    }

    /// Adds to what is not yet folded.
    pub(crate) fn add(&mut self, counter: Counter, by: i64) {
        match counter {
            Counter::UsedSpace => self.space += by,
            Counter::TotalInodes => self.inodes += by,
            _ => {}
        }
    }
}

/// Whether parts of that counter ride in the writer records.
pub(crate) fn is_spread(counter: Counter) -> bool {
    matches!(counter, Counter::UsedSpace | Counter::TotalInodes)
}
