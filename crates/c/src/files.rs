//! Open files.
//!
//! What must stay true: a file has no cursor, so any number of threads read and write it at once.

use std::{ffi::c_char, sync::Arc};

use sluice_fs::OpenOptions;

use crate::{
    border::{Outcome, invalid, number, status},
    handles::{self, Handle},
    memory::{bytes_out, put, text, values},
    structs::SluiceStat,
};

/// Opens a file and returns its handle. `flags` are those of open(2): one of `O_RDONLY`,
/// `O_WRONLY` and `O_RDWR`, with any of `O_CREAT`, `O_EXCL`, `O_TRUNC` and `O_APPEND`;
/// `O_CLOEXEC` has no effect. `mode` is that of a file that is made, before the umask.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_file_open(volume: i64, path: *const c_char, flags: i32, mode: u32) -> i64 {
    number(|| {
        let file = handles::view(volume)?.fs.open_with(text(path)?, options(flags, mode)?)?;
        Ok(handles::add(Handle::File(Arc::new(file))))
    })
}

/// Makes a file, or empties the one that is there, and opens it to write.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_file_create(volume: i64, path: *const c_char, mode: u32) -> i64 {
    sluice_file_open(volume, path, libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC, mode)
}

/// Reads up to `count` bytes from `offset`. Returns their number: less than `count` only at the end
/// of the file, 0 behind it.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_pread(file: i64, buffer: *mut u8, count: usize, offset: u64) -> i64 {
    number(|| {
        let file = handles::file(file)?;
        Ok(file.read_at(bytes_out(buffer, count)?, offset)? as u64)
    })
}

/// Writes `count` bytes at `offset`, all of them, and returns their number.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_pwrite(file: i64, data: *const u8, count: usize, offset: u64) -> i64 {
    number(|| {
        let file = handles::file(file)?;
        file.write_at(values(data, count)?, offset)?;
        Ok(count as u64)
    })
}

/// Writes `count` bytes at the end of a file, all of them, and returns where they lie. Appends of
/// one process never overlap.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_append(file: i64, data: *const u8, count: usize) -> i64 {
    number(|| Ok(handles::file(file)?.append(values(data, count)?)?))
}

/// Stores what was written to a file: other clients that open it then see it, and it survives the
/// end of this process.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_file_flush(file: i64) -> i32 {
    status(|| Ok(handles::file(file)?.flush()?))
}

/// As sluice_file_flush; the data also survives a power cut, as far as the database and the object
/// store promise that.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_fsync(file: i64) -> i32 {
    status(|| Ok(handles::file(file)?.sync()?))
}

/// Stores what was written to a file and closes it. It is closed whatever the result is. A call
/// that another thread is in goes on.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_file_close(file: i64) -> i32 {
    status(|| {
        let file = handles::take_file(file)?;
        match Arc::try_unwrap(file) {
            Ok(file) => Ok(file.close()?),
            Err(shared) => Ok(shared.flush()?),
        }
    })
}

/// Attributes of an open file.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_fstat(file: i64, stat: *mut SluiceStat) -> i32 {
    status(|| put(stat, handles::file(file)?.stat()?.into()))
}

/// Sets the length of a file that is open to write.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_ftruncate(file: i64, length: u64) -> i32 {
    status(|| Ok(handles::file(file)?.set_len(length)?))
}

/// Sets the length of a file.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_truncate(volume: i64, path: *const c_char, length: u64) -> i32 {
    status(|| Ok(handles::view(volume)?.fs.set_len(text(path)?, length)?))
}

/// Copies from one open file to another of the same volume, without a transfer of data. Returns the
/// number of bytes: less than `length` only at the end of the source.
#[unsafe(no_mangle)]
pub extern "C" fn sluice_copy_file_range(
    source: i64,
    source_offset: u64,
    target: i64,
    target_offset: u64,
    length: u64,
) -> i64 {
    number(|| {
        let (source, target) = (handles::file(source)?, handles::file(target)?);
        Ok(target.copy_from(target_offset, &source, source_offset, length)?)
    })
}

/// The flags of open(2) as options.
fn options(flags: i32, mode: u32) -> Outcome<OpenOptions> {
    let known =
        [libc::O_CREAT, libc::O_EXCL, libc::O_TRUNC, libc::O_APPEND, libc::O_CLOEXEC, libc::O_LARGEFILE]
            .iter()
            .fold(libc::O_ACCMODE, |all, flag| all | flag);
    if flags & !known != 0 {
        return Err(invalid(format!("flags of open that have no meaning here: {:#o}", flags & !known)));
    }
    let (read, write) = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => (true, false),
        libc::O_WRONLY => (false, true),
        libc::O_RDWR => (true, true),
        _ => return Err(invalid("flags of open: read, write or both")),
    };
    let has = |flag| flags & flag != 0;
    Ok(OpenOptions::new()
        .read(read)
        .write(write)
        .append(has(libc::O_APPEND))
        .create(has(libc::O_CREAT) && !has(libc::O_EXCL))
        .create_new(has(libc::O_CREAT) && has(libc::O_EXCL))
        .truncate(has(libc::O_TRUNC))
        .mode((mode & 0o7777) as u16))
}
