//! The requests about open files and listings.

use std::{fmt::Write as _, os::unix::ffi::OsStrExt};

use bytes::Bytes;
use sluice_types::{Attr, AttrFlags, Caller, FileType, FsError, FsResult, Ino};
use sluice_vfs::{Changes, DirItem, Interrupt, NewNode, OpKind, Place, describe_entry};

use super::{VolumeFs, args, asked::asked, translate};
use crate::{
    args::{CopyFileRange, Create, Fallocate, Ioctl, Read, SetAttr, Write},
    errno::{Errno, Result},
    filesystem::Request,
    reply::{Entry, OpenFlags, Opened, ReadBuffer},
};

/// `FS_IOC_GETFLAGS` and `FS_IOC_SETFLAGS`, for 64-bit and 32-bit callers.
const GET_FLAGS: [u32; 2] = [0x8008_6601, 0x8004_6601];
const SET_FLAGS: [u32; 2] = [0x4008_6602, 0x4004_6602];
/// `FS_IOC_FSGETXATTR`, which the kernel sends before it sets flags, and the bytes of its answer.
const GET_FSX: u32 = 0x801C_581F;
const FSX_BYTES: usize = 28;
/// Flags in that answer and how volumes store them.
const FSX_FLAGS: [(u32, u8); 2] = [(0x08, AttrFlags::IMMUTABLE), (0x10, AttrFlags::APPEND)];
/// Flags of `chattr(1)` and how volumes store them.
const FLAGS: [(u32, u8); 3] =
    [(0x01, AttrFlags::SKIP_TRASH), (0x10, AttrFlags::IMMUTABLE), (0x20, AttrFlags::APPEND)];

impl VolumeFs {
    pub(super) fn change(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        change: &SetAttr,
    ) -> FsResult<Attr> {
        let mut cut = None;
        if let Some(length) = change.size {
            let kill = change.kill_suid_gid;
            cut = Some(self.vfs.truncate(caller, interrupt, ino, (length, change.fh), kill)?);
        }
        let changes = Changes {
            mode: change.mode.map(|mode| (mode & 0o7777) as u16),
            uid: change.uid,
            gid: change.gid,
            atime: change.atime.map(translate::set_time),
            // A truncation sets the time itself.
            mtime: change.mtime.filter(|_| cut.is_none()).map(translate::set_time),
            flags: None,
            kill_suid: change.kill_suid_gid && cut.is_none(),
        };
        let nothing = changes.mode.is_none()
            && changes.uid.is_none()
            && changes.gid.is_none()
            && changes.atime.is_none()
            && changes.mtime.is_none();
        // The groups decide whether setgid is kept.
        let gives = changes.uid.is_some() || changes.gid.is_some();
        let sets = changes.mode.is_some_and(|mode| mode & 0o2000 != 0);
        let caller = translate::with_groups(caller, sets || gives || nothing && cut.is_none());
        match cut {
            Some(attr) if nothing => Ok(attr),
            // This request only clears setuid and setgid, for example before a write. The kernel
            // takes the new mode from this answer alone. Otherwise it would use its cached mode
            // until that expires.
            None if nothing && change.ctime.is_none() => {
                self.vfs.setattr(&caller, interrupt, ino, Changes { kill_suid: true, ..changes })
            }
            _ => self.vfs.setattr(&caller, interrupt, ino, changes),
        }
    }

    pub(super) fn open_file(&self, req: &Request<'_>, ino: u64, flags: i32) -> Result<Opened> {
        let run = |caller: &Caller, interrupt: &Interrupt| self.open_found(caller, interrupt, ino, flags);
        let opened = self.run(req, OpKind::Open, run, |text, opened| {
            let _ = write!(text, "({ino},0x{flags:X})");
            if let Some(opened) = opened {
                let _ = write!(text, " [fh:{}]", opened.fh);
            }
        });
        let opened = opened.map_err(|errno| if errno == Errno::ENOENT { Errno::ESTALE } else { errno })?;
        let is_known = opened.attr.is_some_and(|attr| self.kernel_files.has(ino, &attr));
        if !opened.keep_cache && !opened.direct && !is_known {
            self.forget_attributes(ino);
        }
        Ok(to_opened(opened, flags))
    }

    /// Opens a file that the kernel has looked up. Another mount may have replaced the file
    /// meanwhile. With a trash, the old file is then still in the trash, where it may be read but
    /// not written. Unless the kernel looked it up in the trash, this makes the kernel look up
    /// every name of the path and open again.
    fn open_found(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: u64,
        flags: i32,
    ) -> FsResult<sluice_vfs::Opened> {
        let opened = self.vfs.open(caller, interrupt, self.ino(ino), flags);
        match opened {
            Ok(opened) if opened.trashed && !self.kernel_files.knows_trashed(ino, caller.pid) => {
                self.vfs.cancel_open(opened.fh)?;
                Err(FsError::Stale)
            }
            Err(FsError::Perm) => {
                let (attr, _) = self.vfs.getattr(interrupt, self.ino(ino))?;
                let stale = attr.parent.is_trash_hour() && !self.kernel_files.knows_trashed(ino, caller.pid);
                Err(if stale { FsError::Stale } else { FsError::Perm })
            }
            opened => opened,
        }
    }

