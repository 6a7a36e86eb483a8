//! POSIX ACLs.

use std::ffi::c_char;

use sluice_fs::{Acl, AclEntry, AclRule};

use crate::{
    border::{Outcome, invalid, number, status},
    handles,
    memory::{text, values, write_values},
    structs::SluiceAclEntry,
};

/// Which ACL: the one that decides who may do what.
pub const SLUICE_ACL_ACCESS: u32 = 0;
/// Which ACL: the one that new children of a directory inherit.
pub const SLUICE_ACL_DEFAULT: u32 = 1;

/// An entry for the owner.
pub const SLUICE_ACL_USER_OBJ: u32 = 0x01;
/// An entry for a user by id.
pub const SLUICE_ACL_USER: u32 = 0x02;
/// An entry for the group of the file.
pub const SLUICE_ACL_GROUP_OBJ: u32 = 0x04;
/// An entry for a group by id.
pub const SLUICE_ACL_GROUP: u32 = 0x08;
/// The upper bound of what users and groups by id and the group of the file may do.
pub const SLUICE_ACL_MASK: u32 = 0x10;
/// An entry for everybody else.
pub const SLUICE_ACL_OTHER: u32 = 0x20;

/// What an ACL has in place of permissions that it does not state.
const UNSET: u16 = 0xFFFF;

/// Reads an ACL into up to `count` entries. Returns their number; 0 if there is no ACL, and the
/// mode says it all; `-ERANGE` if they do not fit. With `count` 0 only the number is returned.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_getacl(
    volume: i64,
    path: *const c_char,
    which: u32,
    entries: *mut SluiceAclEntry,
    count: usize,
) -> i64 {
    number(|| {
        let rule = handles::view(volume)?.fs.acl(text(path)?, kind(which)?)?;
        let found = rule.map(|rule| to_entries(&rule)).unwrap_or_default();
        write_values(entries, count, &found)
    })
}

/// Sets an ACL to `count` entries. With `count` 0 the ACL is removed.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_setacl(
    volume: i64,
    path: *const c_char,
    which: u32,
    entries: *const SluiceAclEntry,
    count: usize,
) -> i32 {
    status(|| {
        let entries = values(entries, count)?;
        let rule = if entries.is_empty() { None } else { Some(to_rule(entries)?) };
        Ok(handles::view(volume)?.fs.set_acl(text(path)?, kind(which)?, rule.as_ref())?)
    })
}

fn kind(which: u32) -> Outcome<Acl> {
    match which {
        SLUICE_ACL_ACCESS => Ok(Acl::Access),
        SLUICE_ACL_DEFAULT => Ok(Acl::Default),
        _ => Err(invalid(format!("there is no ACL of kind {which}"))),
    }
}

fn to_entries(rule: &AclRule) -> Vec<SluiceAclEntry> {
    let one = |tag, id, perm: u16| SluiceAclEntry { tag, id, perm: perm.into() };
    let mut entries = vec![one(SLUICE_ACL_USER_OBJ, 0, rule.owner)];
    entries.extend(rule.users.iter().map(|entry| one(SLUICE_ACL_USER, entry.id, entry.perm)));
    entries.push(one(SLUICE_ACL_GROUP_OBJ, 0, rule.group));
    entries.extend(rule.groups.iter().map(|entry| one(SLUICE_ACL_GROUP, entry.id, entry.perm)));
    if rule.mask != UNSET {
        entries.push(one(SLUICE_ACL_MASK, 0, rule.mask));
    }
    entries.push(one(SLUICE_ACL_OTHER, 0, rule.other));
    entries
}

fn to_rule(entries: &[SluiceAclEntry]) -> Outcome<AclRule> {
    let mut rule = AclRule::empty();
    for entry in entries {
        if entry.perm > 7 {
            return Err(invalid(format!("permissions of an ACL: {}", entry.perm)));
        }
        let perm = entry.perm as u16;
        let named = AclEntry { id: entry.id, perm };
        match entry.tag {
            SLUICE_ACL_USER_OBJ => rule.owner = perm,
            SLUICE_ACL_USER => rule.users.push(named),
            SLUICE_ACL_GROUP_OBJ => rule.group = perm,
            SLUICE_ACL_GROUP => rule.groups.push(named),
            SLUICE_ACL_MASK => rule.mask = perm,
            SLUICE_ACL_OTHER => rule.other = perm,
            tag => return Err(invalid(format!("an ACL has no entries of the kind {tag}"))),
        }
    }
    Ok(rule)
}
