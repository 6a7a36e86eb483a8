//! The binary form of attributes that Redis, TiKV and binary dumps share.
//!
//! 71 bytes, then both ACL ids if either is set, then the tier if set, then always one byte of
//! padding: 72, 73, 80 or 81 bytes in all (JuiceFS volume format, "Binary layout").

use sluice_types::{Attr, AttrFlags, FileType, Ino, Time};

/// Encodes `attr`.
pub fn encode_attr(attr: &Attr) -> Vec<u8> {
    let mut out = Vec::with_capacity(81);
    out.push(attr.flags.0);
    out.extend(((attr.kind as u16) << 12 | attr.mode & 0xFFF).to_be_bytes());
    out.extend(attr.uid.to_be_bytes());
    out.extend(attr.gid.to_be_bytes());
    for time in [attr.atime, attr.mtime, attr.ctime] {
        out.extend(time.sec.to_be_bytes());
        out.extend(time.nsec.to_be_bytes());
    }
    out.extend(attr.nlink.to_be_bytes());
    out.extend(attr.length.to_be_bytes());
    out.extend(attr.rdev.to_be_bytes());
    out.extend(attr.parent.0.to_be_bytes());
    if attr.access_acl != 0 || attr.default_acl != 0 {
        out.extend(attr.access_acl.to_be_bytes());
        out.extend(attr.default_acl.to_be_bytes());
    }
    if attr.tier != 0 {
        out.push(attr.tier);
    }
    out.push(0);
    out
}

/// Decodes attributes; `None` if they are too short or of an unknown type.
pub fn decode_attr(bytes: &[u8]) -> Option<Attr> {
    let mut at = Cursor(bytes);
    let flags = AttrFlags(at.take::<1>()?[0]);
    let type_mode = u16::from_be_bytes(at.take()?);
    let uid = u32::from_be_bytes(at.take()?);
    let gid = u32::from_be_bytes(at.take()?);
    let (atime, mtime, ctime) = (at.time()?, at.time()?, at.time()?);
    let nlink = u32::from_be_bytes(at.take()?);
    let length = u64::from_be_bytes(at.take()?);
    let rdev = u32::from_be_bytes(at.take()?);
    let parent = Ino(at.take().map_or(0, u64::from_be_bytes));
    let (access_acl, default_acl) = match at.take::<8>() {
        Some(ids) => {
            let ids = u64::from_be_bytes(ids);
            ((ids >> 32) as u32, ids as u32)
        }
        None => (0, 0),
    };
    let tier = at.take::<1>().map_or(0, |b| b[0]);
    let kind = FileType::from_code((type_mode >> 12) as u8)?;
    let mode = type_mode & 0xFFF;
    Some(Attr {
        flags,
        kind,
        mode,
        uid,
        gid,
        atime,
        mtime,
        ctime,
        nlink,
        length,
        rdev,
        parent,
        access_acl,
        default_acl,
        tier,
    })
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk()?;
        self.0 = tail;
        Some(*head)
    }

    fn time(&mut self) -> Option<Time> {
        Some(Time { sec: i64::from_be_bytes(self.take()?), nsec: u32::from_be_bytes(self.take()?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_four_lengths_of_the_format() {
        let plain = Attr::new(FileType::File, 0o644, 1, 2, Ino(7), Time { sec: 3, nsec: 4 });
        for (attr, length) in [
            (plain, 72),
            (Attr { tier: 2, ..plain }, 73),
            (Attr { access_acl: 1, ..plain }, 80),
            (Attr { default_acl: 1, tier: 3, ..plain }, 81),
        ] {
            let bytes = encode_attr(&attr);
            assert_eq!(bytes.len(), length);
            assert_eq!(decode_attr(&bytes), Some(attr));
        }
        assert_eq!(decode_attr(&encode_attr(&plain)[..71]), Some(plain), "the pad byte may be missing");
        assert_eq!(decode_attr(&encode_attr(&plain)[..60]), None);
    }
}
