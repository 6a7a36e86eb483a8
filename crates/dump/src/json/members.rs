//! The objects of a JSON dump that are small enough to be read whole.

use std::collections::BTreeMap;

use serde::Deserialize;
use sluice_meta::schema::{AclEntry, AclRule, Quota};
use sluice_types::{Attr, AttrFlags, Ino, Name, Slice, Time};

use super::{KINDS, escape::unescape};

#[derive(Deserialize)]
pub(super) struct Sustained {
    pub(super) sid: u64,
    /// `null` of none.
    pub(super) inodes: Option<Vec<u64>>,
}

#[derive(Deserialize)]
pub(super) struct DelFile {
    pub(super) inode: u64,
    pub(super) length: u64,
    pub(super) expire: i64,
}

pub(super) type Quotas = BTreeMap<String, Limits>;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Limits {
    #[serde(default)]
    max_space: i64,
    #[serde(default)]
    max_inodes: i64,
}

impl From<Limits> for Quota {
    fn from(limits: Limits) -> Self {
        Self { max_space: limits.max_space, max_inodes: limits.max_inodes, used_space: 0, used_inodes: 0 }
    }
}

#[derive(Deserialize)]
#[serde(default)]
pub(super) struct Attributes {
    inode: u64,
    flags: u8,
    r#type: String,
    mode: u16,
    uid: u32,
    gid: u32,
    atime: i64,
    mtime: i64,
    ctime: i64,
    atimensec: u32,
    mtimensec: u32,
    ctimensec: u32,
    nlink: u32,
    length: u64,
    rdev: u32,
    tier: u8,
}

impl Default for Attributes {
    fn default() -> Self {
        Self {
            inode: 0,
            flags: 0,
            r#type: String::new(),
            mode: 0,
            uid: 0,
            gid: 0,
            atime: 0,
            mtime: 0,
            ctime: 0,
            atimensec: 0,
            mtimensec: 0,
            ctimensec: 0,
            nlink: 1,
            length: 0,
            rdev: 0,
            tier: 0,
        }
    }
}

impl Attributes {
    /// The node's number and attributes.
    ///
    /// # Errors
    /// What is wrong with them.
    pub(super) fn node(&self) -> Result<(Ino, Attr), String> {
        if self.inode == 0 {
            return Err("a node without a number".into());
        }
        let kind = KINDS.iter().find(|(_, name)| *name == self.r#type);
        let Some((kind, _)) = kind else {
            return Err(format!("node {} has the unknown type \"{}\"", self.inode, self.r#type));
        };
        let time = |sec, nsec| Time { sec, nsec };
        let mut attr =
            Attr::new(*kind, self.mode, self.uid, self.gid, Ino(0), time(self.mtime, self.mtimensec));
        attr.flags = AttrFlags(self.flags);
        attr.atime = time(self.atime, self.atimensec);
        attr.ctime = time(self.ctime, self.ctimensec);
        attr.nlink = self.nlink;
        attr.rdev = self.rdev;
        attr.tier = self.tier;
        if !attr.is_dir() {
            attr.length = self.length;
        }
        Ok((Ino(self.inode), attr))
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Xattr {
    name: String,
    /// Whether the name is escaped, because it is not UTF-8. JuiceFS neither writes nor reads this.
    #[serde(default)]
    name_escaped: bool,
    value: String,
}

impl Xattr {
    pub(super) fn pair(&self) -> (Name, bytes::Bytes) {
        let escaped = self.name_escaped.then(|| unescape(&self.name));
        let name = Name::stored(escaped.as_deref().unwrap_or(self.name.as_bytes()));
        (name, unescape(&self.value).into())
    }
}

#[derive(Deserialize)]
pub(super) struct Acl {
    owner: u16,
    group: u16,
    other: u16,
    mask: u16,
    /// `null` of none.
    users: Option<Vec<AclOf>>,
    /// `null` of none.
    groups: Option<Vec<AclOf>>,
}

#[derive(Deserialize)]
struct AclOf {
    id: u32,
    perm: u16,
}

impl From<Acl> for AclRule {
    fn from(acl: Acl) -> Self {
        let entries = |list: Option<Vec<AclOf>>| {
            list.unwrap_or_default().into_iter().map(|AclOf { id, perm }| AclEntry { id, perm }).collect()
        };
        Self {
            owner: acl.owner,
            group: acl.group,
            mask: acl.mask,
            other: acl.other,
            users: entries(acl.users),
            groups: entries(acl.groups),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct Chunk {
    index: u32,
    slices: Vec<Record>,
}

#[derive(Deserialize)]
struct Record {
    /// Old dumps call it `chunkid`.
    #[serde(alias = "chunkid")]
    id: u64,
    #[serde(default)]
    pos: u32,
    size: u32,
    #[serde(default)]
    off: u32,
    len: u32,
}

impl From<Chunk> for (u32, Vec<Slice>) {
    fn from(chunk: Chunk) -> Self {
        let slice = |Record { id, pos, size, off, len }| Slice { pos, id, size, off, len };
        (chunk.index, chunk.slices.into_iter().map(slice).collect())
    }
}
