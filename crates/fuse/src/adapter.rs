//! The adapter from the kernel's requests to a mounted volume: a thin translation of types.
//!
//! What must stay true: no decision is made here that another front end would have to repeat.

mod asked;
mod before;
mod files;
mod kernel_files;
mod locks;
mod pages;
mod translate;
mod waiting;
mod xattr;

use std::{
    ffi::OsStr,
    fmt::{self, Write as _},
    os::unix::ffi::OsStrExt,
    sync::{Arc, OnceLock},
};

use bytes::Bytes;
use sluice_types::{Caller, FileType, FsError, FsResult, Ino};
use sluice_vfs::{
    Certainty, Change, Interrupt, NewNode, OpKind, RenameMode, Vfs, describe_attr, describe_entry,
};

use self::{
    asked::{asked, closed_before},
    kernel_files::KernelFiles,
    waiting::Waiting,
};
use crate::{
    args::{
        CopyFileRange, Create, Fallocate, Ioctl, Lock, LockArgs, Mknod, Open, Read, Release, Rename, SetAttr,
        SetXattr, Write,
    },
    call::Reply,
    errno::{Errno, Result},
    filesystem::{FileSystem, ROOT, Request},
    init::Features,
    notify::Notifier,
    reply::{Attr, AttrReply, DirBuffer, DirPlusBuffer, Entry, OpenFlags, Opened, ReadBuffer, Statfs},
};

/// Block size of statfs, in bytes.
const BLOCK: u64 = 4096;

/// [`FileSystem`] over a volume.
#[derive(Clone)]
pub struct VolumeFs {
    vfs: Arc<Vfs>,
    notifier: Arc<OnceLock<Notifier>>,
    kernel_files: Arc<KernelFiles>,
    waiting: Arc<Waiting>,
}

impl fmt::Debug for VolumeFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vfs.fmt(f)
    }
}

impl VolumeFs {
    /// A volume to be mounted, with `default_permissions`: of callers whose groups cannot be found
    /// out the kernel's checks are believed. Whoever mounts it closes the [`Vfs`] after the mount
    /// is gone.
    pub fn new(vfs: Arc<Vfs>) -> Arc<Self> {
        Arc::new(Self {
            vfs,
            notifier: Arc::default(),
            kernel_files: Arc::default(),
            waiting: Arc::default(),
        })
    }

    /// Starts to invalidate changes in the kernel that it did not request. Call it when the volume
    /// is mounted.
    pub fn notify(&self, notifier: Notifier) {
        let _ = self.notifier.set(notifier.clone());
        let root = self.vfs.root();
        let number = move |ino: Ino| number(root, ino);
        self.drop_stale_pages(&notifier);
        self.vfs.on_invalidate(move |change, certainty| {
            let sure = certainty == Certainty::Changed;
            let notified = match change {
                Change::Entry(dir, name) => {
                    let tell = if sure { Notifier::inval_entry } else { Notifier::expire_entry };
                    tell(&notifier, number(*dir), OsStr::from_bytes(name))
                }
                // Pages stay. The volume drops those of open files, and the next open others.
                Change::Node(ino) => notifier.inval_inode(number(*ino), -1, 0),
                // What the kernel believes of these comes spelt out beside them.
                Change::Names(_) | Change::Any | Change::Lock(_) => Ok(true),
            };
            match notified {
                Ok(known) => known,
                Err(why) => {
                    tracing::debug!("the kernel could not be told of a change: {why}");
                    true
                }
            }
        });
    }

    /// What to ask the kernel for.
    pub fn features(&self) -> Features {
        let features = Features::DEFAULT.with(Features::DONT_MASK).with(Features::HANDLE_KILLPRIV_V2);
        // With it, the kernel would drop pages that it wrote itself, because their file has another
        // mtime by then. Without both it and EXPLICIT_INVAL_DATA, a new length still drops pages.
        let features = features.without(Features::AUTO_INVAL_DATA);
        if self.vfs.has_acl() { features.with(Features::POSIX_ACL) } else { features }
    }

