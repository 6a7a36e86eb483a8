//! One of the two directories. Runs an operation and returns what an application would see.

use super::{
    facts::{Facts, Links},
    generate::SLOTS,
    op::{How, Op, RenameHow, Reserve, Special},
};
use crate::pattern;
use rustix::{
    fs::{
        AtFlags, CWD, FallocateFlags, FileType, Gid, Mode, OFlags, RenameFlags, SeekFrom, Timespec,
        Timestamps, Uid, XattrFlags,
    },
    io::Errno,
};
use std::{
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
};

/// What an operation answered.
pub type Outcome = Result<Seen, Errno>;

/// What a successful operation showed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen {
    /// That it succeeded.
    Done,
    /// So many bytes.
    Count(u64),
    /// Bytes, by length and fingerprint.
    Bytes(usize, u64),
    /// Names or a target.
    Text(Vec<String>),
    /// Attributes.
    Stat(Facts),
    /// Both times, to the nanosecond.
    Times((i64, u64), (i64, u64)),
    /// The slot is empty: nothing was asked.
    Idle,
}

/// A directory with its open files.
#[derive(Debug)]
pub struct Side {
    /// The directory.
    pub root: PathBuf,
    links: Links,
    slots: [Option<OwnedFd>; SLOTS],
}

impl Side {
    /// In `root`, which must be empty.
    pub fn new(root: PathBuf, links: Links) -> Self {
        Self { root, links, slots: [const { None }; SLOTS] }
    }

    /// The place of `path` here.
    pub fn at(&self, path: &str) -> PathBuf {
        if path.is_empty() { self.root.clone() } else { self.root.join(path) }
    }

    /// Closes what is open.
    pub fn close_all(&mut self) {
        self.slots = [const { None }; SLOTS];
    }

    /// Flushes what is open.
    pub fn sync_all(&self) {
        for file in self.slots.iter().flatten() {
            // What cannot be synced (a FIFO) has nothing to flush.
            let _ = rustix::fs::fsync(file);
        }
    }

    /// The facts of `path` here.
    pub fn facts(&self, path: &str) -> Result<Facts, Errno> {
        Facts::of(&self.at(path), self.links)
    }

    /// Does `op`.
    pub fn apply(&mut self, op: &Op) -> Outcome {
        match op {
            Op::Open { slot, path, how } => {
                self.slots[*slot] = None;
                self.slots[*slot] = Some(rustix::fs::open(self.at(path), flags(*how), Mode::from(0o666))?);
                Ok(Seen::Done)
            }
            Op::Close { slot } => {
                self.slots[*slot] = None;
                Ok(Seen::Done)
            }
            Op::Write { .. }
            | Op::Read { .. }
            | Op::Truncate { .. }
            | Op::Reserve { .. }
            | Op::Sync { .. } => self.apply_to_open(op),
            Op::Copy { from, to, from_offset, to_offset, length } => {
                let (Some(from), Some(to)) = (&self.slots[*from], &self.slots[*to]) else {
                    return Ok(Seen::Idle);
                };
                copy(from, to, *from_offset, *to_offset, *length)
            }
            Op::Holes { slot } => self.slots[*slot].as_ref().map_or(Ok(Seen::Idle), holes),
            _ => self.apply_to_names(op),
        }
    }

    fn apply_to_open(&self, op: &Op) -> Outcome {
        let (Op::Write { slot, .. }
        | Op::Read { slot, .. }
        | Op::Truncate { slot, .. }
        | Op::Reserve { slot, .. }
        | Op::Sync { slot }) = op
        else {
            return Ok(Seen::Idle);
        };
        let Some(file) = &self.slots[*slot] else { return Ok(Seen::Idle) };
        match op {
            Op::Write { offset, length, pattern, .. } => {
                write_all(file, *offset, &pattern::bytes(*pattern, *length))
            }
            Op::Read { offset, length, .. } => {
                let bytes = read(file, *offset, *length)?;
                Ok(Seen::Bytes(bytes.len(), pattern::fingerprint(&bytes)))
            }
            Op::Truncate { length, .. } => done_and_dated(file, rustix::fs::ftruncate(file, *length)),
            Op::Reserve { form, offset, length, .. } => {
                let flags = match form {
                    Reserve::Grow => FallocateFlags::empty(),
                    Reserve::Keep => FallocateFlags::KEEP_SIZE,
                    Reserve::Punch => FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
                    Reserve::Zero => FallocateFlags::ZERO_RANGE,
                    Reserve::ZeroKeep => FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
                };
                done_and_dated(file, rustix::fs::fallocate(file, flags, *offset, *length))
            }
            _ => rustix::fs::fsync(file).map(|()| Seen::Done),
        }
    }

