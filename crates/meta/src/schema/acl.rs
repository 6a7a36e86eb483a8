//! POSIX ACL rules: their stored form, and the permissions that they grant.
//!
//! Rules are shared by id and never deleted. `0xFFFF` in one of the four base fields means "not
//! set".

use sluice_types::{Access, Attr, Caller, FsError, FsResult};

/// "Not set" in one of the base fields.
pub const UNSET: u16 = 0xFFFF;

/// Permission of one named user or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AclEntry {
    /// User or group id.
    pub id: u32,
    /// Permission bits, 0 to 7.
    pub perm: u16,
}

/// One ACL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AclRule {
    /// Owner's permission.
    pub owner: u16,
    /// Owning group's permission.
    pub group: u16,
    /// Upper bound for all but owner and other.
    pub mask: u16,
    /// Everybody else's permission.
    pub other: u16,
    /// Named users.
    pub users: Vec<AclEntry>,
    /// Named groups.
    pub groups: Vec<AclEntry>,
}

const VERSION: u32 = 2;
const UNDEFINED_ID: u32 = 0xFFFF_FFFF;
const TAG_OWNER: u16 = 0x01;
const TAG_USER: u16 = 0x02;
const TAG_GROUP_OWNER: u16 = 0x04;
const TAG_GROUP: u16 = 0x08;
const TAG_MASK: u16 = 0x10;
const TAG_OTHER: u16 = 0x20;

impl AclRule {
    /// A rule with nothing set.
    pub const fn empty() -> Self {
        Self { owner: UNSET, group: UNSET, mask: UNSET, other: UNSET, users: Vec::new(), groups: Vec::new() }
    }

    /// Whether it says no more than the nine mode bits do.
    pub fn is_minimal(&self) -> bool {
        self.users.is_empty() && self.groups.is_empty() && self.mask == UNSET
    }

    /// The nine mode bits that stand for this rule: the group bits are the mask where there is one.
    pub const fn mode(&self) -> u16 {
        let group = if self.mask == UNSET { self.group } else { self.mask };
        (self.owner & 7) << 6 | (group & 7) << 3 | self.other & 7
    }

    /// The rule after `chmod` to `mode`: owner, mask (group if there is none) and other replaced.
    #[must_use]
    pub fn chmod(&self, mode: u16) -> Self {
        let mut rule = self.clone();
        rule.owner = mode >> 6 & 7;
        rule.other = mode & 7;
        if rule.mask == UNSET && rule.is_minimal() {
            rule.group = mode >> 3 & 7;
        } else {
            rule.mask = mode >> 3 & 7;
        }
        rule
    }

    /// The access rule of a child made with `mode` under a directory whose default ACL this is.
    #[must_use]
    pub fn inherit(&self, mode: u16) -> Self {
        let mut rule = self.clone();
        rule.owner &= mode >> 6 & 7;
        rule.other &= mode & 7;
        if rule.mask == UNSET {
            rule.group &= mode >> 3 & 7;
        } else {
            rule.mask &= mode >> 3 & 7;
        }
        rule
    }

    /// Checks whether this access ACL of a node with `attr` grants `access`.
    pub fn check(&self, attr: &Attr, caller: &Caller, access: Access) -> FsResult<()> {
        let wanted = u16::from(access.0);
        let grants = |perm: u16| perm & wanted == wanted;
        let masked = |perm: u16| grants(if self.mask == UNSET { perm } else { perm & self.mask });
        let granted = if caller.passes_modes() {
            true
        } else if caller.uid == attr.uid {
            grants(self.owner)
        } else if let Some(user) = self.users.iter().find(|user| user.id == caller.uid) {
            masked(user.perm)
        } else {
            let mut matched = false;
            let mut granted = false;
            if caller.in_group(attr.gid) {
                matched = true;
                granted = masked(self.group);
            }
            for group in self.groups.iter().filter(|group| caller.in_group(group.id)) {
                matched = true;
                granted |= masked(group.perm);
            }
            if matched { granted } else { grants(self.other) }
        };
        if granted { Ok(()) } else { Err(FsError::Access) }
    }

