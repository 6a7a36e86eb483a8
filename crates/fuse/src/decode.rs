//! Decodes the bytes of a request into an [`Operation`].
//!
//! What must stay true: whatever the bytes are, decoding neither panics nor reads beyond them. The
//! kernel is trusted not to be malicious, but it may have bugs. The same code reads from the
//! memory of rings, which is shared with the kernel.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use zerocopy::{FromBytes, Immutable, KnownLayout};

use crate::{
    abi::{self, InHeader, bits, fattr, opcode},
    args::{
        CopyFileRange, Create, Fallocate, Ioctl, Lock, LockArgs, LockKind, Mknod, Open, Read, Release,
        Rename, SetAttr, SetTime, SetXattr, Timestamp, Write,
    },
};

/// A request that does not match its header.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("malformed FUSE request (operation {opcode}): {what}")]
pub(crate) struct Malformed {
    pub(crate) opcode: u32,
    pub(crate) what: &'static str,
}

/// A request, cut into its header and what follows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) header: InHeader,
    /// The fixed part of the arguments, if it is not at the start of the body.
    fixed: Option<&'a [u8]>,
    body: &'a [u8],
}

impl<'a> Message<'a> {
    /// Splits `bytes`, which hold exactly one request.
    pub(crate) fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let Ok((header, body)) = InHeader::read_from_prefix(bytes) else {
            return Err(Malformed { opcode: 0, what: "shorter than a header" });
        };
        if header.len as usize != bytes.len() {
            return Err(Malformed { opcode: header.opcode, what: "length differs from the header's" });
        }
        // Extensions follow the body. None was negotiated, so they are ignored.
        let extensions = usize::from(header.total_extlen) * 8;
        let Some(end) = body.len().checked_sub(extensions) else {
            return Err(Malformed { opcode: header.opcode, what: "extensions longer than the request" });
        };
        Ok(Self { header, fixed: None, body: &body[..end] })
    }

    /// A request whose parts came apart: the fixed part of its arguments, and names and data.
    pub(crate) fn apart(header: InHeader, fixed: &'a [u8], body: &'a [u8]) -> Result<Self, Malformed> {
        let extensions = usize::from(header.total_extlen) * 8;
        let Some(end) = body.len().checked_sub(extensions) else {
            return Err(Malformed { opcode: header.opcode, what: "extensions longer than the request" });
        };
        Ok(Self { header, fixed: Some(fixed), body: &body[..end] })
    }

    /// The body of an INIT request; old kernels send a shorter one.
    pub(crate) fn init(&self) -> abi::InitIn {
        let mut whole = [0; size_of::<abi::InitIn>()];
        let n = self.body.len().min(whole.len());
        whole[..n].copy_from_slice(&self.body[..n]);
        zerocopy::transmute!(whole)
    }

    /// The operation of the request. `setxattr_ext` says whether SETXATTR carries the extended
    /// structure.
    pub(crate) fn operation(&self, setxattr_ext: bool) -> Result<Operation<'a>, Malformed> {
        let mut body = Body { fixed: self.fixed, rest: self.body, opcode: self.header.opcode };
        operation(&mut body, setxattr_ext)
    }
}