    pub(super) fn create_file(
        &self,
        req: &Request<'_>,
        parent: u64,
        create: &Create<'_>,
    ) -> Result<(Entry, Opened)> {
        let Create { name, mode, umask, flags, .. } = *create;
        let (mode, umask) = ((mode & 0o7777) as u16, umask as u16);
        let node = NewNode { kind: FileType::File, mode, umask, rdev: 0 };
        let run = |caller: &Caller, interrupt: &Interrupt| {
            let caller = translate::with_groups(caller, mode & 0o2000 != 0);
            self.vfs.create(&caller, interrupt, self.ino(parent), name.as_bytes(), node, flags)
        };
        let (entry, opened) = self.run(req, OpKind::Create, run, |text, made| {
            let _ = write!(text, "({parent},{},0{mode:o})", name.display());
            describe_entry(text, made.map(|(entry, _)| entry));
            if let Some((_, opened)) = made {
                let _ = write!(text, " [fh:{}]", opened.fh);
            }
        })?;
        Ok((self.entry(parent, &entry), to_opened(opened, flags)))
    }

    pub(super) fn read_file(
        &self,
        req: &Request<'_>,
        ino: u64,
        read: &Read,
        out: &mut ReadBuffer,
    ) -> Result<()> {
        let Read { fh, offset, size, .. } = *read;
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.read(interrupt, fh, offset, size);
        if self.ino(ino).is_internal() {
            // A reader of the access log must not produce log lines itself.
            let pieces = self.vfs.read(&Interrupt::never(), fh, offset, size);
            let pieces = pieces.map_err(|error| translate::errno(&error))?;
            for piece in pieces {
                out.push(piece);
            }
            return Ok(());
        }
        let pieces = self.run(req, OpKind::Read, run, |text, pieces| {
            let _ = write!(text, "({ino},{size},{offset},{fh})");
            if let Some(pieces) = pieces {
                let _ = write!(text, ": ({})", pieces.iter().map(Bytes::len).sum::<usize>());
            }
        })?;
        for piece in pieces {
            out.push(piece);
        }
        Ok(())
    }

    pub(super) fn write_file(&self, req: &Request<'_>, ino: u64, write: &Write<'_>) -> Result<u32> {
        let Write { fh, offset, data, kill_suid_gid, flags, cached, .. } = *write;
        // A page that was changed through a mapping stays at its offset.
        let appends = flags & libc::O_APPEND != 0 && !cached;
        let at_end = appends && self.kernel_files.has_length(ino, offset);
        let run = |caller: &Caller, interrupt: &Interrupt| {
            let mut place = Place { fh, offset };
            if appends {
                place.offset = self.vfs.append_by(interrupt, asked(req), place, at_end)?;
            }
            // For direct I/O, the kernel does not clear them.
            if flags & libc::O_DIRECT != 0 && !self.ino(ino).is_internal() {
                self.vfs.drop_capability(interrupt, self.ino(ino))?;
            }
            // Requests that are written to an internal file run later.
            let caller = translate::with_groups(caller, self.ino(ino).is_internal());
            let written = self.vfs.write(&caller, interrupt, place, data, kill_suid_gid)?;
            Ok((written, place.offset))
        };
        let (written, placed) = self.run(req, OpKind::Write, run, |text, done| {
            let at = done.map_or(offset, |(_, placed)| *placed);
            let _ = write!(text, "({ino},{},{at},{fh})", data.len());
        })?;
        self.kernel_files.wrote(ino, offset + u64::from(written));
        // These pages are at the wrong offset, or the kernel has read what was there before the
        // write, which went past the pages.
        if placed != offset || passes_pages(flags) {
            self.vfs.drop_pages(self.ino(ino));
        }
        Ok(written)
    }

