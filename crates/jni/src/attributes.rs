//! Modes, owners, times, extended attributes and ACLs.
//!
//! What must stay true: owners are numbers here; `volumes` knows their names.

use jni::{
    EnvUnowned, jni_mangle,
    objects::{JByteArray, JClass},
    sys::{jboolean, jint, jlong},
};
use sluice_fs::{Access, Acl, AclEntry, AclRule, SetTime, Time, XattrMode};

use crate::{
    bytes::put_bytes,
    call,
    failure::{Answer, Failure},
    volumes::SESSIONS,
};

/// `void setMode(long session, byte[] path, int mode)`
#[jni_mangle("io.sluice.Native")]
pub fn set_mode<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    mode: jint,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        Ok(SESSIONS.get(session)?.fs.set_mode(&path, mode as u16)?)
    });
}

/// `void setOwner(long session, byte[] path, long uid, long gid)`: -1 leaves one as it is.
#[jni_mangle("io.sluice.Native")]
pub fn set_owner<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    uid: jlong,
    gid: jlong,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let (uid, gid) = (u32::try_from(uid).ok(), u32::try_from(gid).ok());
        Ok(SESSIONS.get(session)?.fs.set_owner(&path, uid, gid, true)?)
    });
}

/// `void setTimes(long session, byte[] path, long mtime, long atime)`: milliseconds; -1 leaves one
/// as it is.
#[jni_mangle("io.sluice.Native")]
pub fn set_times<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    mtime: jlong,
    atime: jlong,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let time = |millis: i64| {
            (millis >= 0).then(|| SetTime::At(Time::from_nanos(millis.saturating_mul(1_000_000))))
        };
        Ok(SESSIONS.get(session)?.fs.set_times(&path, time(atime), time(mtime), true)?)
    });
}

/// `void access(long session, byte[] path, int access)`: 4 to read, 2 to write, 1 to search or run.
#[jni_mangle("io.sluice.Native")]
pub fn access<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    access: jint,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        Ok(SESSIONS.get(session)?.fs.access(&path, Access(access as u8))?)
    });
}

/// `byte[] xattr(long session, byte[] path, byte[] name)`
#[jni_mangle("io.sluice.Native")]
pub fn xattr<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (path, name) = (env.convert_byte_array(&path)?, env.convert_byte_array(&name)?);
        let value = SESSIONS.get(session)?.fs.xattr(&path, &name)?;
        Ok(env.byte_array_from_slice(&value)?)
    })
}

/// `byte[] xattrs(long session, byte[] path)`: a record of names.
#[jni_mangle("io.sluice.Native")]
pub fn xattrs<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let mut record = Vec::new();
        for name in SESSIONS.get(session)?.fs.xattrs(&path)? {
            put_bytes(&mut record, &name);
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `void setXattr(long session, byte[] path, byte[] name, byte[] value, boolean create, boolean
/// replace)`: with both, either is fine.
#[jni_mangle("io.sluice.Native")]
#[allow(clippy::too_many_arguments, reason = "the signature of a native method")]
pub fn set_xattr<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
    value: JByteArray<'local>,
    create: jboolean,
    replace: jboolean,
) {
    call(&mut env, |env| {
        let (path, name) = (env.convert_byte_array(&path)?, env.convert_byte_array(&name)?);
        let value = env.convert_byte_array(&value)?;
        let mode = match (create, replace) {
            (true, false) => XattrMode::Create,
            (false, true) => XattrMode::Replace,
            _ => XattrMode::Any,
        };
        Ok(SESSIONS.get(session)?.fs.set_xattr(&path, &name, &value, mode)?)
    });
}

/// `void removeXattr(long session, byte[] path, byte[] name)`
#[jni_mangle("io.sluice.Native")]
pub fn remove_xattr<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    name: JByteArray<'local>,
) {
    call(&mut env, |env| {
        let (path, name) = (env.convert_byte_array(&path)?, env.convert_byte_array(&name)?);
        Ok(SESSIONS.get(session)?.fs.remove_xattr(&path, &name)?)
    });
}

