//! The requests of `.control`, and their encoding.
//!
//! What must stay true: fields that older programs leave out have the defaults that they expect.

use sluice_types::{FsError, FsResult, Ino};

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Remove a tree.
    Remove { parent: Ino, name: Vec<u8>, skip_trash: bool },
    /// Information about an inode; as text for older programs.
    Info { ino: Ino, recursive: bool, raw: bool, text: bool },
    /// Fetch files into the cache, or drop them.
    FillCache,
    /// Clone a tree.
    Clone { source: Ino, parent: Ino, name: Vec<u8>, umask: u16, preserve: bool },
    /// Count a tree.
    Summary { ino: Ino, depth: u8, top: u8 },
    /// Compact the chunks of a tree.
    Compact { ino: Ino, threads: u16 },
}

/// The bytes that are left.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take<const N: usize>(&mut self) -> FsResult<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>().ok_or(FsError::Invalid)?;
        self.0 = rest;
        Ok(*field)
    }

    fn u64(&mut self) -> FsResult<u64> {
        Ok(u64::from_be_bytes(self.take()?))
    }

    fn u16(&mut self) -> FsResult<u16> {
        Ok(u16::from_be_bytes(self.take()?))
    }

    fn u8(&mut self) -> FsResult<u8> {
        Ok(self.take::<1>()?[0])
    }

    /// A field that may be left out.
    fn u8_or(&mut self, default: u8) -> u8 {
        self.u8().unwrap_or(default)
    }

    fn name(&mut self) -> FsResult<Vec<u8>> {
        let length = usize::from(self.u8()?);
        let (name, rest): (&'a [u8], _) = self.0.split_at_checked(length).ok_or(FsError::Invalid)?;
        self.0 = rest;
        Ok(name.to_vec())
    }
}

impl Request {
    /// Reads operation `op` with its body.
    pub(super) fn parse(op: u32, body: &[u8]) -> FsResult<Self> {
        let mut fields = Fields(body);
        Ok(match op {
            1002 => {
                let (parent, name) = (Ino(fields.u64()?), fields.name()?);
                Self::Remove { parent, name, skip_trash: fields.u8_or(0) & 1 == 1 }
            }
            1003 | 1005 => {
                let legacy = op == 1003;
                let ino = Ino(fields.u64()?);
                let recursive = fields.u8_or(u8::from(!legacy)) == 1;
                Self::Info { ino, recursive, raw: fields.u8_or(0) == 1, text: legacy }
            }
            1004 => Self::FillCache,
            1006 => {
                let (source, _, parent) = (Ino(fields.u64()?), fields.u64()?, Ino(fields.u64()?));
                let (name, umask) = (fields.name()?, fields.u16()?);
                Self::Clone { source, parent, name, umask, preserve: fields.u8_or(0) & 2 != 0 }
            }
            1007 => {
                let ino = Ino(fields.u64()?);
                Self::Summary { ino, depth: fields.u8_or(3), top: fields.u8_or(10) }
            }
            1008 => {
                let ino = Ino(fields.u64()?);
                Self::Compact { ino, threads: fields.u16().unwrap_or(1) }
            }
            _ => return Err(FsError::Invalid),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn requests_of_other_clients_are_understood() {
        let clone = bytes(
            "0000000000000002000000000000000100000000000000010663 6c6f6e6532001200 04"
                .replace(' ', "")
                .as_str(),
        );
        let name = b"clone2".to_vec();
        let (source, parent) = (Ino(2), Ino(1));
        assert_eq!(
            Request::parse(1006, &clone),
            Ok(Request::Clone { source, parent, name: name.clone(), umask: 0x12, preserve: false })
        );
        let remove = bytes("000000000000000106636c6f6e65320114");
        assert_eq!(Request::parse(1002, &remove), Ok(Request::Remove { parent, name, skip_trash: true }));
        let info = bytes("000000000000000f010100");
        let expected = Request::Info { ino: Ino(15), recursive: true, raw: true, text: false };
        assert_eq!(Request::parse(1005, &info), Ok(expected));
        assert_eq!(
            Request::parse(1007, &bytes("0000000000000002")),
            Ok(Request::Summary { ino: Ino(2), depth: 3, top: 10 })
        );
        assert_eq!(
            Request::parse(1008, &bytes("0000000000000002000a")),
            Ok(Request::Compact { ino: Ino(2), threads: 10 })
        );
        assert_eq!(Request::parse(1002, &remove[..12]), Err(FsError::Invalid), "cut off");
        assert_eq!(Request::parse(9999, &[]), Err(FsError::Invalid));
    }
}
