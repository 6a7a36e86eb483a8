//! The wire format between clients of a cache group: requests, answers, and the encoding of their
//! parts.
//!
//! All numbers are little endian. A request is a head of [`Request::BYTES`] bytes, and a payload
//! for [`Kind::Put`]. An answer is a head of [`Head::BYTES`] bytes, the checksums of its payload,
//! and the payload. What must stay true: an invalid header closes the connection. Every length from
//! the network is checked against its limit.

use std::ops::Range;

use sluice_data::{BlockKey, pages};

/// Version of the protocol.
pub(crate) const PROTOCOL: u8 = 1;
/// Bytes of a block that one checksum covers.
const PAGE: u32 = 32 << 10;
/// Largest block of any volume, bytes.
pub(crate) const MAX_BLOCK: u32 = 16 << 20;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A range of a block. The owner reads the block from the object store if it has to.
    Get = 1,
    /// As `Get`, only if the block is cached.
    GetCached = 2,
    /// Keep this block, which was just uploaded.
    Put = 3,
    /// Read the block into the cache.
    Warm = 4,
    /// Whether the block is cached.
    Has = 5,
    /// Drop the block from the cache.
    Evict = 6,
    /// The list of members.
    List = 7,
}

impl Kind {
    fn parse(byte: u8) -> Option<Self> {
        [Self::Get, Self::GetCached, Self::Put, Self::Warm, Self::Has, Self::Evict, Self::List]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// The head of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The client's number for it, which the answer repeats.
    pub id: u32,
    /// What is asked for.
    pub kind: Kind,
    /// Version of the list of members that the client has.
    pub version: u64,
    /// The block.
    pub key: BlockKey,
    /// Bytes of the block that are wanted; for `Put`, all.
    pub range: Range<u32>,
}

impl Request {
    /// Its length.
    pub const BYTES: usize = 44;

    /// Appends its bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.id.to_le_bytes());
        out.extend_from_slice(&[self.kind as u8, 0, 0, 0]);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.key.id.to_le_bytes());
        for number in [self.key.index, self.key.size, self.range.start, self.range.end - self.range.start] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let sum = crc32c::crc32c(&out[out.len() - (Self::BYTES - 4)..]);
        out.extend_from_slice(&sum.to_le_bytes());
    }

    /// `None` if these bytes are no request, or ask for what no block has.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u32_at(Self::BYTES - 4) != crc32c::crc32c(&bytes[..Self::BYTES - 4]) {
            return None;
        }
        let u64_at = |at: usize| u64::from(u32_at(at)) | u64::from(u32_at(at + 4)) << 32;
        let key = BlockKey { id: u64_at(16), index: u32_at(24), size: u32_at(28) };
        let (start, length) = (u32_at(32), u32_at(36));
        let end = start.checked_add(length).filter(|end| *end <= key.size && key.size <= MAX_BLOCK)?;
        Some(Self { id: u32_at(0), kind: Kind::parse(bytes[4])?, version: u64_at(8), key, range: start..end })
    }

    /// Bytes that follow the head.
    pub fn payload(&self) -> usize {
        if self.kind == Kind::Put { self.key.size as usize } else { 0 }
    }
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Status {
    /// The payload is what was asked for.
    Done = 0,
    /// The answer will take longer: the block is read from the object store. Another one follows.
    Wait = 1,
    /// The block is not cached, or there is no room for it.
    Missing = 2,
    /// The object store did not give the block, or the member has too much to do. The client reads
    /// the object store itself.
    Failed = 3,
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the request.
    pub id: u32,
    /// How it ended.
    pub status: Status,
    /// How many checksums come before the payload.
    pub sums: u16,
    /// Bytes of the payload.
    pub length: u32,
    /// Version of the list of members that the server has.
    pub version: u64,
}

impl Head {
    /// Its length.
    pub const BYTES: usize = 24;

    /// Its bytes.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.id.to_le_bytes());
        out[4] = self.status as u8;
        out[6..8].copy_from_slice(&self.sums.to_le_bytes());
        out[8..12].copy_from_slice(&self.length.to_le_bytes());
        out[12..20].copy_from_slice(&self.version.to_le_bytes());
        let sum = crc32c::crc32c(&out[..20]);
        out[20..].copy_from_slice(&sum.to_le_bytes());
        out
    }

    /// `None` if these bytes are no answer, or too long.
    pub fn decode(bytes: &[u8; Self::BYTES]) -> Option<Self> {
        let u32_at = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if u32_at(20) != crc32c::crc32c(&bytes[..20]) {
            return None;
        }
        let statuses = [Status::Done, Status::Wait, Status::Missing, Status::Failed];
        let status = statuses.into_iter().find(|status| *status as u8 == bytes[4])?;
        let mut version = [0; 8];
        version.copy_from_slice(&bytes[12..20]);
        let sums = u16::from_le_bytes([bytes[6], bytes[7]]);
        let length = u32_at(8);
        let fits = length <= MAX_BLOCK && u32::from(sums) <= MAX_BLOCK / PAGE + 1;
        let version = u64::from_le_bytes(version);
        fits.then_some(Self { id: u32_at(0), status, sums, length, version })
    }
}

/// The checksums of `bytes`, which are the range `range` of a block.
pub(crate) fn sums(range: &Range<u32>, bytes: &[u8]) -> Vec<u32> {
    let part =
        |page: Range<u32>| &bytes[(page.start - range.start) as usize..(page.end - range.start) as usize];
    pages(range).map(|page| crc32c::crc32c(part(page))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_frame_is_refused() {
        let key = BlockKey { id: 7, index: 1, size: 100 };
        let request = Request { id: 9, kind: Kind::Get, version: 1 << 40, key, range: 10..100 };
        let mut bytes = Vec::new();
        request.encode(&mut bytes);
        let bytes: [u8; Request::BYTES] = bytes.try_into().expect("its length");
        assert_eq!(Request::decode(&bytes), Some(request.clone()));
        for at in 0..bytes.len() {
            let mut wrong = bytes;
            wrong[at] ^= 0x40;
            assert_eq!(Request::decode(&wrong), None, "byte {at}");
        }
        for (key, range) in [
            (BlockKey { size: 99, ..key }, 10..100),
            (BlockKey { size: MAX_BLOCK + 1, ..key }, 0..1),
            (key, 100..101),
        ] {
            let mut bytes = Vec::new();
            Request { key, range, ..request.clone() }.encode(&mut bytes);
            assert_eq!(Request::decode(&bytes.try_into().expect("its length")), None);
        }
    }

    proptest! {
        #[test]
        fn heads_come_back(id: u32, status in 0u8..4, sums in 0u16..512, length in 0..=MAX_BLOCK, version: u64) {
            let status = [Status::Done, Status::Wait, Status::Missing, Status::Failed][status as usize];
            let head = Head { id, status, sums, length, version };
            prop_assert_eq!(Head::decode(&head.encode()), Some(head));
        }

        #[test]
        fn pages_cover_a_range(start in 0u32..200_000, length in 0u32..200_000) {
            let parts: Vec<_> = pages(&(start..start + length)).collect();
            prop_assert_eq!(parts.iter().map(|part| part.end - part.start).sum::<u32>(), length);
            prop_assert!(parts.windows(2).all(|two| two[0].end == two[1].start && two[1].start % PAGE == 0));
        }
    }
}
