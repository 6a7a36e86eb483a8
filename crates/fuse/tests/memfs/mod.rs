//! A small file system in memory, to try the transport with. It counts what it is asked, and some
//! names in it behave badly on purpose.
//!
//! What must stay true: it does no more than a test needs, and nothing in it is fast by being
//! wrong.

#![allow(dead_code, unreachable_pub, missing_docs, reason = "each test and example uses its own part of it")]

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{OsStr, OsString},
    os::unix::ffi::{OsStrExt, OsStringExt},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};
use sluice_fuse::{
    Attr, AttrReply, CopyFileRange, Create, DirBuffer, DirPlusBuffer, Entry, Errno, FileSystem, Interrupt,
    Ioctl, Lock, LockArgs, LockKind, Mknod, Open, OpenFlags, Opened, ROOT, Read, ReadBuffer, Registration,
    Release, Rename, Reply, Request, Result, SetAttr, SetTime, SetXattr, Write,
};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Lookup,
    Forget,
    Getattr,
    Setattr,
    Create,
    Unlink,
    Open,
    Read,
    Write,
    Flush,
    Release,
    Getxattr,
    Readdir,
    Readdirplus,
    Flock,
    Posix,
    Interrupted,
    Destroy,
}

#[derive(Default)]
pub struct Counts([AtomicU64; 18]);

impl Counts {
    fn add(&self, op: Op) {
        self.0[op as usize].fetch_add(1, Relaxed);
    }

    pub fn of(&self, op: Op) -> u64 {
        self.0[op as usize].load(Relaxed)
    }
}

#[derive(Default)]
struct Inner {
    attr: Attr,
    data: Vec<u8>,
    children: BTreeMap<OsString, u64>,
    xattrs: BTreeMap<OsString, Bytes>,
}

type Node = Arc<Mutex<Inner>>;

/// A door that those who ask for it wait behind.
#[derive(Default)]
pub struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
    pub waiting: AtomicUsize,
}

impl Gate {
    pub fn open(&self) {
        *self.open.lock() = true;
        self.changed.notify_all();
    }

    fn wait(self: &Arc<Self>, interrupt: Option<&Interrupt>) -> Result<()> {
        self.waiting.fetch_add(1, Relaxed);
        let this = Arc::clone(self);
        let _wake = interrupt.map(|i| {
            i.on_interrupt(move || {
                drop(this.open.lock());
                this.changed.notify_all();
            })
        });
        let mut open = self.open.lock();
        while !*open && !interrupt.is_some_and(Interrupt::is_set) {
            self.changed.wait(&mut open);
        }
        self.waiting.fetch_sub(1, Relaxed);
        if *open { Ok(()) } else { Err(Errno::EINTR) }
    }
}

/// How it answers.
#[derive(Clone, Copy)]
pub struct Behaviour {
    pub entry_ttl: Duration,
    pub attr_ttl: Duration,
    pub open: OpenFlags,
}

impl Default for Behaviour {
    fn default() -> Self {
        let hour = Duration::from_hours(1);
        Self { entry_ttl: hour, attr_ttl: hour, open: OpenFlags::KEEP_CACHE }
    }
}

struct Waiter {
    owner: u64,
    kind: LockKind,
    flock: bool,
    reply: Option<Reply>,
    registration: Option<Registration>,
}

/// Whole-file locks; the two kinds side by side.
#[derive(Default)]
struct Locks {
    held: Vec<(bool, u64, u64, LockKind)>,
    waiting: Vec<(u64, Waiter)>,
}

pub struct MemFs {
    shards: Vec<RwLock<HashMap<u64, Node>>>,
    next: AtomicU64,
    pub counts: Arc<Counts>,
    pub gate: Arc<Gate>,
    pub behaviour: Behaviour,
    locks: Arc<Mutex<Locks>>,
}

impl MemFs {
    pub fn new(behaviour: Behaviour) -> Arc<Self> {
        let fs = Self {
            shards: (0..64).map(|_| RwLock::default()).collect(),
            next: AtomicU64::new(2),
            counts: Arc::default(),
            gate: Arc::default(),
            behaviour,
            locks: Arc::default(),
        };
        fs.insert(ROOT, libc::S_IFDIR | 0o777, 0, 0);
        Arc::new(fs)
    }

    fn shard(&self, ino: u64) -> &RwLock<HashMap<u64, Node>> {
        &self.shards[ino as usize % 64]
    }

