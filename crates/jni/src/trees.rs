//! Copies by reference, clones, summaries of trees (length, size, number of files), quotas, and
//! which machines cache a file.
//!
//! What must stay true: no data is transferred.

use jni::{
    EnvUnowned, jni_mangle,
    objects::{JByteArray, JClass},
    sys::{jboolean, jlong},
};
use sluice_fs::{Clone as CloneHow, Quota, QuotaLimits, QuotaOwner};

use crate::{
    bytes::{Reader, put_bytes},
    call,
    volumes::SESSIONS,
};

/// `void concat(long session, byte[] target, byte[] sources)`: the sources are a record of paths.
#[jni_mangle("io.sluice.Native")]
pub fn concat<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    target: JByteArray<'local>,
    sources: JByteArray<'local>,
) {
    call(&mut env, |env| {
        let (target, sources) = (env.convert_byte_array(&target)?, env.convert_byte_array(&sources)?);
        let sources: Vec<&[u8]> = Reader(&sources).collect();
        Ok(SESSIONS.get(session)?.fs.concat(&target, &sources)?)
    });
}

/// `void cloneTree(long session, byte[] from, byte[] to, boolean preserve)`
#[jni_mangle("io.sluice.Native")]
pub fn clone_tree<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    from: JByteArray<'local>,
    to: JByteArray<'local>,
    preserve: jboolean,
) {
    call(&mut env, |env| {
        let (from, to) = (env.convert_byte_array(&from)?, env.convert_byte_array(&to)?);
        SESSIONS.get(session)?.fs.clone_tree(&from, &to, CloneHow { preserve })?;
        Ok(())
    });
}

/// `byte[] summary(long session, byte[] path)`: length, size, files, directories; then the quota,
/// as `quota` gives it.
#[jni_mangle("io.sluice.Native")]
pub fn summary<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let (sum, denied) = session.fs.summary(&path)?;
        if denied.count > 0 {
            return Err(sluice_fs::FsError::Access.into());
        }
        let mut record = Vec::with_capacity(64);
        for number in [sum.length, sum.size, sum.files, sum.dirs] {
            record.extend(number.to_be_bytes());
        }
        put_quota(&mut record, session.fs.quota(QuotaOwner::Directory(&path))?);
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `byte[] blockHosts(long session, byte[] path, long start, long end, long part)`: for each part
/// of the file, the machines that cache most of it in the cache group, with commas between them.
#[jni_mangle("io.sluice.Native")]
pub fn block_hosts<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    start: jlong,
    end: jlong,
    part: jlong,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let parts = session.fs.block_hosts(&path, &(start as u64..end as u64), part as u64)?;
        let mut record = Vec::new();
        for hosts in parts {
            put_bytes(&mut record, hosts.join(",").as_bytes());
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `byte[] quota(long session, byte[] path)`: limits of inodes and bytes, then used inodes and
/// bytes. -1 is no limit; without a quota all are -1.
#[jni_mangle("io.sluice.Native")]
pub fn quota<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let mut record = Vec::with_capacity(32);
        put_quota(&mut record, session.fs.quota(QuotaOwner::Directory(&path))?);
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `void setQuota(long session, byte[] path, long inodes, long space)`: 0 is no limit, -1 leaves
/// one as it is. A quota without limits is removed.
#[jni_mangle("io.sluice.Native")]
pub fn set_quota<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    inodes: jlong,
    space: jlong,
) {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let owner = QuotaOwner::Directory(&path[..]);
        let limits = QuotaLimits { inodes: inodes.try_into().ok(), space: space.try_into().ok() };
        let old = session.fs.quota(owner)?.unwrap_or_default();
        let none = |limit: Option<u64>, old: i64| limit.map_or(old <= 0, |limit| limit == 0);
        if none(limits.inodes, old.max_inodes) && none(limits.space, old.max_space) {
            session.fs.remove_quota(owner)?;
        } else {
            session.fs.set_quota(owner, limits, false)?;
        }
        Ok(())
    });
}

fn put_quota(record: &mut Vec<u8>, quota: Option<Quota>) {
    let limit = |limit: i64| if limit > 0 { limit } else { -1 };
    let numbers = quota
        .map(|quota| [limit(quota.max_inodes), limit(quota.max_space), quota.used_inodes, quota.used_space]);
    for number in numbers.unwrap_or([-1; 4]) {
        record.extend(number.to_be_bytes());
    }
}
