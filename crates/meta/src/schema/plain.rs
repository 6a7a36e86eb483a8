//! The values of records that are the same bytes in Redis and in the key-value stores.
//!
//! What must stay true: both functions know the same kinds of records. A record of any other kind
//! has a form of its own in each engine.

use std::borrow::Cow;

use bytes::Bytes;

use super::{
    AclRule, Entry, Key, Opaque, Row, decode_attr, decode_changes, decode_replaced, decode_slices,
    encode_attr, encode_changes, encode_replaced, encode_slices,
};

impl Row {
    /// The value; `None` for a chunk without slices, which has none, and for other kinds.
    pub fn plain(&self) -> Option<Vec<u8>> {
        match self {
            Self::Setting(value) | Self::Symlink(_, value) | Self::Xattr(_, _, value) => Some(value.to_vec()),
            Self::Node(_, attr) => Some(encode_attr(attr)),
            Self::Entry(_, _, entry) => Some(entry.encode().to_vec()),
            Self::Chunk(_, _, slices) => (!slices.is_empty()).then(|| encode_slices(slices)),
            Self::DelSlices(_, _, slices) => Some(encode_replaced(slices)),
            Self::Acl(_, rule) => Some(rule.encode()),
            Self::Changes(_, _, _, n, changes) => {
                Some([&n.to_be_bytes()[..], &encode_changes(changes)].concat())
            }
            Self::Extra(_, _, value) => Some(value.0.to_vec()),
            _ => None,
        }
    }

    /// The record of that key and value; `None` for other kinds.
    ///
    /// # Errors
    /// Why the value cannot be decoded.
    pub fn read_plain(key: &Key, value: Cow<'_, [u8]>) -> Result<Option<Self>, &'static str> {
        let own = |value: Cow<'_, [u8]>| Bytes::from(value.into_owned());
        Ok(Some(match key {
            Key::Setting => Self::Setting(own(value)),
            Key::Symlink(ino) => Self::Symlink(*ino, own(value)),
            Key::Xattr(ino, name) => Self::Xattr(*ino, name.clone(), own(value)),
            Key::Node(ino) => Self::Node(*ino, decode_attr(&value).ok_or("no attributes of a node")?),
            Key::Entry(dir, name) => {
                let entry = Entry::decode(&value).ok_or("no 9-byte directory entry")?;
                Self::Entry(*dir, name.clone(), entry)
            }
            Key::Chunk(ino, index) => {
                let slices = decode_slices(&value).ok_or("no list of 24-byte slice records")?;
                Self::Chunk(*ino, *index, slices)
            }
            Key::DelSlices(id, time) => {
                let slices = decode_replaced(&value).ok_or("no list of 12-byte slice names")?;
                Self::DelSlices(*id, *time, slices)
            }
            Key::Acl(id) => Self::Acl(*id, AclRule::decode(&value).ok_or("no ACL rule")?),
            Key::Changes(writer, lane, slot) => {
                let (n, changes) = value.split_first_chunk().ok_or("no number of a commit")?;
                Self::Changes(*writer, *lane, *slot, u64::from_be_bytes(*n), decode_changes(changes))
            }
            Key::Extra(kind, number) => Self::Extra(*kind, *number, Opaque(own(value))),
            _ => return Ok(None),
        }))
    }
}