/// `byte[] acl(long session, byte[] path, boolean defaults)`: permissions of the owner, the group,
/// the mask (-1 for none) and others; the number of named users; then ids and permissions of named
/// users and of named groups. Each is 4 bytes. Empty if there is no ACL.
#[jni_mangle("io.sluice.Native")]
pub fn acl<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    defaults: jboolean,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let rule = SESSIONS.get(session)?.fs.acl(&path, which(defaults))?;
        let mut record = Vec::new();
        if let Some(rule) = rule {
            let perm = |perm: u16| if perm == AclRule::empty().mask { -1 } else { i32::from(perm) };
            for number in [perm(rule.owner), perm(rule.group), perm(rule.mask), perm(rule.other)] {
                record.extend(number.to_be_bytes());
            }
            record.extend((rule.users.len() as u32).to_be_bytes());
            for entry in rule.users.iter().chain(&rule.groups) {
                record.extend(entry.id.to_be_bytes());
                record.extend(u32::from(entry.perm).to_be_bytes());
            }
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `void removeAcl(long session, byte[] path, boolean defaults)`
#[jni_mangle("io.sluice.Native")]
pub fn remove_acl<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    defaults: jboolean,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        Ok(SESSIONS.get(session)?.fs.set_acl(&path, which(defaults), None)?)
    });
}

/// `void changeAcl(long session, byte[] path, boolean defaults, byte[] was, byte[] acl)`: `EAGAIN`
/// if it is not what it was. Without one, `was` has what the mode says, or is empty for defaults.
#[jni_mangle("io.sluice.Native")]
pub fn change_acl<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    defaults: jboolean,
    was: JByteArray<'local>,
    acl: JByteArray<'local>,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let (was, acl) = (env.convert_byte_array(&was)?, env.convert_byte_array(&acl)?);
        let was = if was.is_empty() { AclRule::empty() } else { rule(&was)? };
        let acl = rule(&acl)?;
        Ok(SESSIONS.get(session)?.fs.change_acl(&path, which(defaults), &was, Some(&acl))?)
    });
}

const fn which(defaults: bool) -> Acl {
    if defaults { Acl::Default } else { Acl::Access }
}

/// A rule from its record.
fn rule(record: &[u8]) -> Answer<AclRule> {
    let (numbers, rest) = record.as_chunks::<4>();
    let numbers: Vec<i32> = numbers.iter().copied().map(i32::from_be_bytes).collect();
    let [owner, group, mask, other, users, entries @ ..] = &numbers[..] else {
        return Err(Failure::new(libc::EINVAL, "an ACL is too short"));
    };
    let users = usize::try_from(*users).unwrap_or(usize::MAX).saturating_mul(2);
    let (Some((users, groups)), true) = (entries.split_at_checked(users), rest.is_empty()) else {
        return Err(Failure::new(libc::EINVAL, "an ACL is too short"));
    };
    let perm = |perm: i32| if perm < 0 { AclRule::empty().mask } else { perm as u16 & 7 };
    let named = |numbers: &[i32]| {
        let pairs = numbers.chunks_exact(2);
        pairs.map(|pair| AclEntry { id: pair[0] as u32, perm: pair[1] as u16 & 7 }).collect()
    };
    Ok(AclRule {
        owner: perm(*owner),
        group: perm(*group),
        mask: perm(*mask),
        other: perm(*other),
        users: named(users),
        groups: named(groups),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_is_read_from_its_record() {
        let record: Vec<u8> =
            [7, 5, -1, 0, 1, 42, 6, 9, 4].iter().flat_map(|n: &i32| n.to_be_bytes()).collect();
        let found = rule(&record).expect("valid");
        assert_eq!(found.users, [AclEntry { id: 42, perm: 6 }]);
        assert_eq!(found.groups, [AclEntry { id: 9, perm: 4 }]);
        assert_eq!((found.owner, found.mask), (7, AclRule::empty().mask));
        assert!(rule(&record[..24]).is_err() && rule(&record[..17]).is_err());
    }
}