    fn apply_to_names(&self, op: &Op) -> Outcome {
        let done = |result: Result<(), Errno>| result.map(|()| Seen::Done);
        match op {
            Op::TruncatePath { path, length } => {
                let file = rustix::fs::open(self.at(path), OFlags::WRONLY | OFlags::NONBLOCK, Mode::empty())?;
                done_and_dated(&file, rustix::fs::ftruncate(&file, *length))
            }
            Op::Mkdir { path, mode } => done(rustix::fs::mkdir(self.at(path), Mode::from(*mode))),
            Op::Rmdir { path } => done(rustix::fs::rmdir(self.at(path))),
            Op::Mknod { path, kind, mode } => {
                let kind = match kind {
                    Special::Fifo => FileType::Fifo,
                    Special::Socket => FileType::Socket,
                    Special::Regular => FileType::RegularFile,
                };
                done(rustix::fs::mknodat(CWD, self.at(path), kind, Mode::from(*mode & 0o777), 0))
            }
            Op::Unlink { path } => done(rustix::fs::unlink(self.at(path))),
            Op::Rename { from, to, how } => {
                let flags = match how {
                    RenameHow::Replace => RenameFlags::empty(),
                    RenameHow::NoReplace => RenameFlags::NOREPLACE,
                    RenameHow::Exchange => RenameFlags::EXCHANGE,
                };
                done(rustix::fs::renameat_with(CWD, self.at(from), CWD, self.at(to), flags))
            }
            Op::Link { from, to } => done(rustix::fs::link(self.at(from), self.at(to))),
            Op::Symlink { target, path } => done(rustix::fs::symlink(target.as_str(), self.at(path))),
            Op::Readlink { path } => rustix::fs::readlink(self.at(path), Vec::new())
                .map(|target| Seen::Text(vec![target.to_string_lossy().into_owned()])),
            Op::Stat { path, follow } => {
                let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
                let stat = rustix::fs::statat(CWD, self.at(path), flags)?;
                Ok(Seen::Stat(Facts::of_stat(&stat, self.links)))
            }
            Op::Chmod { path, mode } => done(rustix::fs::chmod(self.at(path), Mode::from(*mode))),
            Op::Chown { path, uid, gid } => {
                let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
                done(rustix::fs::chownat(CWD, self.at(path), Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW))
            }
            Op::Utimens { path, atime, mtime } => set_times(&self.at(path), *atime, *mtime),
            Op::SetXattr { path, name, length, pattern, how } => {
                let flags =
                    [XattrFlags::empty(), XattrFlags::CREATE, XattrFlags::REPLACE][usize::from(*how) % 3];
                let value = pattern::bytes(*pattern, *length);
                done(rustix::fs::setxattr(self.at(path), name.as_str(), &value, flags))
            }
            Op::RemoveXattr { path, name } => done(rustix::fs::removexattr(self.at(path), name.as_str())),
            Op::List { path } => list(&self.at(path)).map(Seen::Text),
            _ => Ok(Seen::Idle),
        }
    }
}

fn flags(how: How) -> OFlags {
    // A FIFO must not wait for its other end.
    let mut flags = OFlags::NONBLOCK | if how.write { OFlags::RDWR } else { OFlags::RDONLY };
    flags.set(OFlags::APPEND, how.append);
    flags.set(OFlags::CREATE, how.create);
    flags.set(OFlags::EXCL, how.exclusive && how.create);
    flags.set(OFlags::TRUNC, how.truncate);
    flags
}

