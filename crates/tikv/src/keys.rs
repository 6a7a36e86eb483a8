//! Keys as the placement driver has them: in groups of eight bytes, so that a key never begins with
//! another.

const GROUP: usize = 8;

/// Encodes a key: each group ends with 0xFF less the number of zeros that fill it.
pub(crate) fn encode(key: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity((key.len() / GROUP + 1) * (GROUP + 1));
    let (groups, rest) = key.as_chunks::<GROUP>();
    for group in groups {
        encoded.extend_from_slice(group);
        encoded.push(u8::MAX);
    }
    encoded.extend_from_slice(rest);
    let zeros = GROUP - rest.len();
    encoded.resize(encoded.len() + zeros, 0);
    encoded.push(u8::MAX - zeros as u8);
    encoded
}

/// Decodes a key; the empty one means that there is none.
pub(crate) fn decode(encoded: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = encoded.as_chunks::<{ GROUP + 1 }>();
    let mut key = Vec::with_capacity(groups.len() * GROUP);
    for group in groups {
        let zeros = usize::from(u8::MAX - group[GROUP]);
        key.extend_from_slice(group.get(..GROUP.checked_sub(zeros)?)?);
    }
    rest.is_empty().then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_read_as_they_were_written_and_keep_their_order() {
        let keys: [&[u8]; 6] = [b"", b"\0", b"a", b"a\0", b"abcdefgh", b"abcdefgh\0\xff"];
        for key in keys {
            assert_eq!(decode(&encode(key)).as_deref(), Some(key));
        }
        assert!(keys.iter().map(|key| encode(key)).is_sorted());
        assert_eq!(encode(b"abc"), b"abc\0\0\0\0\0\xfa");
        assert_eq!(decode(b"abc"), None);
        assert_eq!(decode(b""), Some(Vec::new()));
        assert_eq!(decode(b"abc\0\0\0\0\0\0"), None);
    }
}
