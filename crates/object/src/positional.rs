//! Reads at an offset of a file.

use std::{
    fs::File,
    io::{self, ErrorKind},
};

/// Reads into a buffer. Returns the number of bytes; 0 at the end of the file.
///
/// # Errors
/// Those of the system, but for interruptions.
pub fn read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    uninterrupted(|| system_read_at(file, into, at))
}

/// Reads into the room that a buffer has behind its bytes, which may be more than anybody asked
/// for. Returns the number of bytes; 0 at the end of the file.
///
/// # Errors
/// As [`read_at`].
#[cfg(unix)]
pub fn read_into_spare(file: &File, into: &mut Vec<u8>, at: u64) -> io::Result<usize> {
    uninterrupted(|| Ok(rustix::io::pread(file, rustix::buffer::spare_capacity(into), at)?))
}

/// Reads into the room that a buffer has behind its bytes, which may be more than anybody asked
/// for. Returns the number of bytes; 0 at the end of the file.
///
/// # Errors
/// As [`read_at`].
#[cfg(not(unix))]
pub fn read_into_spare(file: &File, into: &mut Vec<u8>, at: u64) -> io::Result<usize> {
    let had = into.len();
    into.resize(into.capacity(), 0);
    let read = read_at(file, &mut into[had..], at);
    into.truncate(had + *read.as_ref().unwrap_or(&0));
    read
}

/// Fills a buffer.
///
/// # Errors
/// As [`read_at`], and if the file ends before.
pub fn read_exact_at(file: &File, mut into: &mut [u8], mut at: u64) -> io::Result<()> {
    while !into.is_empty() {
        let read = read_at(file, into, at)?;
        if read == 0 {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        into = &mut into[read..];
        at += read as u64;
    }
    Ok(())
}

fn uninterrupted<T>(mut read: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match read() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            read => return read,
        }
    }
}

#[cfg(unix)]
fn system_read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, into, at)
}

#[cfg(windows)]
fn system_read_at(file: &File, into: &mut [u8], at: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, into, at)
}