/// All operations that the kernel may request.
#[derive(Debug)]
pub(crate) enum Operation<'a> {
    Lookup {
        name: &'a OsStr,
    },
    Forget {
        count: u64,
    },
    BatchForget(Forgets<'a>),
    Getattr {
        fh: Option<u64>,
    },
    Setattr(SetAttr),
    Readlink,
    Symlink {
        name: &'a OsStr,
        target: &'a OsStr,
    },
    Mknod(Mknod<'a>),
    Mkdir {
        name: &'a OsStr,
        mode: u32,
        umask: u32,
    },
    Unlink {
        name: &'a OsStr,
    },
    Rmdir {
        name: &'a OsStr,
    },
    Rename(Rename<'a>),
    Link {
        ino: u64,
        name: &'a OsStr,
    },
    Open(Open),
    Read(Read),
    Write(Write<'a>),
    Statfs,
    Release(Release),
    Fsync {
        fh: u64,
        data_only: bool,
    },
    Setxattr(SetXattr<'a>),
    Getxattr {
        name: &'a OsStr,
        size: u32,
    },
    Listxattr {
        size: u32,
    },
    Removexattr {
        name: &'a OsStr,
    },
    Flush {
        fh: u64,
        lock_owner: u64,
    },
    Opendir {
        flags: i32,
    },
    Readdir(Read),
    Readdirplus(Read),
    Releasedir(Release),
    Fsyncdir {
        fh: u64,
        data_only: bool,
    },
    Getlk(LockArgs),
    Setlk(LockArgs),
    Setlkw(LockArgs),
    Access {
        mask: u32,
    },
    Create(Create<'a>),
    Interrupt {
        unique: u64,
    },
    Destroy,
    Ioctl(Ioctl<'a>),
    Fallocate(Fallocate),
    Lseek {
        fh: u64,
        offset: i64,
        whence: u32,
    },
    CopyFileRange {
        args: CopyFileRange,
        wide: bool,
    },
    /// An operation that this crate does not know: ENOSYS.
    Unknown,
}

/// The inodes of a `BATCH_FORGET` and how often each is forgotten.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forgets<'a>(&'a [u8]);

#[allow(clippy::copy_iterator, reason = "whoever copies it wants to start at the same place")]
impl Iterator for Forgets<'_> {
    type Item = (u64, u64);

    fn next(&mut self) -> Option<(u64, u64)> {
        let (one, rest) = abi::ForgetOne::read_from_prefix(self.0).ok()?;
        self.0 = rest;
        Some((one.nodeid, one.nlookup))
    }
}

struct Body<'a> {
    fixed: Option<&'a [u8]>,
    rest: &'a [u8],
    opcode: u32,
}

impl<'a> Body<'a> {
    fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { opcode: self.opcode, what }
    }

    fn take<T: FromBytes + KnownLayout + Immutable>(&mut self) -> Result<T, Malformed> {
        let from = self.fixed.as_mut().unwrap_or(&mut self.rest);
        let Ok((value, rest)) = T::read_from_prefix(from) else {
            return Err(self.malformed("arguments cut short"));
        };
        *from = rest;
        Ok(value)
    }

    /// A name, ended by NUL.
    fn name(&mut self) -> Result<&'a OsStr, Malformed> {
        let end = self.rest.iter().position(|b| *b == 0).ok_or(self.malformed("name without its end"))?;
        let name = OsStr::from_bytes(&self.rest[..end]);
        self.rest = &self.rest[end + 1..];
        Ok(name)
    }

    fn bytes(&mut self, size: u32) -> Result<&'a [u8], Malformed> {
        let (bytes, rest) =
            self.rest.split_at_checked(size as usize).ok_or(self.malformed("data cut short"))?;
        self.rest = rest;
        Ok(bytes)
    }

    fn lock(&mut self) -> Result<LockArgs, Malformed> {
        let raw: abi::LkIn = self.take()?;
        let lock = lock_from_wire(&raw.lk).ok_or(self.malformed("unknown kind of lock"))?;
        Ok(LockArgs { fh: raw.fh, owner: raw.owner, lock, flock: raw.lk_flags & bits::LK_FLOCK != 0 })
    }

    fn read(&mut self) -> Result<Read, Malformed> {
        let raw: abi::ReadIn = self.take()?;
        Ok(Read {
            fh: raw.fh,
            offset: raw.offset,
            size: raw.size,
            flags: raw.flags as i32,
            lock_owner: (raw.read_flags & bits::READ_LOCKOWNER != 0).then_some(raw.lock_owner),
        })
    }

    fn release(&mut self) -> Result<Release, Malformed> {
        let raw: abi::ReleaseIn = self.take()?;
        Ok(Release {
            fh: raw.fh,
            flags: raw.flags as i32,
            flush: raw.release_flags & bits::RELEASE_FLUSH != 0,
            flock_unlock: raw.release_flags & bits::RELEASE_FLOCK_UNLOCK != 0,
            lock_owner: raw.lock_owner,
        })
    }

    fn rename(&mut self, new_parent: u64, flags: u32) -> Result<Operation<'a>, Malformed> {
        let (name, new_name) = (self.name()?, self.name()?);
        Ok(Operation::Rename(Rename { name, new_parent, new_name, flags }))
    }

    fn write(&mut self) -> Result<Write<'a>, Malformed> {
        let raw: abi::WriteIn = self.take()?;
        Ok(Write {
            fh: raw.fh,
            offset: raw.offset,
            data: self.bytes(raw.size)?,
            flags: raw.flags as i32,
            cached: raw.write_flags & bits::WRITE_CACHE != 0,
            lock_owner: (raw.write_flags & bits::WRITE_LOCKOWNER != 0).then_some(raw.lock_owner),
            kill_suid_gid: raw.write_flags & bits::WRITE_KILL_SUIDGID != 0,
        })
    }

    fn setxattr(&mut self, extended: bool) -> Result<SetXattr<'a>, Malformed> {
        let raw: abi::SetxattrIn = self.take()?;
        // An older kernel does not say it, and leaves the decision to the server.
        let kill_sgid =
            !extended || self.take::<abi::SetxattrExt>()?.setxattr_flags & bits::SETXATTR_ACL_KILL_SGID != 0;
        Ok(SetXattr { name: self.name()?, value: self.bytes(raw.size)?, flags: raw.flags, kill_sgid })
    }

    fn ioctl(&mut self) -> Result<Ioctl<'a>, Malformed> {
        let raw: abi::IoctlIn = self.take()?;
        Ok(Ioctl {
            fh: raw.fh,
            cmd: raw.cmd,
            arg: raw.arg,
            input: self.bytes(raw.in_size)?,
            out_size: raw.out_size,
            dir: raw.flags & bits::IOCTL_DIR != 0,
        })
    }

    fn create(&mut self) -> Result<Create<'a>, Malformed> {
        let raw: abi::CreateIn = self.take()?;
        Ok(Create {
            name: self.name()?,
            mode: raw.mode,
            umask: raw.umask,
            flags: raw.flags as i32,
            kill_suid_gid: raw.open_flags & bits::OPEN_KILL_SUIDGID != 0,
        })
    }

    fn copy_file_range(&mut self) -> Result<CopyFileRange, Malformed> {
        let raw: abi::CopyFileRangeIn = self.take()?;
        Ok(CopyFileRange {
            fh_in: raw.fh_in,
            offset_in: raw.off_in,
            ino_out: raw.nodeid_out,
            fh_out: raw.fh_out,
            offset_out: raw.off_out,
            length: raw.len,
            flags: raw.flags,
        })
    }
}

