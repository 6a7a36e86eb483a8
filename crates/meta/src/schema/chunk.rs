//! The records of a chunk as the bytes that every engine stores: 24 each, oldest first.

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
