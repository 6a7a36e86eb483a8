//! Lists of slices as the bytes that every engine stores: the records of a chunk, 24 each, oldest
//! first, and the names of slices that were replaced, 12 each.

use sluice_types::Slice;

/// Concatenates records.
pub fn encode_slices(slices: &[Slice]) -> Vec<u8> {
    slices.iter().flat_map(Slice::encode).collect()
}

/// Splits records; `None` if the length or a record breaks a rule of the format.
pub fn decode_slices(bytes: &[u8]) -> Option<Vec<Slice>> {
    let (records, rest) = bytes.as_chunks::<{ Slice::BYTES }>();
    if !rest.is_empty() {
        return None;
    }
    records.iter().map(Slice::decode).collect()
}

/// Concatenates ids and sizes of replaced slices.
pub fn encode_replaced(slices: &[(u64, u32)]) -> Vec<u8> {
    let mut out = Vec::with_capacity(12 * slices.len());
    for (id, size) in slices {
        out.extend(id.to_be_bytes());
        out.extend(size.to_be_bytes());
    }
    out
}

/// Splits ids and sizes of replaced slices; `None` if the length is not a multiple of theirs.
pub fn decode_replaced(bytes: &[u8]) -> Option<Vec<(u64, u32)>> {
    let (records, rest) = bytes.as_chunks::<12>();
    let pair = |r: &[u8; 12]| {
        let id = u64::from_be_bytes([r[0], r[1], r[2], r[3], r[4], r[5], r[6], r[7]]);
        (id, u32::from_be_bytes([r[8], r[9], r[10], r[11]]))
    };
    rest.is_empty().then(|| records.iter().map(pair).collect())
}
