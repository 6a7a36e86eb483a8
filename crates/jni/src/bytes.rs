//! Encodes records for Java: numbers are big endian; a byte string follows its length.
//!
//! What must stay true: `io.sluice.Attributes` reads what `put_attr` writes.

use sluice_fs::{Attr, FileType, Ino, Time};

/// Milliseconds of a time, as Java counts them.
pub(crate) const fn millis(time: Time) -> i64 {
    time.nanos().div_euclid(1_000_000)
}

/// Appends the attributes of a node.
pub(crate) fn put_attr(record: &mut Vec<u8>, ino: Ino, attr: &Attr) {
    record.extend(ino.0.to_be_bytes());
    record.push(match attr.kind {
        FileType::File => 0,
        FileType::Dir => 1,
        FileType::Symlink => 2,
        _ => 3,
    });
    record.push(u8::from(attr.access_acl != 0 || attr.default_acl != 0));
    record.extend(u32::from(attr.mode).to_be_bytes());
    record.extend(attr.uid.to_be_bytes());
    record.extend(attr.gid.to_be_bytes());
    record.extend(attr.nlink.to_be_bytes());
    record.extend(attr.length.to_be_bytes());
    record.extend(attr.mtime.nanos().to_be_bytes());
    record.extend(millis(attr.atime).to_be_bytes());
}

/// Appends bytes after their length.
pub(crate) fn put_bytes(record: &mut Vec<u8>, bytes: &[u8]) {
    record.extend((bytes.len() as u32).to_be_bytes());
    record.extend(bytes);
}

/// Takes texts and other bytes out of a record again.
pub(crate) struct Reader<'r>(pub(crate) &'r [u8]);

impl<'r> Iterator for Reader<'r> {
    type Item = &'r [u8];

    fn next(&mut self) -> Option<&'r [u8]> {
        let (length, rest) = self.0.split_first_chunk::<4>()?;
        let (bytes, rest) = rest.split_at_checked(u32::from_be_bytes(*length) as usize)?;
        self.0 = rest;
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_back() {
        let mut record = Vec::new();
        put_bytes(&mut record, b"one");
        put_bytes(&mut record, b"");
        assert_eq!(Reader(&record).collect::<Vec<_>>(), [&b"one"[..], b""]);
        assert_eq!(Reader(&record[..5]).count(), 0, "what was cut off is left out");
    }
}
