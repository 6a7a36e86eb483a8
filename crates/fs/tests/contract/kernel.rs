//! The same acts through the path API and through the kernel, on a local directory.
//!
//! What must stay true: each act runs in a thread of its own with the identity of its user, so the
//! kernel decides what it may do.

use std::{
    ffi::OsStr,
    fmt::Write as _,
    fs, io,
    os::unix::{
        ffi::OsStrExt as _,
        fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    },
    path::{Path, PathBuf},
    thread,
};

use rustix::{
    fs::{AtFlags, CWD, Gid, Mode, RenameFlags, Timespec, Timestamps, Uid, XattrFlags},
    thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid},
};
use sluice_fs::{Access, FileType, Fs, OpenOptions, RenameMode, SetTime, Time, User, XattrMode};
use tempfile::TempDir;

/// Something that a user does. Paths are relative.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    Stat(String),
    Lstat(String),
    Access(String, u8),
    Read(String),
    Write(String),
    Empty(String),
    Create(String, u16),
    CreateNew(String, u16),
    Mkdir(String, u16),
    Unlink(String),
    Rmdir(String),
    Rename(String, String, RenameMode),
    Link(String, String),
    Symlink(String, String),
    Readlink(String),
    List(String),
    SetMode(String, u16),
    SetOwner(String, Option<u32>, Option<u32>, bool),
    TouchNow(String),
    SetTimes(String),
    SetLen(String, u64),
    GetXattr(String, &'static str),
    SetXattr(String, &'static str),
    RemoveXattr(String, &'static str),
}

/// What an act answered: a text, or an error number.
pub(crate) type Answer = Result<String, i32>;

/// The act through the path API.
pub(crate) fn ours(world: &Fs, act: &Act) -> Answer {
    let done = |done: sluice_fs::Result<()>| done.map(|()| String::new());
    let write = OpenOptions::new().write(true);
    let answer = match act {
        Act::Stat(path) => world.stat(path).map(|stat| shown(stat.attr)),
        Act::Lstat(path) => world.lstat(path).map(|stat| shown(stat.attr)),
        Act::Access(path, bits) => done(world.access(path, Access(*bits))),
        Act::Read(path) => world.open(path).and_then(|file| {
            let content = file.read_pieces(0, 100)?.concat();
            Ok(String::from_utf8_lossy(&content).into_owned())
        }),
        Act::Write(path) => done(world.open_with(path, write).and_then(|file| {
            file.write_at(b"w", 0)?;
            file.close()
        })),
        Act::Empty(path) => {
            done(world.open_with(path, write.truncate(true)).and_then(sluice_fs::File::close))
        }
        Act::Create(path, mode) => {
            let options = write.create(true).mode(*mode);
            done(world.open_with(path, options).and_then(sluice_fs::File::close))
        }
        Act::CreateNew(path, mode) => {
            let options = write.create_new(true).mode(*mode);
            done(world.open_with(path, options).and_then(sluice_fs::File::close))
        }
        Act::Mkdir(path, mode) => done(world.mkdir(path, *mode)),
        Act::Unlink(path) => done(world.unlink(path)),
        Act::Rmdir(path) => done(world.rmdir(path)),
        Act::Rename(from, to, mode) => done(world.rename(from, to, *mode)),
        Act::Link(from, to) => done(world.link(from, to)),
        Act::Symlink(target, path) => done(world.symlink(target, path)),
        Act::Readlink(path) => {
            world.readlink(path).map(|target| String::from_utf8_lossy(&target).into_owned())
        }
        Act::List(path) => world.list_all(path).map(|items| {
            let mut names: Vec<String> = items.iter().map(|item| item.name.to_string()).collect();
            names.sort();
            names.join(" ")
        }),
        Act::SetMode(path, mode) => done(world.set_mode(path, *mode)),
        Act::SetOwner(path, uid, gid, follow) => done(world.set_owner(path, *uid, *gid, *follow)),
        Act::TouchNow(path) => done(world.set_times(path, Some(SetTime::Now), Some(SetTime::Now), true)),
        Act::SetTimes(path) => {
            let time = SetTime::At(Time { sec: 1_000_000_000, nsec: 0 });
            done(world.set_times(path, Some(time), Some(time), true))
        }
        Act::SetLen(path, length) => done(world.set_len(path, *length)),
        Act::GetXattr(path, name) => {
            world.xattr(path, name).map(|value| String::from_utf8_lossy(&value).into_owned())
        }
        Act::SetXattr(path, name) => done(world.set_xattr(path, name, b"value", XattrMode::Any)),
        Act::RemoveXattr(path, name) => done(world.remove_xattr(path, name)),
    };
    answer.map_err(|error| error.errno())
}

fn shown(attr: sluice_fs::Attr) -> String {
    let (links, length) = if attr.is_dir() { (0, 0) } else { (attr.nlink, attr.length) };
    let mut text = format!("{:?} {:o} {} {}", attr.kind, attr.mode, attr.uid, attr.gid);
    let _ = write!(text, " {links} {length}");
    text
}

/// A local directory in which users act.
pub(crate) struct Kernel {
    dir: TempDir,
}

impl Kernel {
    /// `None` without the rights to act for users; says so. The umask of the process is set.
    pub(crate) fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can act for other users");
            return None;
        }
        rustix::process::umask(Mode::from_raw_mode(0o022));
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::chmod(dir.path(), Mode::from_raw_mode(0o755)).unwrap();
        Some(Self { dir })
    }

    /// Whether users reach the directory, and it keeps extended attributes.
    pub(crate) fn has_xattrs(&self) -> bool {
        self.act(&User::root(), &Act::SetXattr(".".into(), "user.probe")).is_ok()
            && self.act(&User::root(), &Act::RemoveXattr(".".into(), "user.probe")).is_ok()
    }

    /// The act by the kernel.
    pub(crate) fn act(&self, user: &User, act: &Act) -> Answer {
        let root = self.dir.path();
        let run = || {
            become_user(user);
            kernels(root, act).map_err(|error| error.raw_os_error().unwrap_or(-1))
        };
        thread::scope(|scope| scope.spawn(run).join().unwrap())
    }
}