    pub(super) fn list(
        &self,
        req: &Request<'_>,
        (ino, fh, offset, plus): (u64, u64, u64, bool),
        add: &mut dyn FnMut(DirItem<'_>) -> bool,
    ) -> Result<()> {
        let add = std::cell::RefCell::new(add);
        let run = |_: &Caller, interrupt: &Interrupt| {
            self.vfs.readdir(interrupt, fh, (offset, plus), &mut |item| (add.borrow_mut())(item))
        };
        self.run(req, OpKind::Readdir, run, args(format_args!("{ino},{offset},{plus}")))
    }

    /// `chattr(1)` and `lsattr(1)`; `None` for other commands.
    pub(super) fn flags(
        &self,
        caller: &Caller,
        interrupt: &Interrupt,
        ino: Ino,
        ioctl: &Ioctl<'_>,
    ) -> FsResult<Option<Bytes>> {
        if GET_FLAGS.contains(&ioctl.cmd) {
            let (attr, _) = self.vfs.getattr(interrupt, ino)?;
            let mut answer = u64::from(shown_flags(attr.flags, &FLAGS)).to_ne_bytes().to_vec();
            answer.truncate(ioctl.out_size as usize);
            return Ok(Some(answer.into()));
        }
        if ioctl.cmd == GET_FSX {
            let (attr, _) = self.vfs.getattr(interrupt, ino)?;
            let mut answer = shown_flags(attr.flags, &FSX_FLAGS).to_ne_bytes().to_vec();
            answer.resize(FSX_BYTES, 0);
            return Ok(Some(answer.into()));
        }
        if !SET_FLAGS.contains(&ioctl.cmd) {
            return Ok(None);
        }
        let asked = ioctl.input.first_chunk::<4>().map_or(0, |bytes| u32::from_ne_bytes(*bytes));
        let known: u32 = FLAGS.iter().map(|(flag, _)| flag).sum();
        if asked & !known != 0 {
            return Err(FsError::NotSupported);
        }
        let (attr, _) = self.vfs.getattr(interrupt, ino)?;
        let mut flags = attr.flags.0;
        for (flag, bit) in FLAGS {
            flags = if asked & flag == 0 { flags & !bit } else { flags | bit };
        }
        let changes = Changes { flags: Some(AttrFlags(flags)), ..Changes::default() };
        self.vfs.setattr(caller, interrupt, ino, changes)?;
        Ok(Some(Bytes::new()))
    }

    pub(super) fn allocate(&self, req: &Request<'_>, ino: u64, range: &Fallocate) -> Result<()> {
        let Fallocate { fh, offset, length, mode } = *range;
        let what = translate::allocation(mode).ok_or(Errno::EOPNOTSUPP)?;
        let run = |caller: &Caller, interrupt: &Interrupt| {
            self.vfs.fallocate(caller, interrupt, Place { fh, offset }, length, what)
        };
        self.run(req, OpKind::Fallocate, run, args(format_args!("{ino},{mode},{offset},{length},{fh}")))
    }

    pub(super) fn seek(
        &self,
        req: &Request<'_>,
        (ino, fh): (u64, u64),
        offset: i64,
        whence: u32,
    ) -> Result<u64> {
        let data = match whence as i32 {
            libc::SEEK_DATA => true,
            libc::SEEK_HOLE => false,
            _ => return Err(Errno::EINVAL),
        };
        let offset = u64::try_from(offset).map_err(|_| Errno(libc::ENXIO))?;
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.seek(interrupt, Place { fh, offset }, data);
        self.run(req, OpKind::Lseek, run, args(format_args!("{ino},{offset},{whence},{fh}")))
    }

    pub(super) fn copy(&self, req: &Request<'_>, ino: u64, copy: &CopyFileRange) -> Result<u64> {
        let from = Place { fh: copy.fh_in, offset: copy.offset_in };
        let to = Place { fh: copy.fh_out, offset: copy.offset_out };
        let run = |caller: &Caller, interrupt: &Interrupt| {
            self.vfs.copy_range(caller, interrupt, from, to, copy.length)
        };
        let CopyFileRange { offset_in, ino_out, offset_out, length, .. } = *copy;
        self.run(
            req,
            OpKind::CopyRange,
            run,
            args(format_args!("{ino},{offset_in},{ino_out},{offset_out},{length}")),
        )
    }
}

/// Converts stored flags with a table.
fn shown_flags(flags: AttrFlags, table: &[(u32, u8)]) -> u32 {
    table.iter().filter(|(_, bit)| flags.has(*bit)).map(|(flag, _)| flag).sum()
}

/// Whether writes through a file that was opened with `flags` pass the kernel's pages. The kernel
/// sends several parts of one large direct write at once, unless the file has no pages at all
/// (`DIRECT_IO`). Parts of an append must come in order.
fn passes_pages(flags: i32) -> bool {
    flags & libc::O_APPEND != 0 && flags & libc::O_DIRECT != 0
}

/// The reply to an open with `flags`.
fn to_opened(opened: sluice_vfs::Opened, flags: i32) -> Opened {
    let direct = opened.direct || passes_pages(flags);
    let mut flags = OpenFlags::NONE;
    for (on, flag) in [
        (opened.keep_cache, OpenFlags::KEEP_CACHE),
        (opened.no_flush, OpenFlags::NOFLUSH),
        (direct, OpenFlags::DIRECT_IO),
    ] {
        if on {
            flags = flags | flag;
        }
    }
    Opened { fh: opened.fh, flags }
}