    /// The inode that the kernel means.
    fn ino(&self, ino: u64) -> Ino {
        if ino == ROOT { self.vfs.root() } else { Ino(ino) }
    }

    /// What the kernel calls an inode.
    fn number(&self, ino: Ino) -> u64 {
        number(self.vfs.root(), ino)
    }

    /// Runs an operation for the caller of a request, until it is done or interrupted. If it is
    /// denied, it is tried again with the caller's supplementary groups. The kernel does not send
    /// these, and to find them costs a read in `/proc`.
    fn run<T>(
        &self,
        req: &Request<'_>,
        kind: OpKind,
        run: impl Fn(&Caller, &Interrupt) -> FsResult<T>,
        describe: impl FnOnce(&mut String, Option<&T>),
    ) -> Result<T> {
        let mut caller = self.vfs.caller(req.uid, req.gid, req.pid);
        let interrupt = Interrupt::of_request(asked(req));
        let _registration = req.interrupt().on_interrupt({
            let interrupt = interrupt.clone();
            move || interrupt.set()
        });
        let teller = caller.clone();
        let run = || match run(&caller, &interrupt) {
            Err(FsError::Access | FsError::Perm) if translate::add_groups(&mut caller) => {
                run(&caller, &interrupt)
            }
            done => done,
        };
        self.vfs.observed(kind, &teller, run, describe).map_err(|error| translate::errno(&error))
    }

    /// Attributes for the kernel.
    fn attr(&self, ino: u64, attr: &sluice_types::Attr) -> Attr {
        if attr.is_file() {
            self.kernel_files.sent(ino, attr);
        }
        translate::attr(ino, attr)
    }

    /// An entry of the directory `dir` for the kernel.
    fn entry(&self, dir: u64, entry: &sluice_vfs::Entry) -> Entry {
        let ino = self.number(entry.ino);
        if entry.attr.is_file() {
            self.kernel_files.found(ino, self.ino(dir).is_trash_hour());
        }
        Entry {
            ino,
            generation: 1,
            attr: self.attr(ino, &entry.attr),
            entry_ttl: entry.entry_ttl,
            attr_ttl: entry.attr_ttl,
        }
    }

    fn lookup_dots(&self, interrupt: &Interrupt, ino: Ino, name: &[u8]) -> FsResult<sluice_vfs::Entry> {
        let (mut attr, mut ttl) = self.vfs.getattr(interrupt, ino)?;
        let mut found = ino;
        if name == b".." && ino != self.vfs.root() {
            found = attr.parent;
            (attr, ttl) = self.vfs.getattr(interrupt, found)?;
        }
        Ok(sluice_vfs::Entry { ino: found, attr, attr_ttl: ttl, entry_ttl: ttl })
    }

    fn make(&self, req: &Request<'_>, op: OpKind, parent: u64, name: &OsStr, node: NewNode) -> Result<Entry> {
        let made = self.run(
            req,
            op,
            |caller, interrupt| {
                let caller = translate::with_groups(caller, node.mode & 0o2000 != 0);
                self.vfs.make(&caller, interrupt, self.ino(parent), name.as_bytes(), node)
            },
            |text, entry| {
                let _ = write!(text, "({parent},{},0{:o})", name.display(), node.mode);
                describe_entry(text, entry);
            },
        )?;
        Ok(self.entry(parent, &made))
    }
}

/// What the kernel calls an inode below `root`.
fn number(root: Ino, ino: Ino) -> u64 {
    if ino == root { ROOT } else { ino.0 }
}

/// One line of the access log with nothing but arguments.
fn args<T>(arguments: fmt::Arguments<'_>) -> impl FnOnce(&mut String, Option<&T>) {
    move |text, _| {
        let _ = write!(text, "({arguments})");
    }
}