/// Gives the calling thread the identity of a user, for the rest of its life.
fn become_user(user: &User) {
    let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
    set_thread_groups(&groups).unwrap();
    let gid = Some(Gid::from_raw(user.gid));
    set_thread_res_gid(gid, gid, gid).unwrap();
    let uid = Some(Uid::from_raw(user.uid));
    set_thread_res_uid(uid, uid, uid).unwrap();
}

fn kernels(root: &Path, act: &Act) -> io::Result<String> {
    let at = |path: &String| -> PathBuf {
        let mut bytes = root.as_os_str().as_bytes().to_vec();
        bytes.push(b'/');
        bytes.extend_from_slice(path.as_bytes());
        PathBuf::from(OsStr::from_bytes(&bytes))
    };
    let write = || {
        let mut options = fs::OpenOptions::new();
        options.write(true);
        options
    };
    match act {
        Act::Stat(path) => return Ok(of_kernel(&fs::metadata(at(path))?)),
        Act::Lstat(path) => return Ok(of_kernel(&fs::symlink_metadata(at(path))?)),
        Act::Access(path, bits) => {
            let access = rustix::fs::Access::from_bits_retain((*bits).into());
            rustix::fs::accessat(CWD, at(path), access, AtFlags::empty())?;
        }
        Act::Read(path) => {
            let mut buffer = [0; 100];
            let count = fs::File::open(at(path))?.read_at(&mut buffer, 0)?;
            return Ok(String::from_utf8_lossy(&buffer[..count]).into_owned());
        }
        Act::Write(path) => write().open(at(path))?.write_all_at(b"w", 0)?,
        Act::Empty(path) => drop(write().truncate(true).open(at(path))?),
        Act::Create(path, mode) => {
            drop(write().create(true).truncate(false).mode((*mode).into()).open(at(path))?);
        }
        Act::CreateNew(path, mode) => {
            drop(write().create_new(true).mode((*mode).into()).open(at(path))?);
        }
        Act::Mkdir(path, mode) => rustix::fs::mkdir(at(path), Mode::from_raw_mode((*mode).into()))?,
        Act::Unlink(path) => rustix::fs::unlink(at(path))?,
        Act::Rmdir(path) => rustix::fs::rmdir(at(path))?,
        Act::Rename(from, to, mode) => {
            let flags = match mode {
                RenameMode::NoReplace => RenameFlags::NOREPLACE,
                RenameMode::Exchange => RenameFlags::EXCHANGE,
                _ => RenameFlags::empty(),
            };
            rustix::fs::renameat_with(CWD, at(from), CWD, at(to), flags)?;
        }
        Act::Link(from, to) => rustix::fs::linkat(CWD, at(from), CWD, at(to), AtFlags::empty())?,
        Act::Symlink(target, path) => rustix::fs::symlink(target, at(path))?,
        Act::Readlink(path) => return Ok(fs::read_link(at(path))?.display().to_string()),
        Act::List(path) => {
            let names: io::Result<Vec<_>> =
                fs::read_dir(at(path))?.map(|entry| Ok(entry?.file_name())).collect();
            let mut names: Vec<String> = names?.iter().map(|name| name.display().to_string()).collect();
            names.sort();
            return Ok(names.join(" "));
        }
        Act::SetMode(path, mode) => rustix::fs::chmod(at(path), Mode::from_raw_mode((*mode).into()))?,
        Act::SetOwner(path, uid, gid, follow) => {
            let flags = if *follow { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
            rustix::fs::chownat(CWD, at(path), uid.map(Uid::from_raw), gid.map(Gid::from_raw), flags)?;
        }
        Act::TouchNow(path) => set_times(&at(path), Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW })?,
        Act::SetTimes(path) => set_times(&at(path), Timespec { tv_sec: 1_000_000_000, tv_nsec: 0 })?,
        Act::SetLen(path, length) => truncate(&at(path), *length)?,
        Act::GetXattr(path, name) => {
            let mut value = [0; 100];
            let count = rustix::fs::getxattr(at(path), *name, &mut value)?;
            return Ok(String::from_utf8_lossy(&value[..count]).into_owned());
        }
        Act::SetXattr(path, name) => rustix::fs::setxattr(at(path), *name, b"value", XattrFlags::empty())?,
        Act::RemoveXattr(path, name) => rustix::fs::removexattr(at(path), *name)?,
    }
    Ok(String::new())
}

fn set_times(path: &Path, time: Timespec) -> io::Result<()> {
    let times = Timestamps { last_access: time, last_modification: time };
    Ok(rustix::fs::utimensat(CWD, path, &times, AtFlags::empty())?)
}

/// As `truncate(2)`.
fn truncate(path: &Path, length: u64) -> io::Result<()> {
    fs::OpenOptions::new().write(true).open(path)?.set_len(length)
}

fn of_kernel(meta: &fs::Metadata) -> String {
    let kind = FileType::from_mode_bits(meta.mode()).unwrap();
    let (links, length) = if meta.is_dir() { (0, 0) } else { (meta.nlink(), meta.len()) };
    let mut text = format!("{kind:?} {:o} {} {}", meta.mode() & 0o7777, meta.uid(), meta.gid());
    let _ = write!(text, " {links} {length}");
    text
}

/// Whether the kernel adds rules of its own for sticky directories and for links (`sysctl`).
pub(crate) fn protects(what: &str) -> bool {
    let setting = fs::read_to_string(format!("/proc/sys/fs/protected_{what}")).unwrap_or_default();
    !matches!(setting.trim(), "" | "0")
}
