//! A directory entry: a name, its node and type.

use sluice_types::{FileType, Ino};

/// What a name stands for. `kind` always equals the kind of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind of the node.
    pub kind: FileType,
    /// The node.
    pub ino: Ino,
}

impl Entry {
    /// The 9 bytes of Redis and TiKV: type, then inode big endian.
    pub fn encode(&self) -> [u8; 9] {
        let mut out = [0; 9];
        out[0] = self.kind as u8;
        out[1..].copy_from_slice(&self.ino.0.to_be_bytes());
        out
    }

    /// Reads the 9 bytes; `None` if they are something else.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; 9] = bytes.try_into().ok()?;
        let (kind, ino) = bytes.split_first()?;
        let ino = Ino(u64::from_be_bytes(ino.try_into().ok()?));
        Some(Self { kind: FileType::from_code(*kind)?, ino })
    }
}
