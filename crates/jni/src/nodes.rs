//! Files and directories by their paths.
//!
//! What must stay true: each method makes one call of the crate `fs`, and before it only those that
//! create missing parent directories.

use jni::{
    EnvUnowned, jni_mangle,
    objects::{JByteArray, JClass},
    sys::{jboolean, jint, jlong},
};
use sluice_fs::{Cursor, FsError, Ino, RenameMode};

use crate::{
    bytes::{put_attr, put_bytes},
    call,
    volumes::SESSIONS,
};

/// `byte[] stat(long session, byte[] path, boolean follow)`: the attributes.
#[jni_mangle("io.sluice.Native")]
pub fn stat<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    follow: jboolean,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let stat = if follow { session.fs.stat(&path)? } else { session.fs.lstat(&path)? };
        let mut record = Vec::with_capacity(64);
        put_attr(&mut record, stat.ino, &stat.attr);
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `byte[] pathOf(long session, long inode)`: a path by which the user reaches a node.
#[jni_mangle("io.sluice.Native")]
pub fn path_of<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    inode: jlong,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let path = SESSIONS.get(session)?.fs.path_of(Ino(inode as u64))?;
        Ok(env.byte_array_from_slice(&path)?)
    })
}

/// `byte[] list(long session, byte[] path, byte[] cursor, int limit)`: a part of a directory. The
/// cursor of the next part, empty at the end; whether the engine sorts names (1 or 0); then names,
/// whether there are attributes (1 or 0), and these. An empty cursor begins.
#[jni_mangle("io.sluice.Native")]
pub fn list<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    cursor: JByteArray<'local>,
    limit: jint,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let cursor = env.convert_byte_array(&cursor)?;
        let from = (!cursor.is_empty()).then(|| Cursor::from_bytes(&cursor));
        let page = session.fs.list(&path, from.as_ref(), limit.max(1) as usize)?;
        let mut record = Vec::with_capacity(page.items.len() * 80 + 64);
        put_bytes(&mut record, page.next.as_ref().map(Cursor::as_bytes).unwrap_or_default());
        record.push(u8::from(page.sorted));
        for item in &page.items {
            put_bytes(&mut record, &item.name);
            record.push(u8::from(item.attr.is_some()));
            if let Some(attr) = &item.attr {
                put_attr(&mut record, item.ino, attr);
            }
        }
        Ok(env.byte_array_from_slice(&record)?)
    })
}

/// `void mkdir(long session, byte[] path, int mode, int umask, boolean parents)`
#[jni_mangle("io.sluice.Native")]
pub fn mkdir<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    mode: jint,
    umask: jint,
    parents: jboolean,
) {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let fs = session.fs.with_umask(umask as u16);
        let mode = mode as u16;
        if parents {
            fs.mkdir_all(&path, mode)?;
        } else {
            fs.mkdir(&path, mode)?;
        }
        Ok(())
    });
}

/// `void rename(long session, byte[] from, byte[] to, boolean replace)`
#[jni_mangle("io.sluice.Native")]
pub fn rename<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    from: JByteArray<'local>,
    to: JByteArray<'local>,
    replace: jboolean,
) {
    call(&mut env, |env| {
        let (from, to) = (env.convert_byte_array(&from)?, env.convert_byte_array(&to)?);
        let mode = if replace { RenameMode::Replace } else { RenameMode::NoReplace };
        Ok(SESSIONS.get(session)?.fs.rename(&from, &to, mode)?)
    });
}

/// `void remove(long session, byte[] path, boolean recursive)`: removes a file, an empty directory,
/// or a whole tree.
#[jni_mangle("io.sluice.Native")]
pub fn remove<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    recursive: jboolean,
) {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        match session.fs.unlink(&path) {
            Err(error) if error.error == FsError::IsDir && recursive => {
                Ok(session.fs.remove_all(&path, false)?)
            }
            Err(error) if error.error == FsError::IsDir => Ok(session.fs.rmdir(&path)?),
            done => Ok(done?),
        }
    });
}

/// `void symlink(long session, byte[] target, byte[] path)`
#[jni_mangle("io.sluice.Native")]
pub fn symlink<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    target: JByteArray<'local>,
    path: JByteArray<'local>,
) {
    call(&mut env, |env| {
        let (target, path) = (env.convert_byte_array(&target)?, env.convert_byte_array(&path)?);
        Ok(SESSIONS.get(session)?.fs.symlink(&target, &path)?)
    });
}

/// `byte[] readlink(long session, byte[] path)`
#[jni_mangle("io.sluice.Native")]
pub fn readlink<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
) -> JByteArray<'local> {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        let target = SESSIONS.get(session)?.fs.readlink(&path)?;
        Ok(env.byte_array_from_slice(&target)?)
    })
}

/// `void truncate(long session, byte[] path, long length)`
#[jni_mangle("io.sluice.Native")]
pub fn truncate<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    length: jlong,
) {
    call(&mut env, |env| {
        let path = env.convert_byte_array(&path)?;
        Ok(SESSIONS.get(session)?.fs.set_len(&path, length as u64)?)
    });
}
