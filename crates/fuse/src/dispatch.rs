//! Calls the method of the [`FileSystem`] for an [`Operation`], and sends the reply. Knows no
//! transport.
//!
//! What must stay true: every request that needs an answer gets one, also if it is malformed or
//! unknown, or its method panics.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;

use crate::{
    abi::{CopyFileRangeOut, GetxattrOut, LseekOut, WriteOut},
    args::{CopyFileRange, Release},
    call::{Call, Reply},
    decode::{Message, Operation},
    errno::{Errno, Result},
    filesystem::{FileSystem, Request},
    reply::{DirBuffer, DirPlusBuffer, IoctlAnswer, ReadBuffer, Wire},
};

/// Runs one operation and answers it, or passes the reply to the thread that will answer.
pub(crate) fn dispatch(
    fs: &dyn FileSystem,
    call: &Arc<Call>,
    message: &Message<'_>,
    operation: &Operation<'_>,
) {
    let opcode = call.opcode;
    let run = AssertUnwindSafe(|| perform(fs, call, message, operation));
    if catch_unwind(run).is_err() {
        tracing::error!("FUSE operation {opcode} panicked, its caller gets an I/O error");
        call.answer(Err::<(), _>(Errno::EIO));
    }
}

#[allow(clippy::too_many_lines, reason = "one line per operation, and nothing else")]
fn perform(fs: &dyn FileSystem, call: &Arc<Call>, message: &Message<'_>, operation: &Operation<'_>) {
    let header = &message.header;
    let req = &Request { unique: header.unique, uid: header.uid, gid: header.gid, pid: header.pid, call };
    let ino = header.nodeid;
    // Whether this answer was the first matters only for opens.
    let _first: bool = match *operation {
        Operation::Lookup { name } => call.answer(fs.lookup(req, ino, name)),
        Operation::Getattr { fh } => call.answer(fs.getattr(req, ino, fh)),
        Operation::Setattr(ref change) => call.answer(fs.setattr(req, ino, change)),
        Operation::Readlink => call.answer(fs.readlink(req, ino)),
        Operation::Symlink { name, target } => call.answer(fs.symlink(req, ino, name, target)),
        Operation::Mknod(ref node) => call.answer(fs.mknod(req, ino, node)),
        Operation::Mkdir { name, mode, umask } => call.answer(fs.mkdir(req, ino, name, mode, umask)),
        Operation::Unlink { name } => call.answer(fs.unlink(req, ino, name)),
        Operation::Rmdir { name } => call.answer(fs.rmdir(req, ino, name)),
        Operation::Rename(ref rename) => call.answer(fs.rename(req, ino, rename)),
        Operation::Link { ino: target, name } => call.answer(fs.link(req, target, ino, name)),
        Operation::Open(ref open) => {
            let opened = fs.open(req, ino, open);
            let fh = opened.as_ref().map(|opened| opened.fh).ok();
            call.answer(opened) || take_back(fs, req, ino, fh)
        }
        Operation::Create(ref create) => {
            let created = fs.create(req, ino, create);
            let made = created.as_ref().ok().map(|(entry, opened)| (entry.ino, opened.fh));
            call.answer(created) || made.is_some_and(|(ino, fh)| take_back(fs, req, ino, Some(fh)))
        }
        Operation::Read(read) => {
            let mut out = ReadBuffer::new(read.size, call.room());
            call.answer(fs.read(req, ino, &read, &mut out).map(|()| out))
        }
        Operation::Write(write) => {
            let written = fs.write(req, ino, &write);
            call.answer(written.map(|size| Wire(WriteOut { size, padding: 0 })))
        }
        Operation::Flush { fh, lock_owner } => call.answer(fs.flush(req, ino, fh, lock_owner)),
        Operation::Release(ref release) => call.answer(fs.release(req, ino, release)),
        Operation::Fsync { fh, data_only } => call.answer(fs.fsync(req, ino, fh, data_only)),
        Operation::Opendir { flags } => {
            let opened = fs.opendir(req, ino, flags);
            let fh = opened.as_ref().map(|opened| opened.fh).ok();
            let release = |fh| fs.releasedir(req, ino, &Release { fh, ..Release::default() }).is_ok();
            call.answer(opened) || fh.is_some_and(release)
        }
        Operation::Readdir(read) => {
            let mut out = DirBuffer::new(read.size);
            call.answer(fs.readdir(req, ino, read.fh, read.offset, &mut out).map(|()| out))
        }
        Operation::Readdirplus(read) => {
            let mut out = DirPlusBuffer::new(read.size);
            call.answer(fs.readdirplus(req, ino, read.fh, read.offset, &mut out).map(|()| out))
        }
        Operation::Releasedir(ref release) => call.answer(fs.releasedir(req, ino, release)),
        Operation::Fsyncdir { fh, data_only } => call.answer(fs.fsyncdir(req, ino, fh, data_only)),
        Operation::Statfs => call.answer(fs.statfs(req, ino)),
        Operation::Setxattr(ref xattr) => call.answer(fs.setxattr(req, ino, xattr)),
        Operation::Getxattr { name, size } => answer_xattr(call, fs.getxattr(req, ino, name), size),
        Operation::Listxattr { size } => answer_xattr(call, fs.listxattr(req, ino), size),
        Operation::Removexattr { name } => call.answer(fs.removexattr(req, ino, name)),
        Operation::Access { mask } => call.answer(fs.access(req, ino, mask)),
        Operation::Getlk(ref lock) => call.answer(fs.getlk(req, ino, lock)),
        Operation::Setlk(ref lock) => {
            fs.setlk(req, ino, lock, Reply(Arc::clone(call)));
            true
        }
        Operation::Setlkw(ref lock) => {
            fs.setlkw(req, ino, lock, Reply(Arc::clone(call)));
            true
        }
        Operation::Ioctl(ioctl) => {
            let limit = ioctl.out_size as usize;
            let out = fs.ioctl(req, ino, &ioctl);
            call.answer(out.map(|bytes| IoctlAnswer(bytes.slice(..bytes.len().min(limit)))))
        }
        Operation::Fallocate(ref range) => call.answer(fs.fallocate(req, ino, range)),
        Operation::Lseek { fh, offset, whence } => {
            let found = fs.lseek(req, ino, fh, offset, whence);
            call.answer(found.map(|offset| Wire(LseekOut { offset })))
        }
        Operation::CopyFileRange { args, wide } => answer_copy(call, fs, req, ino, args, wide),
        Operation::Destroy => call.answer(Ok(())),
        Operation::Unknown => call.answer(Err::<(), _>(Errno::ENOSYS)),
        // These get no answer. The transport handles them before there is a call.
        Operation::Forget { .. } | Operation::BatchForget(_) | Operation::Interrupt { .. } => true,
    };
}