fn write_all(file: &OwnedFd, offset: u64, bytes: &[u8]) -> Outcome {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::pwrite(file, &bytes[written..], offset + written as u64)? {
            0 => break,
            more => written += more,
        }
    }
    Ok(Seen::Count(written as u64))
}

pub(crate) fn read(file: impl AsFd, offset: u64, length: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = vec![0; length];
    let mut have = 0;
    while have < length {
        match rustix::io::pread(&file, &mut bytes[have..], offset + have as u64)? {
            0 => break,
            more => have += more,
        }
    }
    bytes.truncate(have);
    Ok(bytes)
}

/// File systems differ in whether a change of nothing sets the time, so the operation ends by
/// giving one.
fn done_and_dated(file: &OwnedFd, result: Result<(), Errno>) -> Outcome {
    result?;
    let time = || Timespec { tv_sec: 1_000_000, tv_nsec: 999_999_999 };
    rustix::fs::futimens(file, &Timestamps { last_access: time(), last_modification: time() })?;
    Ok(Seen::Done)
}

fn copy(from: &OwnedFd, to: &OwnedFd, from_offset: u64, to_offset: u64, length: usize) -> Outcome {
    let (mut here, mut there) = (from_offset, to_offset);
    let end = from_offset + length as u64;
    // A short copy is allowed, so the end is what counts.
    while here < end {
        let left = (end - here) as usize;
        if rustix::fs::copy_file_range(from, Some(&mut here), to, Some(&mut there), left)? == 0 {
            break;
        }
    }
    Ok(Seen::Count(here - from_offset))
}

/// Walks data and holes: a hole must read as zeros, and the walk must end at the end of the file.
/// Where holes begin is the file system's own affair.
fn holes(file: &OwnedFd) -> Outcome {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Ok(Seen::Idle);
    }
    let size = stat.st_size as u64;
    let wrong = |what: String| Ok(Seen::Text(vec![what]));
    let mut at = 0;
    while at < size {
        let data = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(data) => data,
            Err(Errno::NXIO) => size,
            Err(why) => return Err(why),
        };
        if data < at || data > size {
            return wrong(format!("SEEK_DATA from {at} said {data}, the size is {size}"));
        }
        let mut hole = at;
        while hole < data {
            let bytes = read(file, hole, (data - hole).min(1 << 20) as usize)?;
            if bytes.is_empty() || bytes.iter().any(|byte| *byte != 0) {
                return wrong(format!("the hole from {at} to {data} holds data or ends early at {hole}"));
            }
            hole += bytes.len() as u64;
        }
        if data == size {
            break;
        }
        let next = rustix::fs::seek(file, SeekFrom::Hole(data))?;
        if next <= data || next > size {
            return wrong(format!("SEEK_HOLE from {data} said {next}, the size is {size}"));
        }
        at = next;
    }
    match rustix::fs::seek(file, SeekFrom::Hole(size)) {
        Err(Errno::NXIO) => Ok(Seen::Done),
        other => wrong(format!("SEEK_HOLE at the end said {other:?}")),
    }
}

fn set_times(path: &Path, atime: (i64, i64), mtime: (i64, i64)) -> Outcome {
    let spec = |(tv_sec, tv_nsec)| Timespec { tv_sec, tv_nsec };
    let times = Timestamps { last_access: spec(atime), last_modification: spec(mtime) };
    // Looked up once, before: a symbolic link on the way may be the very node, by another of its
    // names.
    let node = rustix::fs::open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    rustix::fs::utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW)?;
    let stat = rustix::fs::fstat(&node)?;
    Ok(Seen::Times((stat.st_atime, stat.st_atime_nsec), (stat.st_mtime, stat.st_mtime_nsec)))
}

/// The names in a directory with their types, sorted.
pub(crate) fn list(path: &Path) -> Result<Vec<String>, Errno> {
    let folder = rustix::fs::open(path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?;
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        names.push(format!("{name} {:?}", entry.file_type()));
    }
    names.sort();
    Ok(names)
}