    /// The stored form of Redis and TiKV: four u16, then both lists, each a u32 count and 6 bytes
    /// an entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(16 + 6 * (self.users.len() + self.groups.len()));
        for base in [self.owner, self.group, self.mask, self.other] {
            out.extend(base.to_be_bytes());
        }
        for list in [&self.users, &self.groups] {
            out.extend((list.len() as u32).to_be_bytes());
            out.extend(Self::encode_entries(list));
        }
        out
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (base, mut rest) = bytes.split_first_chunk::<8>()?;
        let at = |i: usize| u16::from_be_bytes([base[i], base[i + 1]]);
        let mut lists = [Vec::new(), Vec::new()];
        for list in &mut lists {
            let (count, tail) = rest.split_first_chunk::<4>()?;
            let length = (u32::from_be_bytes(*count) as usize).checked_mul(6)?;
            let (entries, tail) = tail.split_at_checked(length)?;
            *list = Self::decode_entries(entries)?;
            rest = tail;
        }
        let [users, groups] = lists;
        Some(Self { owner: at(0), group: at(2), mask: at(4), other: at(6), users, groups })
    }

    /// The 6-byte entries of a list, as the SQL columns hold them.
    pub fn encode_entries(list: &[AclEntry]) -> Vec<u8> {
        list.iter()
            .flat_map(|entry| {
                let mut out = [0; 6];
                out[..4].copy_from_slice(&entry.id.to_be_bytes());
                out[4..].copy_from_slice(&entry.perm.to_be_bytes());
                out
            })
            .collect()
    }

    /// Reads 6-byte entries.
    pub fn decode_entries(bytes: &[u8]) -> Option<Vec<AclEntry>> {
        let (entries, rest) = bytes.as_chunks::<6>();
        rest.is_empty().then(|| {
            entries
                .iter()
                .map(|e| AclEntry {
                    id: u32::from_be_bytes([e[0], e[1], e[2], e[3]]),
                    perm: u16::from_be_bytes([e[4], e[5]]),
                })
                .collect()
        })
    }

    /// The value of `system.posix_acl_access` and `_default` (Linux xattr layout, version 2, little
    /// endian).
    pub fn to_xattr(&self) -> Vec<u8> {
        let mut out = Vec::from(VERSION.to_le_bytes());
        let mut push = |tag: u16, perm: u16, id: u32| {
            out.extend(tag.to_le_bytes());
            out.extend(perm.to_le_bytes());
            out.extend(id.to_le_bytes());
        };
        push(TAG_OWNER, self.owner, UNDEFINED_ID);
        self.users.iter().for_each(|user| push(TAG_USER, user.perm, user.id));
        push(TAG_GROUP_OWNER, self.group, UNDEFINED_ID);
        self.groups.iter().for_each(|group| push(TAG_GROUP, group.perm, group.id));
        if self.mask != UNSET {
            push(TAG_MASK, self.mask, UNDEFINED_ID);
        }
        push(TAG_OTHER, self.other, UNDEFINED_ID);
        out
    }

    /// Reads an xattr value.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is no valid ACL, [`FsError::NotSupported`] for another version.
    pub fn from_xattr(bytes: &[u8]) -> FsResult<Self> {
        let (version, entries) = bytes.split_first_chunk::<4>().ok_or(FsError::Invalid)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(FsError::NotSupported);
        }
        let (entries, rest) = entries.as_chunks::<8>();
        if !rest.is_empty() {
            return Err(FsError::Invalid);
        }
        let mut rule = Self::empty();
        for e in entries {
            let (tag, perm) = (u16::from_le_bytes([e[0], e[1]]), u16::from_le_bytes([e[2], e[3]]));
            let id = u32::from_le_bytes([e[4], e[5], e[6], e[7]]);
            let base = match tag {
                TAG_USER => {
                    rule.users.push(AclEntry { id, perm });
                    continue;
                }
                TAG_GROUP => {
                    rule.groups.push(AclEntry { id, perm });
                    continue;
                }
                TAG_OWNER => &mut rule.owner,
                TAG_GROUP_OWNER => &mut rule.group,
                TAG_MASK => &mut rule.mask,
                TAG_OTHER => &mut rule.other,
                _ => return Err(FsError::Invalid),
            };
            if *base != UNSET || perm > 7 {
                return Err(FsError::Invalid);
            }
            *base = perm;
        }
        let named = !rule.users.is_empty() || !rule.groups.is_empty();
        let complete = rule.owner != UNSET && rule.group != UNSET && rule.other != UNSET;
        if !entries.is_empty() && (!complete || named && rule.mask == UNSET) {
            return Err(FsError::Invalid);
        }
        Ok(rule)
    }
}