fn operation<'a>(body: &mut Body<'a>, setxattr_ext: bool) -> Result<Operation<'a>, Malformed> {
    Ok(match body.opcode {
        opcode::LOOKUP => Operation::Lookup { name: body.name()? },
        opcode::FORGET => Operation::Forget { count: body.take::<abi::ForgetIn>()?.nlookup },
        opcode::BATCH_FORGET => {
            let count = body.take::<abi::BatchForgetIn>()?.count;
            let size = count.checked_mul(size_of::<abi::ForgetOne>() as u32);
            let size = size.ok_or(body.malformed("more forgets than fit"))?;
            Operation::BatchForget(Forgets(body.bytes(size)?))
        }
        opcode::GETATTR => {
            let raw: abi::GetattrIn = body.take()?;
            Operation::Getattr { fh: (raw.getattr_flags & bits::GETATTR_FH != 0).then_some(raw.fh) }
        }
        opcode::SETATTR => Operation::Setattr(setattr(&body.take()?)),
        opcode::READLINK => Operation::Readlink,
        opcode::SYMLINK => Operation::Symlink { name: body.name()?, target: body.name()? },
        opcode::MKNOD => {
            let abi::MknodIn { mode, rdev, umask, .. } = body.take()?;
            Operation::Mknod(Mknod { name: body.name()?, mode, umask, rdev })
        }
        opcode::MKDIR => {
            let abi::MkdirIn { mode, umask } = body.take()?;
            Operation::Mkdir { name: body.name()?, mode, umask }
        }
        opcode::UNLINK => Operation::Unlink { name: body.name()? },
        opcode::RMDIR => Operation::Rmdir { name: body.name()? },
        opcode::RENAME => {
            let parent = body.take::<abi::RenameIn>()?.newdir;
            body.rename(parent, 0)?
        }
        opcode::RENAME2 => {
            let raw: abi::Rename2In = body.take()?;
            body.rename(raw.newdir, raw.flags)?
        }
        opcode::LINK => Operation::Link { ino: body.take::<abi::LinkIn>()?.oldnodeid, name: body.name()? },
        opcode::OPEN => {
            let raw: abi::OpenIn = body.take()?;
            let kill_suid_gid = raw.open_flags & bits::OPEN_KILL_SUIDGID != 0;
            Operation::Open(Open { flags: raw.flags as i32, kill_suid_gid })
        }
        opcode::READ => Operation::Read(body.read()?),
        opcode::WRITE => Operation::Write(body.write()?),
        opcode::STATFS => Operation::Statfs,
        opcode::RELEASE => Operation::Release(body.release()?),
        opcode::FSYNC | opcode::FSYNCDIR => {
            let raw: abi::FsyncIn = body.take()?;
            let (fh, data_only) = (raw.fh, raw.fsync_flags & bits::FSYNC_FDATASYNC != 0);
            match body.opcode {
                opcode::FSYNC => Operation::Fsync { fh, data_only },
                _ => Operation::Fsyncdir { fh, data_only },
            }
        }
        opcode::SETXATTR => Operation::Setxattr(body.setxattr(setxattr_ext)?),
        opcode::GETXATTR => {
            let size = body.take::<abi::GetxattrIn>()?.size;
            Operation::Getxattr { name: body.name()?, size }
        }
        opcode::LISTXATTR => Operation::Listxattr { size: body.take::<abi::GetxattrIn>()?.size },
        opcode::REMOVEXATTR => Operation::Removexattr { name: body.name()? },
        opcode::FLUSH => {
            let raw: abi::FlushIn = body.take()?;
            Operation::Flush { fh: raw.fh, lock_owner: raw.lock_owner }
        }
        opcode::OPENDIR => Operation::Opendir { flags: body.take::<abi::OpenIn>()?.flags as i32 },
        opcode::READDIR => Operation::Readdir(body.read()?),
        opcode::READDIRPLUS => Operation::Readdirplus(body.read()?),
        opcode::RELEASEDIR => Operation::Releasedir(body.release()?),
        opcode::GETLK => Operation::Getlk(body.lock()?),
        opcode::SETLK => Operation::Setlk(body.lock()?),
        opcode::SETLKW => Operation::Setlkw(body.lock()?),
        opcode::ACCESS => Operation::Access { mask: body.take::<abi::AccessIn>()?.mask },
        opcode::CREATE => Operation::Create(body.create()?),
        opcode::INTERRUPT => Operation::Interrupt { unique: body.take::<abi::InterruptIn>()?.unique },
        opcode::DESTROY => Operation::Destroy,
        opcode::IOCTL => Operation::Ioctl(body.ioctl()?),
        opcode::FALLOCATE => {
            let abi::FallocateIn { fh, offset, length, mode, .. } = body.take()?;
            Operation::Fallocate(Fallocate { fh, offset, length, mode: mode as i32 })
        }
        opcode::LSEEK => {
            let abi::LseekIn { fh, offset, whence, .. } = body.take()?;
            Operation::Lseek { fh, offset: offset as i64, whence }
        }
        opcode::COPY_FILE_RANGE => Operation::CopyFileRange { args: body.copy_file_range()?, wide: false },
        opcode::COPY_FILE_RANGE_64 => Operation::CopyFileRange { args: body.copy_file_range()?, wide: true },
        _ => Operation::Unknown,
    })
}