    fn node(&self, ino: u64) -> Result<Node> {
        self.shard(ino).read().get(&ino).cloned().ok_or(Errno::ENOENT)
    }

    fn insert(&self, ino: u64, mode: u32, uid: u32, gid: u32) -> (Node, Attr) {
        let nlink = if mode & libc::S_IFMT == libc::S_IFDIR { 2 } else { 1 };
        let attr = Attr { ino, mode, uid, gid, nlink, ..Attr::default() };
        let node = Arc::new(Mutex::new(Inner { attr, ..Inner::default() }));
        self.shard(ino).write().insert(ino, Arc::clone(&node));
        (node, attr)
    }

    fn make(&self, req: &Request<'_>, parent: u64, name: &OsStr, mode: u32) -> Result<(Node, Entry)> {
        let parent = self.node(parent)?;
        let mut parent = parent.lock();
        if parent.children.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        let ino = self.next.fetch_add(1, Relaxed);
        let (node, attr) = self.insert(ino, mode, req.uid, req.gid);
        parent.children.insert(name.into(), ino);
        Ok((node, self.entry(attr)))
    }

    fn entry(&self, attr: Attr) -> Entry {
        let AttrReply { attr, ttl: attr_ttl } = self.attr(attr);
        Entry { ino: attr.ino, generation: 0, attr, entry_ttl: self.behaviour.entry_ttl, attr_ttl }
    }

    /// What directories are is always cached, so that tests count requests about files only.
    fn attr(&self, attr: Attr) -> AttrReply {
        let dir = attr.mode & libc::S_IFMT == libc::S_IFDIR;
        AttrReply { attr, ttl: if dir { Duration::from_hours(1) } else { self.behaviour.attr_ttl } }
    }

    /// Changes a file behind the kernel's back.
    pub fn set_data(&self, ino: u64, data: &[u8]) {
        let node = self.node(ino).expect("inode");
        let mut inner = node.lock();
        inner.data = data.into();
        inner.attr.size = data.len() as u64;
    }

    /// Removes a name behind the kernel's back.
    pub fn drop_name(&self, parent: u64, name: &str) {
        self.node(parent).expect("inode").lock().children.remove(OsStr::new(name));
    }

    fn remove(&self, parent: u64, name: &OsStr, dir: bool) -> Result<()> {
        let parent = self.node(parent)?;
        let mut parent = parent.lock();
        let ino = *parent.children.get(name).ok_or(Errno::ENOENT)?;
        let node = self.node(ino)?;
        let mut node = node.lock();
        if dir && !node.children.is_empty() {
            return Err(Errno::ENOTEMPTY);
        }
        parent.children.remove(name);
        node.attr.nlink = node.attr.nlink.saturating_sub(1);
        Ok(())
    }

    fn list(&self, ino: u64, offset: u64, mut add: impl FnMut(u64, &OsStr, Attr) -> bool) -> Result<()> {
        let node = self.node(ino)?;
        let children: Vec<_> = {
            let inner = node.lock();
            inner.children.iter().skip(offset as usize).map(|(name, ino)| (name.clone(), *ino)).collect()
        };
        for (at, (name, ino)) in children.into_iter().enumerate() {
            let attr = self.node(ino)?.lock().attr;
            if !add(offset + at as u64 + 1, &name, attr) {
                break;
            }
        }
        Ok(())
    }
}

impl Locks {
    fn conflicts(&self, ino: u64, flock: bool, owner: u64, kind: LockKind) -> bool {
        self.held.iter().any(|(f, i, o, k)| {
            *f == flock && *i == ino && *o != owner && (*k == LockKind::Write || kind == LockKind::Write)
        })
    }

    fn set(&mut self, ino: u64, flock: bool, owner: u64, kind: LockKind) -> Result<()> {
        if kind != LockKind::Unlock && self.conflicts(ino, flock, owner, kind) {
            return Err(Errno::EAGAIN);
        }
        self.held.retain(|(f, i, o, _)| (*f, *i, *o) != (flock, ino, owner));
        if kind != LockKind::Unlock {
            self.held.push((flock, ino, owner, kind));
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.retain_mut(|(ino, w)| {
            if self.conflicts(*ino, w.flock, w.owner, w.kind) {
                return true;
            }
            self.held.push((w.flock, *ino, w.owner, w.kind));
            if let Some(reply) = w.reply.take() {
                reply.ok();
            }
            false
        });
        self.waiting = waiting;
        Ok(())
    }
}

impl FileSystem for MemFs {
    fn destroy(&self) {
        self.counts.add(Op::Destroy);
    }

