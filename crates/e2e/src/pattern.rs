//! Byte patterns for tests. Each byte is a function of the number of the pattern and of its offset,
//! so the expected content need not be stored.

/// `length` bytes of pattern `number`. Different numbers differ nearly everywhere; none is all
/// zeros.
pub fn bytes(number: u64, length: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(length + 8);
    while out.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(length);
    out
}

/// A fingerprint of bytes (FNV-1a over words), to compare and to print.
pub fn fingerprint(bytes: &[u8]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for chunk in bytes.chunks(8) {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        hash = (hash ^ u64::from_le_bytes(word)).wrapping_mul(0x0000_0100_0000_01b3);
        hash ^= hash >> 29;
    }
    hash ^ bytes.len() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_and_fingerprints_tell_apart() {
        assert_eq!(bytes(7, 1000), bytes(7, 1000));
        assert_eq!(bytes(7, 1000)[..100], bytes(7, 100)[..]);
        assert_ne!(bytes(7, 100), bytes(8, 100));
        assert_ne!(fingerprint(&bytes(7, 100)), fingerprint(&bytes(7, 101)));
        let mut flipped = bytes(7, 100);
        flipped[99] ^= 1;
        assert_ne!(fingerprint(&flipped), fingerprint(&bytes(7, 100)));
    }
}
