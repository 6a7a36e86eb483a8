//! Slices: the pieces a file's chunks are made of (JuiceFS volume format, "slice record").

/// Bytes of a chunk: file offset `o` lies in chunk `o / CHUNK_SIZE`.
pub const CHUNK_SIZE: u64 = 1 << 26;

/// Largest file: 2^31 chunks.
pub const MAX_FILE_SIZE: u64 = CHUNK_SIZE << 31;

/// One record of a chunk: bytes `off .. off + len` of slice `id` are visible at chunk offset `pos`.
/// Later records of a chunk hide earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Offset in the chunk, bytes.
    pub pos: u32,
    /// Slice id; 0 is a hole (zeros).
    pub id: u64,
    /// Full size of the slice in bytes. It names the last block, so it must be exact. 0 for a hole.
    pub size: u32,
    /// First byte of the slice that is visible.
    pub off: u32,
    /// Bytes shown.
    pub len: u32,
}

impl Slice {
    /// Bytes of an encoded record.
    pub const BYTES: usize = 24;

    /// A record of zeros.
    pub const fn hole(pos: u32, len: u32) -> Self {
        Self { pos, id: 0, size: 0, off: 0, len }
    }

    /// A record that shows all of a new slice.
    pub const fn whole(pos: u32, id: u64, size: u32) -> Self {
        Self { pos, id, size, off: 0, len: size }
    }

    /// Whether it is a hole.
    pub const fn is_hole(&self) -> bool {
        self.id == 0
    }

    /// First chunk offset after it.
    pub const fn end(&self) -> u32 {
        self.pos + self.len
    }

    /// The 24 bytes of the volume format, big endian.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[0..4].copy_from_slice(&self.pos.to_be_bytes());
        out[4..12].copy_from_slice(&self.id.to_be_bytes());
        out[12..16].copy_from_slice(&self.size.to_be_bytes());
        out[16..20].copy_from_slice(&self.off.to_be_bytes());
        out[20..24].copy_from_slice(&self.len.to_be_bytes());
        out
    }

    /// Reads an encoded record; `None` if it breaks a rule of the format.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let id = u64::from(u32_at(4)) << 32 | u64::from(u32_at(8));
        let slice = Self { pos: u32_at(0), id, size: u32_at(12), off: u32_at(16), len: u32_at(20) };
        let fits_chunk = u64::from(slice.pos) + u64::from(slice.len) <= CHUNK_SIZE;
        let fits_slice = id == 0 || u64::from(slice.off) + u64::from(slice.len) <= u64::from(slice.size);
        (fits_chunk && fits_slice).then_some(slice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_the_round_trip_and_broken_ones_are_refused() {
        let slice = Slice { pos: 1, id: 0x0102_0304_0506_0708, size: 300, off: 4, len: 200 };
        assert_eq!(Slice::decode(&slice.encode()), Some(slice));
        assert_eq!(Slice::decode(&Slice { off: 200, ..slice }.encode()), None, "reaches past the slice");
        assert_eq!(Slice::decode(&Slice::hole(u32::MAX - 300, 200).encode()), None, "reaches past the chunk");
    }
}
