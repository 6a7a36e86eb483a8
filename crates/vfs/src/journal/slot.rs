//! The format of a journal: the layout of its file, and the records, all of one size.
//!
//! What must stay true: a change of the meaning of anything here raises [`VERSION`].

/// Magic number at the start of a journal.
pub(super) const MAGIC: [u8; 8] = *b"SLUICEJ\n";
/// Version of the format. An unknown one is refused.
pub(super) const VERSION: u32 = 1;
/// Bytes of a record. None crosses a page.
pub(super) const SLOT: usize = 64;

/// Byte offsets of the single records.
pub(super) const SESSION: u64 = SLOT as u64;
pub(super) const NUMBERS: u64 = 2 * SLOT as u64;
/// The number of records that the table has room for.
pub(super) const EXTENT: u64 = 3 * SLOT as u64;

/// The latest effects of requests, as a ring.
pub(super) const RING: u64 = 4096;
/// Records of the ring. An effect is needed only until its request is answered, and by then far
/// fewer others were written.
pub(super) const RING_SLOTS: u64 = 1 << 16;
/// All other records.
pub(super) const TABLE: u64 = 8 << 20;
/// By how many records the table grows.
pub(super) const STEP: u32 = 1024;
/// Bytes that records refer to.
pub(super) const BYTES: u64 = 1 << 40;

/// What a record is about. The numbers are those in the file; 0 is a free place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub(super) enum Kind {
    /// Session id, lanes, fences.
    Session = 1,
    /// Highest handle number that may have been given.
    Numbers = 2,
    /// Records of the table.
    Extent = 3,
    /// An open file: number, inode, request that opened it, flags.
    File = 4,
    /// An open directory: number, inode, request that opened it.
    Dir = 5,
    /// A lock: handle, owner, fences when it was taken; sub 1 for BSD locks, 2 for record locks.
    Lock = 6,
    /// A file with data that is not stored.
    Dirty = 7,
    /// Where a page of an open directory begins: handle, number of the page, place and length of
    /// the bytes.
    Names = 8,
    /// An empty commit with this number took the place of a lost one: from, to.
    Void = 9,
    /// An effect of a request, if commit `words[2]` of its lane happened; sub says which.
    Effect = 10,
    /// An effect of a request that certainly happened.
    Done = 11,
    /// A request is under way.
    Underway = 12,
    /// A handle that still has to report lost data; sub says by which calls.
    Lost = 13,
}

/// A record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) kind: u8,
    pub(super) sub: u8,
    pub(super) lane: u16,
    pub(super) flags: i32,
    pub(super) words: [u64; 4],
}

impl Slot {
    pub(super) fn new(kind: Kind, words: [u64; 4]) -> Self {
        Self { kind: kind as u8, words, ..Self::default() }
    }

    pub(super) fn is(&self, kind: Kind) -> bool {
        self.kind == kind as u8
    }

    pub(super) fn encode(&self) -> [u8; SLOT] {
        let mut bytes = [0; SLOT];
        (bytes[0], bytes[1]) = (self.kind, self.sub);
        bytes[2..4].copy_from_slice(&self.lane.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.flags.to_le_bytes());
        for (place, word) in bytes[8..40].chunks_exact_mut(8).zip(self.words) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Self {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let head = word(0);
        Self {
            kind: bytes[0],
            sub: bytes[1],
            lane: (head >> 16) as u16,
            flags: (head >> 32) as i32,
            words: [word(8), word(16), word(24), word(32)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_it_was_written() {
        let slot = Slot { kind: 4, sub: 3, lane: 0xABCD, flags: -5, words: [1, u64::MAX, 1 << 40, 7] };
        assert_eq!(Slot::decode(&slot.encode()), slot);
        assert_eq!(Slot::decode(&[0; SLOT]), Slot::default());
    }
}
