//! One block in a local file: its bytes, then a CRC-32C (big endian) for each 32 KiB of them.
//!
//! What must stay true: at the chosen level of verification, no byte with a wrong checksum is
//! returned. A file appears under its name only when it is complete.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    ops::Range,
    path::{Path, PathBuf},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use sluice_object::{
    Buffer,
    positional::{read_at, read_exact_at, read_into_spare},
};
use sluice_types::Rng;

use super::{SecondChance, resident};
use crate::{
    config::Verify,
    layout::{BlockKey, PAGE, pages, parse_name},
};

/// Ending of a file that is being written.
const TEMPORARY: &str = ".tmp";
/// Age from which a half-written file is removed.
const STALE: Duration = Duration::from_mins(1);

/// A block's file, open for reading.
#[derive(Debug)]
pub(crate) struct BlockFile {
    file: File,
    size: u32,
    /// The checksum of each page; empty if the file has none or they are not needed.
    sums: Vec<u32>,
}

/// Files of blocks that are open, all directories together.
pub(crate) type OpenFiles = SecondChance<BlockKey, Arc<BlockFile>>;

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Damaged {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Bytes(String),
}

impl BlockFile {
    /// Opens the file of a block of `size` bytes. With `wait` unset, it fails if the disk had to be
    /// waited for.
    pub(crate) fn open(path: &Path, size: u32, verify: Verify, wait: bool) -> Result<Self, Damaged> {
        let file = if wait { File::open(path)? } else { resident::open(path)? };
        let found = file.metadata()?.len();
        let sums_len = u64::from(size.div_ceil(PAGE)) * 4;
        let extra = found.checked_sub(u64::from(size));
        let Some(extra) = extra else {
            return Err(Damaged::Bytes(format!("it has {found} bytes, of {size}")));
        };
        // Another client may have written a footer after the checksums. The length is then a
        // multiple of 4.
        let summed = extra >= sums_len && extra % 4 == 0 && extra > 0;
        if !summed && extra % 4 == 0 && extra > 0 {
            return Err(Damaged::Bytes(format!("it has {extra} bytes of checksums, of {sums_len}")));
        }
        let sums = if summed && verify != Verify::None {
            let raw = pread(&file, u64::from(size), sums_len as usize, wait)?;
            raw.chunks_exact(4).map(|sum| u32::from_be_bytes([sum[0], sum[1], sum[2], sum[3]])).collect()
        } else {
            Vec::new()
        };
        Ok(Self { file, size, sums })
    }

    /// Bytes `range` of the block, checked as `verify` says.
    pub(crate) fn read(&self, range: &Range<u32>, verify: Verify) -> Result<Bytes, Damaged> {
        self.read_if(range, verify, true)
    }

    fn read_if(&self, range: &Range<u32>, verify: Verify, wait: bool) -> Result<Bytes, Damaged> {
        let whole = range.start == 0 && range.end == self.size;
        let (from, to) = match verify {
            Verify::Extend if !self.sums.is_empty() => {
                (range.start / PAGE * PAGE, range.end.next_multiple_of(PAGE).min(self.size))
            }
            _ => (range.start, range.end),
        };
        let bytes = pread(&self.file, u64::from(from), (to - from) as usize, wait)?;
        if !self.sums.is_empty() && (verify != Verify::Full || whole) && verify != Verify::None {
            self.check(&bytes, from)?;
        }
        let start = (range.start - from) as usize;
        Ok(bytes.slice(start..start + (range.end - range.start) as usize))
    }

    /// Copies bytes `range` of the block to a place in a buffer, which grows if it is too short.
    /// Appends to `sums` the checksum of each page of them, cut at the ends of `range`. A page that
    /// is wholly in it comes with the checksum of the file, so that the receiver finds damage; any
    /// other is checked here. `wait` as for [`Self::open`].
    pub(crate) fn serve(
        &self,
        range: &Range<u32>,
        out: (&mut Vec<u8>, usize),
        sums: &mut Vec<u32>,
        wait: bool,
    ) -> Result<(), Damaged> {
        let (from, (out, at)) = (u64::from(range.start), out);
        let end = at + range.len();
        if out.len() < end {
            out.resize(end, 0);
        }
        let out = &mut out[at..end];
        if wait {
            read_exact_at(&self.file, out, from)?;
        } else {
            resident::fill(&self.file, from, out)?;
        }
        for page in pages(range) {
            let part = (page.start - range.start) as usize..(page.end - range.start) as usize;
            if let Some(sum) = self.sum(&page) {
                sums.push(sum);
                continue;
            }
            if !self.sums.is_empty() {
                out[part.clone()].copy_from_slice(&self.read_if(&page, Verify::Extend, wait)?);
            }
            sums.push(crc32c::crc32c(&out[part]));
        }
        Ok(())
    }

