//! Reads of local files that do not wait for a disk: what the kernel has in memory is read, and
//! anything else is refused with [`io::ErrorKind::WouldBlock`].
//!
//! What must stay true: if the kernel cannot tell whether the data is in memory, the file is read
//! as usual, and the read may wait for the disk.

use std::{fs::File, io, ops::Range, path::Path};

use bytes::Bytes;
use sluice_object::positional::read_at;

/// Bytes of which one is looked at: the kernel reads at least as many at once.
const STEP: u64 = 64 << 10;

/// What is cached of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cached<T> {
    /// This.
    Here(T),
    /// It is in a local file, and who reads it waits for the disk.
    Cold,
    /// Nothing.
    Missing,
}

/// Where the bytes of a cached block are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Served {
    /// They were copied to the buffer of the caller.
    Copied,
    /// Here, and not in the buffer of the caller.
    Shared(Bytes),
}

/// Opens a file whose inode is in memory.
#[cfg(target_os = "linux")]
pub(super) fn open(path: &Path) -> io::Result<File> {
    use rustix::{
        fs::{CWD, Mode, OFlags, ResolveFlags, openat2},
        io::Errno,
    };
    match openat2(CWD, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(file.into()),
        // Older kernels, and filters of system calls that do not know it.
        Err(Errno::NOSYS | Errno::INVAL | Errno::PERM) => File::open(path),
        Err(error) => Err(error.into()),
    }
}

/// Opens a file: this system cannot say whether its inode is in memory.
#[cfg(not(target_os = "linux"))]
pub(super) fn open(path: &Path) -> io::Result<File> {
    File::open(path)
}

/// Fills `bytes` from a file.
pub(super) fn fill(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < bytes.len() {
        let read = read(file, offset + done as u64, &mut bytes[done..])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        done += read;
    }
    Ok(())
}

/// Whether a part of a file is in memory, as far as looking at some bytes of it tells.
pub(crate) fn is_resident(file: &File, range: Range<u64>) -> bool {
    let mut byte = [0];
    let mut looked = range.clone().step_by(STEP as usize).chain(range.end.checked_sub(1));
    looked.all(|at| read(file, at, &mut byte).is_ok())
}

#[cfg(target_os = "linux")]
fn read(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    use rustix::io::{Errno, ReadWriteFlags, preadv2};
    match preadv2(file, &mut [io::IoSliceMut::new(bytes)], offset, ReadWriteFlags::NOWAIT) {
        Err(Errno::NOSYS | Errno::OPNOTSUPP) => read_at(file, bytes, offset),
        read => Ok(read?),
    }
}

#[cfg(not(target_os = "linux"))]
fn read(file: &File, offset: u64, bytes: &mut [u8]) -> io::Result<usize> {
    read_at(file, bytes, offset)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use rustix::fs::{Advice, fadvise};

    use super::*;

    #[test]
    fn what_is_in_memory_is_read_and_the_rest_is_refused() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, vec![7; 300_000]).unwrap();
        let file = open(&path).unwrap();
        let mut bytes = vec![1; 200_000];
        fill(&file, 10, &mut bytes).unwrap();
        assert!(bytes == vec![7; 200_000] && is_resident(&file, 0..300_000));
        assert!(fill(&file, 299_990, &mut bytes[..11]).is_err(), "beyond the end");
        file.sync_all().unwrap();
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
        // A read that is refused still makes the kernel read: of its own page only.
        fadvise(&file, 0, None, Advice::Random).unwrap();
        if read(&file, 0, &mut [0]).is_ok() {
            // This file system is in memory, or does not say.
            return;
        }
        assert!(!is_resident(&file, 0..300_000));
        let refused = fill(&file, 200_000, &mut bytes[..10]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        file.read_exact_at(&mut [0; 10], 200_000).unwrap();
        fill(&file, 200_000, &mut bytes[..10]).unwrap();
    }
}