impl FileSystem for VolumeFs {
    fn lookup(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<Entry> {
        let dir = self.ino(parent);
        let absent_ttl = self.vfs.absent_ttl(dir, name.as_bytes());
        let found = self.run(
            req,
            OpKind::Lookup,
            |caller, interrupt| match name.as_bytes() {
                dots @ (b"." | b"..") => self.lookup_dots(interrupt, dir, dots),
                name => self.vfs.lookup(caller, interrupt, dir, name),
            },
            |text, entry| {
                let _ = write!(text, "({parent},{})", name.display());
                describe_entry(text, entry);
            },
        );
        match found {
            Ok(entry) => Ok(self.entry(parent, &entry)),
            Err(Errno::ENOENT) if !absent_ttl.is_zero() => Ok(Entry::absent(absent_ttl)),
            Err(errno) => Err(errno),
        }
    }

    fn getattr(&self, req: &Request<'_>, ino: u64, _fh: Option<u64>) -> Result<AttrReply> {
        let (attr, ttl) = self.run(
            req,
            OpKind::GetAttr,
            |_, interrupt| self.vfs.getattr(interrupt, self.ino(ino)),
            |text, found| {
                let _ = write!(text, "({ino})");
                if let Some((attr, _)) = found {
                    describe_attr(text, Ino(ino), attr);
                }
            },
        )?;
        Ok(AttrReply { attr: self.attr(ino, &attr), ttl })
    }

    fn setattr(&self, req: &Request<'_>, ino: u64, change: &SetAttr) -> Result<AttrReply> {
        let ttl = self.vfs.attr_ttl(self.ino(ino));
        let attr = self.run(
            req,
            OpKind::SetAttr,
            |caller, interrupt| self.change(caller, interrupt, self.ino(ino), change),
            |text, attr| {
                let _ = write!(text, "({ino},{change:?})");
                if let Some(attr) = attr {
                    describe_attr(text, Ino(ino), attr);
                }
            },
        )?;
        Ok(AttrReply { attr: self.attr(ino, &attr), ttl })
    }

    fn readlink(&self, req: &Request<'_>, ino: u64) -> Result<Bytes> {
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.readlink(interrupt, self.ino(ino));
        self.run(req, OpKind::Readlink, run, |text, target| {
            let _ = write!(text, "({ino})");
            if let Some(target) = target {
                let _ = write!(text, ": ({})", target.escape_ascii());
            }
        })
    }

    fn symlink(&self, req: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let made = self.run(
            req,
            OpKind::Symlink,
            |caller, interrupt| {
                self.vfs.symlink(caller, interrupt, self.ino(parent), name.as_bytes(), target.as_bytes())
            },
            |text, entry| {
                let _ = write!(text, "({parent},{},{})", name.display(), target.display());
                describe_entry(text, entry);
            },
        )?;
        Ok(self.entry(parent, &made))
    }

    fn mknod(&self, req: &Request<'_>, parent: u64, node: &Mknod<'_>) -> Result<Entry> {
        let kind = FileType::from_mode_bits(node.mode).ok_or(Errno::EINVAL)?;
        let (mode, umask) = ((node.mode & 0o7777) as u16, node.umask as u16);
        self.make(req, OpKind::Mknod, parent, node.name, NewNode { kind, mode, umask, rdev: node.rdev })
    }

    fn mkdir(&self, req: &Request<'_>, parent: u64, name: &OsStr, mode: u32, umask: u32) -> Result<Entry> {
        let (mode, umask) = ((mode & 0o7777) as u16, umask as u16);
        self.make(req, OpKind::Mkdir, parent, name, NewNode { kind: FileType::Dir, mode, umask, rdev: 0 })
    }

    fn unlink(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        let run = |caller: &Caller, interrupt: &Interrupt| {
            self.vfs.unlink(caller, interrupt, self.ino(parent), name.as_bytes())
        };
        self.run(req, OpKind::Unlink, run, args(format_args!("{parent},{}", name.display())))
    }

    fn rmdir(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        let run = |caller: &Caller, interrupt: &Interrupt| {
            self.vfs.rmdir(caller, interrupt, self.ino(parent), name.as_bytes())
        };
        self.run(req, OpKind::Rmdir, run, args(format_args!("{parent},{}", name.display())))
    }

    fn rename(&self, req: &Request<'_>, parent: u64, rename: &Rename<'_>) -> Result<()> {
        let mode = match rename.flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::EINVAL),
        };
        let from = (self.ino(parent), rename.name.as_bytes());
        let to = (self.ino(rename.new_parent), rename.new_name.as_bytes());
        let run = |caller: &Caller, interrupt: &Interrupt| self.vfs.rename(caller, interrupt, from, to, mode);
        let Rename { name, new_parent, new_name, flags } = rename;
        let (name, new_name) = (name.display(), new_name.display());
        self.run(
            req,
            OpKind::Rename,
            run,
            args(format_args!("{parent},{name},{new_parent},{new_name},{flags}")),
        )
    }

    fn link(&self, req: &Request<'_>, ino: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        let made = self.run(
            req,
            OpKind::Link,
            |caller, interrupt| {
                self.vfs.link(caller, interrupt, self.ino(ino), self.ino(parent), name.as_bytes())
            },
            |text, entry| {
                let _ = write!(text, "({ino},{parent},{})", name.display());
                describe_entry(text, entry);
            },
        )?;
        Ok(self.entry(parent, &made))
    }

    fn open(&self, req: &Request<'_>, ino: u64, open: &Open) -> Result<Opened> {
        self.open_file(req, ino, open.flags)
    }

    fn create(&self, req: &Request<'_>, parent: u64, create: &Create<'_>) -> Result<(Entry, Opened)> {
        self.create_file(req, parent, create)
    }

    fn read(&self, req: &Request<'_>, ino: u64, read: &Read, out: &mut ReadBuffer) -> Result<()> {
        self.read_file(req, ino, read, out)
    }

    fn write(&self, req: &Request<'_>, ino: u64, write: &Write<'_>) -> Result<u32> {
        self.write_file(req, ino, write)
    }

    fn flush(&self, req: &Request<'_>, ino: u64, fh: u64, lock_owner: u64) -> Result<()> {
        let run = |_: &Caller, _: &Interrupt| closed_before(req, self.vfs.flush(fh, lock_owner));
        self.run(req, OpKind::Flush, run, args(format_args!("{ino},{fh},{lock_owner:016X}")))
    }

    fn release(&self, req: &Request<'_>, ino: u64, release: &Release) -> Result<()> {
        let fh = release.fh;
        let owner = release.flock_unlock.then_some(release.lock_owner);
        let run = |_: &Caller, _: &Interrupt| closed_before(req, self.vfs.release(fh, owner));
        self.run(req, OpKind::Release, run, args(format_args!("{ino},{fh}")))
    }

    fn fsync(&self, req: &Request<'_>, ino: u64, fh: u64, data_only: bool) -> Result<()> {
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.fsync(interrupt, fh);
        self.run(req, OpKind::Fsync, run, args(format_args!("{ino},{fh},{data_only}")))
    }

    fn opendir(&self, req: &Request<'_>, ino: u64, _flags: i32) -> Result<Opened> {
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.opendir_by(interrupt, self.ino(ino));
        let fh = self.run(req, OpKind::Opendir, run, |text, fh| {
            let _ = write!(text, "({ino})");
            if let Some(fh) = fh {
                let _ = write!(text, " [fh:{fh}]");
            }
        })?;
        let kept = self.vfs.config().readdir_cache && !self.ino(ino).is_internal();
        let flags = if kept { OpenFlags::CACHE_DIR | OpenFlags::KEEP_CACHE } else { OpenFlags::NONE };
        Ok(Opened { fh, flags })
    }

    fn readdir(&self, req: &Request<'_>, ino: u64, fh: u64, offset: u64, out: &mut DirBuffer) -> Result<()> {
        self.list(req, (ino, fh, offset, false), &mut |item| {
            out.add(self.number(item.ino), item.cookie, item.kind.mode_bits(), item.name)
        })
    }

    fn readdirplus(
        &self,
        req: &Request<'_>,
        ino: u64,
        fh: u64,
        offset: u64,
        out: &mut DirPlusBuffer,
    ) -> Result<()> {
        self.list(req, (ino, fh, offset, true), &mut |item| {
            let entry = match &item.entry {
                Some(entry) => self.entry(ino, entry),
                None => translate::name_only(self.number(item.ino), item.kind),
            };
            out.add(item.cookie, item.name, &entry)
        })
    }

    fn releasedir(&self, req: &Request<'_>, ino: u64, release: &Release) -> Result<()> {
        let run = |_: &Caller, _: &Interrupt| {
            self.vfs.releasedir(release.fh);
            Ok(())
        };
        self.run(req, OpKind::Releasedir, run, args(format_args!("{ino}")))
    }

    fn fsyncdir(&self, req: &Request<'_>, ino: u64, fh: u64, data_only: bool) -> Result<()> {
        self.fsync(req, ino, fh, data_only)
    }

    fn statfs(&self, req: &Request<'_>, ino: u64) -> Result<Statfs> {
        let run = |_: &Caller, _: &Interrupt| Ok(self.vfs.statfs());
        let size = self.run(req, OpKind::Statfs, run, args(format_args!("{ino}")))?;
        let free = (size.total - size.used) / BLOCK;
        Ok(Statfs {
            blocks: size.total / BLOCK,
            bfree: free,
            bavail: free,
            files: size.inodes + size.free_inodes,
            ffree: size.free_inodes,
            bsize: BLOCK as u32,
            namelen: 255,
        })
    }

    fn setxattr(&self, req: &Request<'_>, ino: u64, xattr: &SetXattr<'_>) -> Result<()> {
        self.set_xattr(req, ino, xattr)
    }

    fn getxattr(&self, req: &Request<'_>, ino: u64, name: &OsStr) -> Result<Bytes> {
        let run =
            |_: &Caller, interrupt: &Interrupt| self.vfs.getxattr(interrupt, self.ino(ino), name.as_bytes());
        self.run(req, OpKind::GetXattr, run, args(format_args!("{ino},{}", name.display())))
    }

    fn listxattr(&self, req: &Request<'_>, ino: u64) -> Result<Bytes> {
        let run = |_: &Caller, interrupt: &Interrupt| self.vfs.listxattr(interrupt, self.ino(ino));
        self.run(req, OpKind::ListXattr, run, args(format_args!("{ino}")))
    }

    fn removexattr(&self, req: &Request<'_>, ino: u64, name: &OsStr) -> Result<()> {
        let run = |caller: &Caller, interrupt: &Interrupt| {
            self.vfs.removexattr(caller, interrupt, self.ino(ino), name.as_bytes())
        };
        self.run(req, OpKind::RemoveXattr, run, args(format_args!("{ino},{}", name.display())))
    }

    fn getlk(&self, req: &Request<'_>, ino: u64, lock: &LockArgs) -> Result<Lock> {
        self.find_lock(req, ino, lock)
    }

    fn setlk(&self, req: &Request<'_>, ino: u64, lock: &LockArgs, reply: Reply) {
        self.lock(req, ino, lock, reply);
    }

    fn setlkw(&self, req: &Request<'_>, ino: u64, lock: &LockArgs, reply: Reply) {
        self.lock_or_wait(req, ino, lock, reply);
    }

    fn ioctl(&self, req: &Request<'_>, ino: u64, ioctl: &Ioctl<'_>) -> Result<Bytes> {
        let run =
            |caller: &Caller, interrupt: &Interrupt| self.flags(caller, interrupt, self.ino(ino), ioctl);
        let answer = self.run(req, OpKind::Ioctl, run, args(format_args!("{ino},0x{:X}", ioctl.cmd)))?;
        answer.ok_or(Errno::ENOTTY)
    }

    fn fallocate(&self, req: &Request<'_>, ino: u64, range: &Fallocate) -> Result<()> {
        self.allocate(req, ino, range)
    }

    fn lseek(&self, req: &Request<'_>, ino: u64, fh: u64, offset: i64, whence: u32) -> Result<u64> {
        self.seek(req, (ino, fh), offset, whence)
    }

    fn copy_file_range(&self, req: &Request<'_>, ino: u64, copy: &CopyFileRange) -> Result<u64> {
        self.copy(req, ino, copy)
    }
}
