//! File locks as the volume stores them.

/// Who holds a lock: a session and, within it, the 64-bit owner the kernel names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LockOwner {
    /// Session.
    pub sid: u64,
    /// Lock owner of the kernel.
    pub owner: u64,
}

/// A BSD lock (`flock(2)`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlockKind {
    /// Shared, stored as `R`.
    Read,
    /// Exclusive, stored as `W`.
    Write,
}

impl FlockKind {
    /// `R` or `W`.
    pub const fn code(self) -> u8 {
        match self {
            Self::Read => b'R',
            Self::Write => b'W',
        }
    }

    /// Reads `R` or `W`.
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            b'R' => Some(Self::Read),
            b'W' => Some(Self::Write),
            _ => None,
        }
    }
}

/// One POSIX record lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlockRange {
    /// Exclusive rather than shared.
    pub write: bool,
    /// Process that took it.
    pub pid: u32,
    /// First byte.
    pub start: u64,
    /// Last byte, inclusive; `0x7FFF_FFFF_FFFF_FFFF` means to the end of the file.
    pub end: u64,
}

impl PlockRange {
    /// Bytes of an encoded range.
    pub const BYTES: usize = 24;

    fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..4].copy_from_slice(&u32::from(self.write).to_be_bytes());
        out[4..8].copy_from_slice(&self.pid.to_be_bytes());
        out[8..16].copy_from_slice(&self.start.to_be_bytes());
        out[16..24].copy_from_slice(&self.end.to_be_bytes());
        out
    }

    fn decode(bytes: &[u8; Self::BYTES]) -> Self {
        let half = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_be_bytes(word)
        };
        Self { write: half(0) >> 32 != 0, pid: half(0) as u32, start: half(8), end: half(16) }
    }
}

/// Concatenates ranges.
pub fn encode_plocks(ranges: &[PlockRange]) -> Vec<u8> {
    ranges.iter().flat_map(PlockRange::encode).collect()
}

/// Splits ranges; `None` if the length is no multiple of 24.
pub fn decode_plocks(bytes: &[u8]) -> Option<Vec<PlockRange>> {
    let (records, rest) = bytes.as_chunks::<{ PlockRange::BYTES }>();
    rest.is_empty().then(|| records.iter().map(PlockRange::decode).collect())
}