fn setattr(raw: &abi::SetattrIn) -> SetAttr {
    let has = |bit| raw.valid & bit != 0;
    let time = |given, now, secs: u64, nanos| match (has(given), has(now)) {
        (_, true) => Some(SetTime::Now),
        (true, false) => Some(SetTime::At(Timestamp { secs: secs as i64, nanos })),
        (false, false) => None,
    };
    SetAttr {
        mode: has(fattr::MODE).then_some(raw.mode),
        uid: has(fattr::UID).then_some(raw.uid),
        gid: has(fattr::GID).then_some(raw.gid),
        size: has(fattr::SIZE).then_some(raw.size),
        atime: time(fattr::ATIME, fattr::ATIME_NOW, raw.atime, raw.atimensec),
        mtime: time(fattr::MTIME, fattr::MTIME_NOW, raw.mtime, raw.mtimensec),
        ctime: has(fattr::CTIME).then_some(Timestamp { secs: raw.ctime as i64, nanos: raw.ctimensec }),
        fh: has(fattr::FH).then_some(raw.fh),
        lock_owner: has(fattr::LOCKOWNER).then_some(raw.lock_owner),
        kill_suid_gid: has(fattr::KILL_SUIDGID),
    }
}

fn lock_from_wire(raw: &abi::FileLock) -> Option<Lock> {
    let kind = match raw.kind as i32 {
        libc::F_RDLCK => LockKind::Read,
        libc::F_WRLCK => LockKind::Write,
        libc::F_UNLCK => LockKind::Unlock,
        _ => return None,
    };
    Some(Lock { start: raw.start, end: raw.end, kind, pid: raw.pid })
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
