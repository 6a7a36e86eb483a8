//! Open files.
//!
//! What must stay true: reads and writes of one file may come from any number of threads. Data is
//! copied once, between the cache and the memory of Java.

use std::sync::Arc;

use jni::{
    Env, EnvUnowned, jni_mangle,
    objects::{JByteArray, JByteBuffer, JClass},
    sys::{jboolean, jint, jlong},
};
use sluice_fs::{File, Fs, FsError, OpenOptions};

use crate::{
    call,
    failure::{Answer, Failure},
    handles::Handles,
    volumes::SESSIONS,
};

pub(crate) static FILES: Handles<File> = Handles::new("file");

// What `openFile` takes as flags.
const READ: i32 = 1;
const WRITE: i32 = 2;
const APPEND: i32 = 4;
const CREATE: i32 = 8;
const CREATE_NEW: i32 = 16;
const TRUNCATE: i32 = 32;
/// Directories that are missing on the way are made.
const PARENTS: i32 = 64;

/// `long openFile(long session, byte[] path, int flags, int mode, int umask)`
#[jni_mangle("io.sluice.Native")]
pub fn open_file<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    session: jlong,
    path: JByteArray<'local>,
    flags: jint,
    mode: jint,
    umask: jint,
) -> jlong {
    call(&mut env, |env| {
        let (session, path) = (SESSIONS.get(session)?, env.convert_byte_array(&path)?);
        let fs = session.fs.with_umask(umask as u16);
        let has = |flag| flags & flag != 0;
        let options = OpenOptions::new()
            .read(has(READ))
            .write(has(WRITE))
            .append(has(APPEND))
            .create(has(CREATE))
            .create_new(has(CREATE_NEW))
            .truncate(has(TRUNCATE))
            .mode(mode as u16);
        Ok(FILES.add(open(&fs, &path, options, has(PARENTS))?))
    })
}

fn open(fs: &Fs, path: &[u8], options: OpenOptions, parents: bool) -> Answer<File> {
    match fs.open_with(path, options) {
        Err(error) if error.error == FsError::NotFound && parents => {
            let end = path.iter().rposition(|byte| *byte == b'/').filter(|end| *end > 0);
            let Some(end) = end else { return Err(error.into()) };
            fs.mkdir_all(&path[..end], 0o777)?;
            Ok(fs.open_with(path, options)?)
        }
        opened => Ok(opened?),
    }
}

/// `int read(long file, long position, byte[] buffer, int offset, int length)`: the number of
/// bytes, fewer than `length` only at the end of the file.
#[jni_mangle("io.sluice.Native")]
#[allow(clippy::too_many_arguments, reason = "the signature of a native method")]
pub fn read<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: jlong,
    position: jlong,
    buffer: JByteArray<'local>,
    offset: jint,
    length: jint,
) -> jint {
    call(&mut env, |env| {
        let pieces = FILES.get(file)?.read_pieces(position as u64, length.max(0) as usize)?;
        let mut at = offset;
        for piece in pieces {
            buffer.set_region(env, at, signed(&piece))?;
            at += piece.len() as jint;
        }
        Ok(at - offset)
    })
}

/// `int readDirect(long file, long position, ByteBuffer buffer, int offset, int length)`: as
/// `read`, into a direct buffer.
#[jni_mangle("io.sluice.Native")]
#[allow(clippy::too_many_arguments, reason = "the signature of a native method")]
pub fn read_direct<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: jlong,
    position: jlong,
    mut buffer: JByteBuffer<'local>,
    offset: jint,
    length: jint,
) -> jint {
    call(&mut env, |env| {
        let memory = direct(env, &mut buffer, offset, length)?;
        Ok(FILES.get(file)?.read_at(memory, position as u64)? as jint)
    })
}

/// `void append(long file, ByteBuffer buffer, int length)`: writes the first `length` bytes of a
/// direct buffer at the end.
#[jni_mangle("io.sluice.Native")]
pub fn append<'local>(
    mut env: EnvUnowned<'local>,
    _: JClass<'local>,
    file: jlong,
    mut buffer: JByteBuffer<'local>,
    length: jint,
) {
    call(&mut env, |env| {
        let memory = direct(env, &mut buffer, 0, length)?;
        FILES.get(file)?.append(memory)?;
        Ok(())
    });
}

/// `void flush(long file, boolean sync)`: stores what was written, for other clients, or also for a
/// time after a power cut.
#[jni_mangle("io.sluice.Native")]
pub fn flush<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, file: jlong, sync: jboolean) {
    call(&mut env, |_| {
        let file = FILES.get(file)?;
        if sync {
            file.sync()?;
        } else {
            file.flush()?;
        }
        Ok(())
    });
}

/// `long length(long file)`: bytes, what is not stored yet included.
#[jni_mangle("io.sluice.Native")]
pub fn length<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, file: jlong) -> jlong {
    call(&mut env, |_| Ok(FILES.get(file)?.len()? as jlong))
}

/// `void closeFile(long file)`: stores what was written. Once is enough; calls under way end before
/// the file is gone.
#[jni_mangle("io.sluice.Native")]
pub fn close_file<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, file: jlong) {
    call(&mut env, |_| {
        let Some(file) = FILES.remove(file) else { return Ok(()) };
        match Arc::try_unwrap(file) {
            Ok(file) => Ok(file.close()?),
            // Somebody reads; the last one closes it.
            Err(file) => Ok(file.flush()?),
        }
    });
}

/// `int openHandles(boolean files)`: how many files, or file systems, are open in this process.
#[jni_mangle("io.sluice.Native")]
pub fn open_handles<'local>(mut env: EnvUnowned<'local>, _: JClass<'local>, files: jboolean) -> jint {
    call(&mut env, |_| Ok(if files { FILES.count() } else { SESSIONS.count() } as jint))
}

/// Bytes as Java counts them.
#[allow(unsafe_code)]
fn signed(bytes: &[u8]) -> &[i8] {
    // SAFETY: `i8` and `u8` have the same size and alignment, and every value of one is one of the
    // other.
    unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) }
}

/// A part of a direct buffer. Java must not touch it while the native method runs.
#[allow(unsafe_code)]
fn direct<'b>(
    env: &Env<'_>,
    buffer: &'b mut JByteBuffer<'_>,
    offset: jint,
    length: jint,
) -> Answer<&'b mut [u8]> {
    let (offset, length) = (offset.max(0) as usize, length.max(0) as usize);
    if offset + length > env.get_direct_buffer_capacity(buffer)? {
        return Err(Failure::new(libc::EINVAL, "a buffer from Java is too short"));
    }
    let begin = env.get_direct_buffer_address(buffer)?;
    // SAFETY: the memory is as long as was checked, and lives as long as the reference to the
    // buffer does. Only the class `io.sluice.Native` calls this, with buffers that nobody else uses
    // during the call, or that its own caller hands over for it.
    Ok(unsafe { std::slice::from_raw_parts_mut(begin.add(offset), length) })
}