    /// The checksum of a page in the file, unless only a part of it is wanted.
    fn sum(&self, wanted: &Range<u32>) -> Option<u32> {
        let ends = wanted.end.is_multiple_of(PAGE) || wanted.end == self.size;
        let sum = self.sums.get((wanted.start / PAGE) as usize);
        sum.filter(|_| ends && wanted.start.is_multiple_of(PAGE)).copied()
    }

    /// All bytes, checked, without a wait for the disk.
    pub(super) fn read_resident(&self) -> Result<Bytes, Damaged> {
        self.read_if(&(0..self.size), Verify::Full, false)
    }

    /// The checksums of the pages of `range`, if it has whole pages only and the file their
    /// checksums.
    pub(crate) fn sums(&self, range: &Range<u32>) -> Option<&[u32]> {
        let last = range.end.is_multiple_of(PAGE) || range.end == self.size;
        let whole = range.start.is_multiple_of(PAGE) && last;
        let pages = (range.start / PAGE) as usize..range.end.div_ceil(PAGE) as usize;
        self.sums.get(pages).filter(|sums| whole && !sums.is_empty())
    }

    /// The open file, which begins with the bytes of the block.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Checks the pages that lie wholly in `bytes`, which were read at `from`.
    fn check(&self, bytes: &[u8], from: u32) -> Result<(), Damaged> {
        let to = from + bytes.len() as u32;
        for page in from.div_ceil(PAGE)..self.size.div_ceil(PAGE) {
            let (start, end) = (page * PAGE, ((page + 1) * PAGE).min(self.size));
            if end > to {
                break;
            }
            let sum = crc32c::crc32c(&bytes[(start - from) as usize..(end - from) as usize]);
            if sum != self.sums[page as usize] {
                return Err(Damaged::Bytes(format!("the checksum of bytes {start} to {end} does not fit")));
            }
        }
        Ok(())
    }
}

/// Writes a block to `path`, by way of a temporary name, with the directories that lead there.
/// Nothing is synced: after a power cut the file may hold other bytes, which the checksums detect.
pub(crate) fn write(path: &Path, data: &[u8], checksums: bool, mode: u32) -> io::Result<()> {
    write_with(path, data, checksums, mode, |file| file.write_all(data))
}

/// As [`write`]. `fill` writes the data, and perhaps not through the page cache.
pub(super) fn write_with(
    path: &Path,
    data: &[u8],
    checksums: bool,
    mode: u32,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
) -> io::Result<()> {
    let temporary = temporary(path);
    let sums = if checksums { data } else { &[] };
    let written = try_write(&temporary, fill, sums, mode).and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Makes a file, fills it, and appends the checksums of `summed`.
fn try_write(
    temporary: &Path,
    fill: impl FnOnce(&mut File) -> io::Result<()>,
    summed: &[u8],
    mode: u32,
) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    #[cfg(not(unix))]
    let _ = mode;
    let mut file = match options.open(temporary) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = temporary.parent() {
                fs::create_dir_all(parent)?;
            }
            options.open(temporary)?
        }
        other => other?,
    };
    fill(&mut file)?;
    let sums: Vec<u8> =
        summed.chunks(PAGE as usize).flat_map(|page| crc32c::crc32c(page).to_be_bytes()).collect();
    file.write_all(&sums)
}

/// A name that no other thread or process writes to, even with the same directory.
fn temporary(path: &Path) -> PathBuf {
    static OWN: LazyLock<u64> = LazyLock::new(|| Rng::from_os().next_u64());
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:x}.{:x}{TEMPORARY}", *OWN, NEXT.fetch_add(1, Ordering::Relaxed)));
    name.into()
}

/// Calls `found` with each file below a directory that has the name of a block. Removes what was
/// left half-written.
pub(crate) fn each_block(root: &Path, mut found: impl FnMut(&Path, BlockKey)) {
    let mut rest = vec![root.to_owned()];
    while let Some(path) = rest.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                rest.push(path);
            } else if name.ends_with(TEMPORARY) {
                // It may be one that is being written just now.
                let age = entry.metadata().and_then(|meta| meta.modified()).map(|time| time.elapsed());
                if age.is_ok_and(|age| age.is_ok_and(|age| age > STALE)) {
                    let _ = fs::remove_file(path);
                }
            } else if let Some(key) = parse_name(&name) {
                found(&path, key);
            }
        }
    }
}

/// Bytes that the file of a block takes on disk.
pub(crate) fn disk_bytes(size: u32) -> u64 {
    (u64::from(size) + u64::from(size.div_ceil(PAGE)) * 4).next_multiple_of(4096)
}

