//! The requests of `.control`, and their encoding.
//!
//! What must stay true: fields that older programs leave out have the defaults that they expect.

use sluice_types::{FsError, FsResult, Ino};

const FILL_CACHE: u32 = 1004;
/// Longest body of a list of paths in bytes, …
const MAX_LIST: usize = 16 << 20;
/// … and most paths in it, which take more memory than their bytes. Programs send up to 10,240 at
/// once.
const MAX_PATHS: usize = 1 << 16;
/// Bytes of the longest path, as of the kernel's.
const MAX_PATH: usize = 4096;
/// Longest body of any other request. The longest valid one has some 300.
const MAX_BYTES: usize = 64 << 10;

/// Longest body of operation `op`, in bytes.
pub(super) const fn longest(op: u32) -> usize {
    if op == FILL_CACHE { MAX_LIST } else { MAX_BYTES }
}

/// What is done with the blocks of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CacheAction {
    /// Fetch them into the cache.
    Warm,
    /// Drop them from the cache.
    Evict,
    /// Count those in the cache.
    Check,
}

impl CacheAction {
    /// Its name in messages.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Warm => "warmup",
            Self::Evict => "warmup --evict",
            Self::Check => "warmup --check",
        }
    }
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Remove a tree.
    Remove { parent: Ino, name: Vec<u8>, skip_trash: bool },
    /// Information about an inode; as text for older programs.
    Info { ino: Ino, recursive: bool, raw: bool, text: bool },
    /// Fetch files and trees into the cache, drop them, or count what is there; with so many
    /// threads, in the background or while the program waits.
    FillCache { paths: Vec<Vec<u8>>, threads: u16, background: bool, action: CacheAction },
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

    fn slice(&mut self, length: usize) -> FsResult<&'a [u8]> {
        let (slice, rest) = self.0.split_at_checked(length).ok_or(FsError::Invalid)?;
        self.0 = rest;
        Ok(slice)
    }

    fn name(&mut self) -> FsResult<Vec<u8>> {
        let length = usize::from(self.u8()?);
        Ok(self.slice(length)?.to_vec())
    }

    /// Bytes with their length, of four bytes, before them.
    fn bytes(&mut self) -> FsResult<&'a [u8]> {
        let length = u32::from_be_bytes(self.take()?) as usize;
        self.slice(length)
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
            FILL_CACHE => {
                let paths = fields.bytes()?.split(|byte| *byte == b'\n');
                if paths.clone().nth(MAX_PATHS).is_some() {
                    return Err(FsError::TooBig);
                }
                if paths.clone().any(|path| path.len() > MAX_PATH) {
                    return Err(FsError::NameTooLong);
                }
                let paths = paths.map(<[u8]>::to_vec).collect();
                let (threads, background) = (fields.u16()?, fields.u8()? != 0);
                let action = match fields.u8_or(0) {
                    0 => CacheAction::Warm,
                    1 => CacheAction::Evict,
                    2 => CacheAction::Check,
                    _ => return Err(FsError::Invalid),
                };
                Self::FillCache { paths, threads, background, action }
            }
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
        let fill = |action, background| Request::FillCache {
            paths: vec![b"/a".to_vec(), b"inode:7".to_vec()],
            threads: 50,
            background,
            action,
        };
        let body = |rest: &[u8]| [&bytes("0000000a")[..], b"/a\ninode:7", &[0, 50], rest].concat();
        assert_eq!(Request::parse(1004, &body(&[1])), Ok(fill(CacheAction::Warm, true)), "an older program");
        assert_eq!(Request::parse(1004, &body(&[0, 1])), Ok(fill(CacheAction::Evict, false)));
        assert_eq!(Request::parse(1004, &body(&[0, 2])), Ok(fill(CacheAction::Check, false)));
        assert_eq!(Request::parse(1004, &body(&[0, 3])), Err(FsError::Invalid));
        assert_eq!(Request::parse(1004, &body(&[])), Err(FsError::Invalid), "cut off");
        let many = [&(MAX_PATHS as u32).to_be_bytes()[..], &vec![b'\n'; MAX_PATHS], &[0, 50, 0, 0]].concat();
        assert_eq!(Request::parse(1004, &many), Err(FsError::TooBig));
        assert_eq!(Request::parse(1002, &remove[..12]), Err(FsError::Invalid), "cut off");
        assert_eq!(Request::parse(9999, &[]), Err(FsError::Invalid));
    }
}