    fn lookup(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Result<Entry> {
        self.counts.add(Op::Lookup);
        let ino = *self.node(parent)?.lock().children.get(name).ok_or(Errno::ENOENT)?;
        let attr = self.node(ino)?.lock().attr;
        Ok(self.entry(attr))
    }

    fn forget(&self, _: u64, count: u64) {
        self.counts.0[Op::Forget as usize].fetch_add(count, Relaxed);
    }

    fn getattr(&self, _: &Request<'_>, ino: u64, _: Option<u64>) -> Result<AttrReply> {
        self.counts.add(Op::Getattr);
        let attr = self.node(ino)?.lock().attr;
        Ok(self.attr(attr))
    }

    fn setattr(&self, _: &Request<'_>, ino: u64, change: &SetAttr) -> Result<AttrReply> {
        self.counts.add(Op::Setattr);
        let node = self.node(ino)?;
        let mut inner = node.lock();
        if let Some(mode) = change.mode {
            inner.attr.mode = inner.attr.mode & libc::S_IFMT | mode & 0o7777;
        }
        inner.attr.uid = change.uid.unwrap_or(inner.attr.uid);
        inner.attr.gid = change.gid.unwrap_or(inner.attr.gid);
        if let Some(size) = change.size {
            inner.data.resize(size as usize, 0);
            inner.attr.size = size;
        }
        if let Some(SetTime::At(time)) = change.mtime {
            inner.attr.mtime = time;
        }
        Ok(self.attr(inner.attr))
    }

    fn readlink(&self, _: &Request<'_>, ino: u64) -> Result<Bytes> {
        Ok(Bytes::copy_from_slice(&self.node(ino)?.lock().data))
    }

    fn symlink(&self, req: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Result<Entry> {
        let (node, entry) = self.make(req, parent, name, libc::S_IFLNK | 0o777)?;
        node.lock().data = target.as_bytes().into();
        Ok(entry)
    }

    fn mknod(&self, req: &Request<'_>, parent: u64, node: &Mknod<'_>) -> Result<Entry> {
        Ok(self.make(req, parent, node.name, node.mode)?.1)
    }

    fn mkdir(&self, req: &Request<'_>, parent: u64, name: &OsStr, mode: u32, _: u32) -> Result<Entry> {
        Ok(self.make(req, parent, name, libc::S_IFDIR | mode)?.1)
    }

    fn unlink(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        self.counts.add(Op::Unlink);
        self.remove(parent, name, false)
    }

    fn rmdir(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Result<()> {
        self.remove(parent, name, true)
    }

    fn rename(&self, _: &Request<'_>, parent: u64, rename: &Rename<'_>) -> Result<()> {
        let ino = self.node(parent)?.lock().children.remove(rename.name).ok_or(Errno::ENOENT)?;
        self.node(rename.new_parent)?.lock().children.insert(rename.new_name.into(), ino);
        Ok(())
    }

    fn link(&self, _: &Request<'_>, ino: u64, parent: u64, name: &OsStr) -> Result<Entry> {
        let node = self.node(ino)?;
        self.node(parent)?.lock().children.insert(name.into(), ino);
        let mut inner = node.lock();
        inner.attr.nlink += 1;
        Ok(self.entry(inner.attr))
    }

    fn open(&self, _: &Request<'_>, ino: u64, open: &Open) -> Result<Opened> {
        self.counts.add(Op::Open);
        if open.flags & libc::O_TRUNC != 0 {
            self.set_data(ino, &[]);
        }
        let misbehaves = matches!(&self.node(ino)?.lock().data[..], b"wait" | b"hang" | b"panic");
        // What is read through the page cache cannot be interrupted: the kernel does not say that
        // its caller is gone.
        Ok(Opened { fh: ino, flags: if misbehaves { OpenFlags::DIRECT_IO } else { self.behaviour.open } })
    }

    fn create(&self, req: &Request<'_>, parent: u64, create: &Create<'_>) -> Result<(Entry, Opened)> {
        self.counts.add(Op::Create);
        let (_, entry) = self.make(req, parent, create.name, create.mode)?;
        Ok((entry, Opened { fh: entry.ino, flags: self.behaviour.open }))
    }

    fn read(&self, req: &Request<'_>, ino: u64, read: &Read, out: &mut ReadBuffer) -> Result<()> {
        self.counts.add(Op::Read);
        let node = self.node(ino)?;
        let inner = node.lock();
        match &inner.data[..] {
            // Content that makes reading misbehave.
            b"wait" => {
                drop(inner);
                self.gate.wait(Some(&req.interrupt())).inspect_err(|_| self.counts.add(Op::Interrupted))?;
                return Ok(());
            }
            b"hang" => {
                drop(inner);
                return self.gate.wait(None);
            }
            b"panic" => panic!("asked for"),
            data => {
                let start = data.len().min(read.offset as usize);
                let end = data.len().min(start + read.size as usize);
                out.push_copy(&data[start..end]);
            }
        }
        Ok(())
    }

    fn write(&self, _: &Request<'_>, ino: u64, write: &Write<'_>) -> Result<u32> {
        self.counts.add(Op::Write);
        let node = self.node(ino)?;
        let mut inner = node.lock();
        let (start, end) = (write.offset as usize, write.offset as usize + write.data.len());
        if inner.data.len() < end {
            inner.data.resize(end, 0);
            inner.attr.size = end as u64;
        }
        inner.data[start..end].copy_from_slice(write.data);
        Ok(write.data.len() as u32)
    }

    fn flush(&self, _: &Request<'_>, ino: u64, _: u64, lock_owner: u64) -> Result<()> {
        self.counts.add(Op::Flush);
        self.locks.lock().set(ino, false, lock_owner, LockKind::Unlock)
    }

    fn release(&self, _: &Request<'_>, ino: u64, release: &Release) -> Result<()> {
        self.counts.add(Op::Release);
        if release.flock_unlock {
            self.locks.lock().set(ino, true, release.lock_owner, LockKind::Unlock)?;
        }
        Ok(())
    }

    fn fsync(&self, _: &Request<'_>, _: u64, _: u64, _: bool) -> Result<()> {
        Ok(())
    }

    fn opendir(&self, _: &Request<'_>, ino: u64, _: i32) -> Result<Opened> {
        Ok(Opened { fh: ino, flags: OpenFlags::NONE })
    }

    fn readdir(&self, _: &Request<'_>, ino: u64, _: u64, offset: u64, out: &mut DirBuffer) -> Result<()> {
        self.counts.add(Op::Readdir);
        self.list(ino, offset, |cookie, name, attr| out.add(attr.ino, cookie, attr.mode, name.as_bytes()))
    }

    fn readdirplus(
        &self,
        _: &Request<'_>,
        ino: u64,
        _: u64,
        offset: u64,
        out: &mut DirPlusBuffer,
    ) -> Result<()> {
        self.counts.add(Op::Readdirplus);
        self.list(ino, offset, |cookie, name, attr| out.add(cookie, name.as_bytes(), &self.entry(attr)))
    }

    fn setxattr(&self, _: &Request<'_>, ino: u64, xattr: &SetXattr<'_>) -> Result<()> {
        self.node(ino)?.lock().xattrs.insert(xattr.name.into(), Bytes::copy_from_slice(xattr.value));
        Ok(())
    }

    fn getxattr(&self, _: &Request<'_>, ino: u64, name: &OsStr) -> Result<Bytes> {
        self.counts.add(Op::Getxattr);
        self.node(ino)?.lock().xattrs.get(name).cloned().ok_or(Errno::ENODATA)
    }

    fn listxattr(&self, _: &Request<'_>, ino: u64) -> Result<Bytes> {
        let node = self.node(ino)?;
        let mut all = Vec::new();
        for name in node.lock().xattrs.keys() {
            all.extend_from_slice(&name.clone().into_vec());
            all.push(0);
        }
        Ok(all.into())
    }

    fn removexattr(&self, _: &Request<'_>, ino: u64, name: &OsStr) -> Result<()> {
        self.node(ino)?.lock().xattrs.remove(name).map(|_| ()).ok_or(Errno::ENODATA)
    }

    fn getlk(&self, _: &Request<'_>, ino: u64, args: &LockArgs) -> Result<Lock> {
        let free = !self.locks.lock().conflicts(ino, args.flock, args.owner, args.lock.kind);
        Ok(if free { Lock { kind: LockKind::Unlock, ..args.lock } } else { args.lock })
    }

    fn setlk(&self, _: &Request<'_>, ino: u64, args: &LockArgs, reply: Reply) {
        self.counts.add(if args.flock { Op::Flock } else { Op::Posix });
        let hangs = args.lock.kind == LockKind::Unlock
            && self.node(ino).is_ok_and(|node| node.lock().data[..] == *b"hang");
        if hangs {
            let _ = self.gate.wait(None);
        }
        let done = self.locks.lock().set(ino, args.flock, args.owner, args.lock.kind);
        reply.result(done);
    }

    fn setlkw(&self, req: &Request<'_>, ino: u64, args: &LockArgs, reply: Reply) {
        self.counts.add(if args.flock { Op::Flock } else { Op::Posix });
        let interrupt = req.interrupt();
        let mut locks = self.locks.lock();
        if let Ok(()) = locks.set(ino, args.flock, args.owner, args.lock.kind) {
            reply.ok();
            return;
        }
        let (owner, flock) = (args.owner, args.flock);
        let waiter = Waiter { owner, kind: args.lock.kind, flock, reply: Some(reply), registration: None };
        locks.waiting.push((ino, waiter));
        drop(locks);
        let (locks, counts) = (Arc::clone(&self.locks), Arc::clone(&self.counts));
        let registration = interrupt.on_interrupt(move || {
            let mut locks = locks.lock();
            let found = locks.waiting.iter().position(|(i, w)| (*i, w.owner, w.flock) == (ino, owner, flock));
            let waiter = found.map(|at| locks.waiting.swap_remove(at).1);
            drop(locks);
            if let Some(mut waiter) = waiter {
                counts.add(Op::Interrupted);
                if let Some(reply) = waiter.reply.take() {
                    reply.error(Errno::EINTR);
                }
            }
        });
        let mut locks = self.locks.lock();
        let waiter = locks.waiting.iter_mut().find(|(i, w)| (*i, w.owner, w.flock) == (ino, owner, flock));
        if let Some((_, waiter)) = waiter {
            waiter.registration = Some(registration);
        } else {
            drop(locks);
            drop(registration);
        }
    }

    fn ioctl(&self, _: &Request<'_>, ino: u64, ioctl: &Ioctl<'_>) -> Result<Bytes> {
        const GETFLAGS: u32 = 0x8008_6601;
        const SETFLAGS: u32 = 0x4008_6602;
        const FSGETXATTR: u32 = 0x801C_581F;
        let node = self.node(ino)?;
        let mut inner = node.lock();
        match ioctl.cmd {
            GETFLAGS => Ok(Bytes::copy_from_slice(
                &inner.attr.rdev.to_ne_bytes().into_iter().chain([0; 4]).collect::<Vec<_>>(),
            )),
            SETFLAGS if ioctl.input.len() >= 4 => {
                let mut flags = [0; 4];
                flags.copy_from_slice(&ioctl.input[..4]);
                inner.attr.rdev = u32::from_ne_bytes(flags);
                Ok(Bytes::new())
            }
            // The kernel asks for it before it sets flags.
            FSGETXATTR => Ok(Bytes::from_static(&[0; 28])),
            _ => Err(Errno::ENOTTY),
        }
    }

    fn lseek(&self, _: &Request<'_>, ino: u64, _: u64, offset: i64, whence: u32) -> Result<u64> {
        let size = self.node(ino)?.lock().attr.size;
        match whence as i32 {
            libc::SEEK_DATA if (offset as u64) < size => Ok(offset as u64),
            libc::SEEK_HOLE if (offset as u64) < size => Ok(size),
            _ => Err(Errno(libc::ENXIO)),
        }
    }

    fn copy_file_range(&self, _: &Request<'_>, ino: u64, copy: &CopyFileRange) -> Result<u64> {
        let data = self.node(ino)?.lock().data.clone();
        let start = data.len().min(copy.offset_in as usize);
        let end = data.len().min(start.saturating_add(copy.length as usize));
        let target = self.node(copy.ino_out)?;
        let mut target = target.lock();
        let at = copy.offset_out as usize;
        if target.data.len() < at + end - start {
            target.data.resize(at + end - start, 0);
            target.attr.size = target.data.len() as u64;
        }
        target.data[at..at + end - start].copy_from_slice(&data[start..end]);
        Ok((end - start) as u64)
    }
}