fn pread(file: &File, offset: u64, len: usize, wait: bool) -> io::Result<Bytes> {
    if !wait {
        let mut bytes = vec![0; len];
        resident::fill(file, offset, &mut bytes)?;
        return Ok(bytes.into());
    }
    if len >= Buffer::LARGE {
        // New memory for a whole block takes as long as the block does.
        let mut bytes = Buffer::with_length(len);
        read_exact_at(file, &mut bytes[..], offset)?;
        return Ok(bytes.into());
    }
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        let at = offset + bytes.len() as u64;
        // There may be more room than requested. A read into all of it would read the checksums,
        // too.
        let read = if bytes.capacity() == len {
            read_into_spare(file, &mut bytes, at)?
        } else {
            let had = bytes.len();
            bytes.resize(len, 0);
            let read = read_at(file, &mut bytes[had..], at)?;
            bytes.truncate(had + read);
            read
        };
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes.into())
}

/// Why a file or directory is not synced.
pub(crate) enum Unsynced {
    /// It is not there.
    Missing,
    /// It could not be opened. This may be temporary.
    Closed(io::Error),
    /// The sync failed.
    Failed(io::Error),
}

/// Syncs the file or directory at `path` with `sync`.
pub(crate) fn sync(path: &Path, sync: impl FnOnce(&File) -> io::Result<()>) -> Result<(), Unsynced> {
    let file = File::open(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Unsynced::Missing,
        _ => Unsynced::Closed(error),
    })?;
    sync(&file).map_err(Unsynced::Failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flip(path: &Path, at: usize) {
        let mut bytes = fs::read(path).unwrap();
        bytes[at] ^= 1;
        fs::write(path, bytes).unwrap();
    }

    #[test]
    fn each_level_sees_the_damage_it_promises_to_see() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a/b/1_0_100000");
        let data: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
        write(&path, &data, true, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 100_000 + 16);
        flip(&path, 40_000);
        let read = |verify, range: Range<u32>| {
            BlockFile::open(&path, 100_000, verify, true)
                .unwrap()
                .read(&range, verify)
                .map(|bytes| bytes.to_vec())
        };
        assert_eq!(read(Verify::Extend, 0..10).unwrap(), data[..10], "another page");
        assert!(read(Verify::Extend, 33_000..33_001).is_err());
        assert!(read(Verify::Shrink, 33_000..99_000).is_ok(), "the page is not wholly wanted");
        assert!(read(Verify::Shrink, 32_768..65_536).is_err());
        assert!(read(Verify::Full, 32_768..65_536).is_ok());
        assert!(read(Verify::Full, 0..100_000).is_err());
        assert!(read(Verify::None, 0..100_000).is_ok());
    }

    #[test]
    fn what_is_served_comes_with_checksums_by_which_damage_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1_0_100000");
        let data: Vec<u8> = (0..100_000u32).map(|n| (n * 7) as u8).collect();
        write(&path, &data, true, 0o600).unwrap();
        let serve = |verify, range: Range<u32>| {
            let (mut out, mut sums) = (b"head".to_vec(), vec![9]);
            BlockFile::open(&path, 100_000, verify, true).unwrap().serve(
                &range,
                (&mut out, 4),
                &mut sums,
                true,
            )?;
            assert_eq!((&out[..4], sums[0]), (&b"head"[..], 9));
            Ok::<_, Damaged>((out[4..].to_vec(), sums[1..].to_vec()))
        };
        let right = |bytes: &[u8], range: &Range<u32>| -> Vec<u32> {
            let part = |page: Range<u32>| {
                crc32c::crc32c(&bytes[(page.start - range.start) as usize..(page.end - range.start) as usize])
            };
            crate::pages(range).map(part).collect()
        };
        for range in [0..100_000, 0..1, 5..40_000, 32_768..65_536, 70_000..100_000, 99_999..100_000, 7..7] {
            for verify in [Verify::Extend, Verify::None] {
                let (bytes, sums) = serve(verify, range.clone()).unwrap();
                assert!(bytes == data[range.start as usize..range.end as usize], "{range:?}");
                assert_eq!(sums, right(&bytes, &range), "{range:?}");
            }
        }
        flip(&path, 40_000);
        let (bytes, sums) = serve(Verify::Extend, 0..100_000).unwrap();
        assert_ne!(sums, right(&bytes, &(0..100_000)), "the receiver sees it");
        assert!(serve(Verify::Extend, 33_000..50_000).is_err(), "the receiver could not");
        assert!(serve(Verify::Extend, 0..32_768).is_ok() && serve(Verify::Extend, 70_000..70_001).is_ok());
    }

    #[test]
    fn short_files_are_refused_and_files_without_checksums_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1_0_50000");
        write(&path, &vec![7; 50_000], false, 0o600).unwrap();
        let file = BlockFile::open(&path, 50_000, Verify::Extend, true).unwrap();
        assert_eq!(file.read(&(49_999..50_000), Verify::Extend).unwrap(), [7u8][..]);
        assert!(BlockFile::open(&path, 50_001, Verify::Extend, true).is_err());
        assert!(BlockFile::open(&path, 49_996, Verify::Extend, true).is_err(), "half a trailer");
    }
}
