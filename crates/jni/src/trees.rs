//! Copies by reference, clones, and summaries of trees (length, size, number of files).
//!
//! What must stay true: no data is transferred.

use jni::{
    EnvUnowned, jni_mangle,
    objects::{JByteArray, JClass},
    sys::{jboolean, jlong},
};
use sluice_fs::{Clone as CloneHow, QuotaOwner};

use crate::{bytes::Reader, call, volumes::SESSIONS};

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

/// `byte[] summary(long session, byte[] path)`: length, size, files, directories; then the limits
/// of a quota and what is used of it: inodes, bytes, used inodes, used bytes; -1 for no limit.
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
        let quota = session.fs.quota(QuotaOwner::Directory(&path))?;
        let quota =
            quota.map(|quota| [quota.max_inodes, quota.max_space, quota.used_inodes, quota.used_space]);
        for number in quota.unwrap_or([-1; 4]) {
            record.extend(number.to_be_bytes());
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}