/// Closes a file that was opened too late. The kernel has no handle of it, so it sends no release.
fn take_back(fs: &dyn FileSystem, req: &Request<'_>, ino: u64, fh: Option<u64>) -> bool {
    fh.is_some_and(|fh| fs.release(req, ino, &Release { fh, ..Release::default() }).is_ok())
}

/// With a size of 0, the caller requests the length of the value.
fn answer_xattr(call: &Call, value: Result<Bytes>, size: u32) -> bool {
    match value {
        Ok(value) if size == 0 => call.answer(Ok(Wire(GetxattrOut { size: value.len() as u32, padding: 0 }))),
        Ok(value) if value.len() > size as usize => call.answer(Err::<(), _>(Errno::ERANGE)),
        other => call.answer(other),
    }
}

/// The older of the two operations answers 32 bits only.
fn answer_copy(
    call: &Call,
    fs: &dyn FileSystem,
    req: &Request<'_>,
    ino: u64,
    mut args: CopyFileRange,
    wide: bool,
) -> bool {
    if wide {
        let copied = fs.copy_file_range(req, ino, &args);
        return call.answer(copied.map(|bytes_copied| Wire(CopyFileRangeOut { bytes_copied })));
    }
    args.length = args.length.min(u64::from(u32::MAX) & !0xFFF);
    let copied = fs.copy_file_range(req, ino, &args);
    call.answer(copied.map(|bytes| Wire(WriteOut { size: bytes as u32, padding: 0 })))
}

/// Runs an operation that needs no answer; `false` if `operation` is another one.
pub(crate) fn forget(fs: &dyn FileSystem, message: &Message<'_>, operation: &Operation<'_>) -> bool {
    let run = AssertUnwindSafe(|| match *operation {
        Operation::Forget { count } => fs.forget(message.header.nodeid, count),
        Operation::BatchForget(forgets) => forgets.for_each(|(ino, count)| fs.forget(ino, count)),
        _ => {}
    });
    if catch_unwind(run).is_err() {
        tracing::error!("FUSE operation {} panicked", message.header.opcode);
    }
    matches!(operation, Operation::Forget { .. } | Operation::BatchForget(_))
}
