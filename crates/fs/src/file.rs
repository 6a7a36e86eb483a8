//! Open files.
//!
//! What must stay true: a file has no cursor, so any number of threads read and write it at once.
//! Data that a call acknowledged is stored once `flush`, `sync` or `close` returned.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use sluice_types::{Access, Attr, Caller, FileType, FsError, FsResult, Ino};
use sluice_vfs::{Interrupt, NewNode, OpKind, Place, Vfs};

use crate::{
    error::{Error, Result},
    fs::{Fs, Stat},
    names::certain,
    open_options::OpenOptions,
    resolve::Last,
    volume::Volume,
};

/// Most bytes that one step of a read or a write takes. Its blocks are in memory at once.
const STEP: usize = 32 << 20;
/// Most links that an open follows to a file that it makes.
const MAX_TRIES: u32 = 40;

/// An open file. Dropping it closes it; [`File::close`] says whether that succeeded.
pub struct File {
    volume: Arc<Volume>,
    caller: Arc<Caller>,
    ino: Ino,
    fh: u64,
    path: Box<[u8]>,
    options: OpenOptions,
    closed: bool,
}

impl Fs {
    /// Opens a file for reading.
    pub fn open(&self, path: impl AsRef<[u8]>) -> Result<File> {
        self.open_with(path, OpenOptions::new().read(true))
    }

    /// Opens a file for writing: makes it, or empties it.
    pub fn create(&self, path: impl AsRef<[u8]>) -> Result<File> {
        self.open_with(path, OpenOptions::new().write(true).create(true).truncate(true))
    }

    /// Opens a file. It sees all data that any client flushed before.
    ///
    /// # Errors
    /// [`FsError::Invalid`] for options without a meaning, and for what is neither a file nor a
    /// directory; [`FsError::IsDir`] for directories.
    pub fn open_with(&self, path: impl AsRef<[u8]>, options: OpenOptions) -> Result<File> {
        let kind = if options.create || options.create_new { OpKind::Create } else { OpKind::Open };
        self.run(kind, path.as_ref(), |interrupt, path| {
            let flags = options.flags()?;
            let (ino, fh) = if options.create_new {
                self.open_new(interrupt, path, options.mode, flags)?
            } else {
                self.open_or_make(interrupt, path, options, flags)?
            };
            Ok(File {
                volume: Arc::clone(self.volume()),
                caller: self.shared_caller(),
                ino,
                fh,
                path: path.into(),
                options,
                closed: false,
            })
        })
    }

    fn open_new(&self, interrupt: &Interrupt, path: &[u8], mode: u16, flags: i32) -> FsResult<(Ino, u64)> {
        let node = NewNode { kind: FileType::File, mode, umask: self.umask(), rdev: 0 };
        if let Some((dir, name)) = self.guess(path)
            && let Some(made) = certain(self.vfs().create(self.caller(), interrupt, dir, &name, node, flags))
        {
            return made.map(|(entry, opened)| (entry.ino, opened.fh));
        }
        let place = self.place(interrupt, path)?;
        let name = place.name(|_| FsError::Exists)?;
        if place.slash {
            self.look(interrupt, place.dir, name)?;
            return Err(FsError::IsDir);
        }
        match self.vfs().create(self.caller(), interrupt, place.dir, name, node, flags) {
            Ok((entry, opened)) => Ok((entry.ino, opened.fh)),
            Err(FsError::Access | FsError::Perm) if self.look(interrupt, place.dir, name)?.is_some() => {
                Err(FsError::Exists)
            }
            Err(error) => Err(error),
        }
    }

    fn open_or_make(
        &self,
        interrupt: &Interrupt,
        path: &[u8],
        options: OpenOptions,
        flags: i32,
    ) -> FsResult<(Ino, u64)> {
        if options.create && path.ends_with(b"/") {
            let place = self.place(interrupt, path)?;
            if let Last::Name(name) = &place.last {
                // What the name stands for does not matter, only that it can be looked up.
                self.look(interrupt, place.dir, name)?;
            }
            return Err(FsError::IsDir);
        }
        for _ in 0..MAX_TRIES {
            let resolved = self.resolve_to_open(interrupt, path)?;
            if options.create && (resolved.slash || !matches!(resolved.last, Last::Name(_))) {
                return Err(FsError::IsDir);
            }
            let Some((ino, attr)) = resolved.node else {
                let Last::Name(name) = &resolved.last else { return Err(FsError::NotFound) };
                if !options.create {
                    return Err(FsError::NotFound);
                }
                let node = NewNode { kind: FileType::File, mode: options.mode, umask: self.umask(), rdev: 0 };
                match self.vfs().create(self.caller(), interrupt, resolved.dir, name, node, flags) {
                    // Somebody made a link there just now.
                    Err(FsError::Loop) => continue,
                    made => return made.map(|(entry, opened)| (entry.ino, opened.fh)),
                }
            };
            if resolved.slash && !attr.is_dir() {
                return Err(FsError::NotDir);
            }
            if attr.is_dir() && !options.writes() {
                // A kernel opens it, and refuses to read.
                self.check(interrupt, (ino, &attr), Access::READ)?;
            }
            let opened = match &resolved.found {
                Some(found) => self.vfs().open_found(self.caller(), interrupt, found, flags),
                None => self.vfs().open(self.caller(), interrupt, ino, flags),
            };
            match opened {
                // Somebody removed or replaced the file just now: there may be another one.
                Err(FsError::NotFound | FsError::Stale) => {}
                Ok(opened) if opened.trashed && !attr.parent.is_trash_hour() => {
                    self.vfs().cancel_open(opened.fh)?;
                }
                opened => return opened.map(|opened| (ino, opened.fh)),
            }
        }
        Err(FsError::NotFound)
    }

    /// Sets the length of a file.
    pub fn set_len(&self, path: impl AsRef<[u8]>, length: u64) -> Result<()> {
        self.run(OpKind::SetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            match attr.kind {
                FileType::File => {}
                FileType::Dir => return Err(FsError::IsDir),
                _ => return Err(FsError::Invalid),
            }
            let kill = !self.caller().is_privileged();
            self.vfs().truncate(self.caller(), interrupt, ino, (length, None), kill).map(drop)
        })
    }
}

impl File {
    /// Its inode.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The path by which it was opened.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    /// Reads from `offset` into `buffer`. Returns the number of bytes; fewer than the buffer has
    /// only at the end of the file.
    ///
    /// # Errors
    /// [`FsError::BadFd`] if it was not opened to read.
    pub fn read_at(&self, buffer: &mut [u8], offset: u64) -> Result<usize> {
        self.run(OpKind::Read, |interrupt| {
            self.readable()?;
            let mut done = 0;
            for step in buffer.chunks_mut(STEP) {
                let mut filled = 0;
                for piece in self.vfs().read(interrupt, self.fh, offset + done as u64, step.len() as u32)? {
                    step[filled..filled + piece.len()].copy_from_slice(&piece);
                    filled += piece.len();
                }
                done += filled;
                if filled < step.len() {
                    break;
                }
            }
            Ok(done)
        })
    }

    /// Reads up to `length` bytes from `offset` without a copy: the pieces are those of the cache.
    /// Fewer bytes only at the end of the file.
    pub fn read_pieces(&self, offset: u64, length: usize) -> Result<Vec<Bytes>> {
        self.run(OpKind::Read, |interrupt| {
            self.readable()?;
            let mut pieces = Vec::new();
            let mut done = 0;
            while done < length {
                let step = (length - done).min(STEP);
                let read = self.vfs().read(interrupt, self.fh, offset + done as u64, step as u32)?;
                let count = read.iter().map(Bytes::len).sum::<usize>();
                pieces.extend(read);
                done += count;
                if count < step {
                    break;
                }
            }
            Ok(pieces)
        })
    }

    /// Writes all of `data` at `offset`. Of a file that was opened to append, this fails.
    ///
    /// # Errors
    /// [`FsError::BadFd`] if it was not opened to write there.
    pub fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        self.run(OpKind::Write, |interrupt| {
            if self.options.append {
                return Err(FsError::BadFd);
            }
            let mut place = Place { fh: self.fh, offset };
            for step in data.chunks(STEP) {
                self.vfs().write(&self.caller, interrupt, place, step, self.kills_suid())?;
                place.offset += step.len() as u64;
            }
            Ok(())
        })
    }

    /// Writes all of `data` at the end of the file. Returns where it lies. Appends of this process
    /// never overlap, whichever handles they go through.
    pub fn append(&self, data: &[u8]) -> Result<u64> {
        self.run(OpKind::Write, |interrupt| {
            self.vfs().append(&self.caller, interrupt, self.fh, data, self.kills_suid())
        })
    }

    /// Stores what was written: other clients that open the file then see it, and it survives the
    /// end of this process.
    pub fn flush(&self) -> Result<()> {
        self.run(OpKind::Flush, |_| self.vfs().flush(self.fh, 0))
    }

    /// As [`Self::flush`]; the data also survives a power cut, as far as the engine and the object
    /// store promise that.
    pub fn sync(&self) -> Result<()> {
        self.run(OpKind::Fsync, |interrupt| self.vfs().fsync(interrupt, self.fh))
    }

    /// Sets the length of the file.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it was not opened to write.
    pub fn set_len(&self, length: u64) -> Result<()> {
        self.run(OpKind::SetAttr, |interrupt| {
            if !self.options.writes() {
                return Err(FsError::Invalid);
            }
            let target = (length, Some(self.fh));
            self.vfs().truncate(&self.caller, interrupt, self.ino, target, self.kills_suid()).map(drop)
        })
    }

    /// Length in bytes as this client knows it, unstored data included. Mostly no trip: what other
    /// clients append after the file was opened may not be in it.
    pub fn len(&self) -> Result<u64> {
        self.run(OpKind::Lseek, |interrupt| {
            self.vfs().append_at(interrupt, Place { fh: self.fh, offset: 0 }, true)
        })
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Its attributes now.
    pub fn stat(&self) -> Result<Stat> {
        self.run(OpKind::GetAttr, |interrupt| {
            let (attr, _): (Attr, _) = self.vfs().getattr(interrupt, self.ino)?;
            Ok(Stat { ino: self.ino, attr })
        })
    }

    /// Copies from another file of the volume, without a transfer of data. Returns the number of
    /// bytes: fewer than `length` only at the end of the source.
    pub fn copy_from(&self, offset: u64, source: &Self, source_offset: u64, length: u64) -> Result<u64> {
        self.run(OpKind::CopyRange, |interrupt| {
            source.readable()?;
            if self.options.append {
                return Err(FsError::BadFd);
            }
            let from = Place { fh: source.fh, offset: source_offset };
            self.copy_range(interrupt, from, offset, length)
        })
    }

    /// Appends whole files, without a copy of data. If one fails, the file is as it was. Returns
    /// how much of each was appended.
    pub(crate) fn append_files(&self, sources: &[Self]) -> Result<Vec<u64>> {
        self.run(OpKind::CopyRange, |interrupt| {
            self.vfs().append_with(interrupt, self.fh, |_| {
                // Others may have appended since the file was opened.
                let begin = self.vfs().length_now(interrupt, self.fh)?;
                let mut end = begin;
                let copy = |source: &Self| {
                    let length = self.vfs().length_now(interrupt, source.fh)?;
                    let copied =
                        self.copy_range(interrupt, Place { fh: source.fh, offset: 0 }, end, length)?;
                    end += copied;
                    Ok(copied)
                };
                let copied: FsResult<Vec<u64>> = sources.iter().map(copy).collect();
                copied.or_else(|error| {
                    if self.vfs().length_now(interrupt, self.fh)? > begin {
                        let target = (begin, Some(self.fh));
                        self.vfs().truncate(&self.caller, interrupt, self.ino, target, self.kills_suid())?;
                    }
                    Err(error)
                })
            })
        })
    }

    /// Whether it has more than `length` bytes by now.
    pub(crate) fn grew(&self, length: u64) -> Result<bool> {
        self.run(OpKind::GetAttr, |interrupt| Ok(self.vfs().length_now(interrupt, self.fh)? > length))
    }

    fn copy_range(&self, interrupt: &Interrupt, from: Place, offset: u64, length: u64) -> FsResult<u64> {
        let mut done = 0;
        while done < length {
            let from = Place { fh: from.fh, offset: from.offset + done };
            let to = Place { fh: self.fh, offset: offset + done };
            match self.vfs().copy_range(&self.caller, interrupt, from, to, length - done)? {
                0 => break,
                copied => done += copied,
            }
        }
        Ok(done)
    }

    /// Stores what was written and closes the file.
    ///
    /// # Errors
    /// Something could not be stored. The file is closed all the same.
    pub fn close(mut self) -> Result<()> {
        self.closed = true;
        self.run(OpKind::Release, |_| self.end())
    }

    fn end(&self) -> FsResult<()> {
        let flushed = self.vfs().flush(self.fh, 0);
        let released = self.vfs().release(self.fh, None);
        flushed.and(released)
    }

    fn vfs(&self) -> &Arc<Vfs> {
        self.volume.vfs()
    }

    /// The layer below leaves it to the kernel which handles read.
    fn readable(&self) -> FsResult<()> {
        if self.options.read { Ok(()) } else { Err(FsError::BadFd) }
    }

    fn kills_suid(&self) -> bool {
        !self.caller.is_privileged()
    }

    fn run<T>(&self, kind: OpKind, run: impl FnOnce(&Interrupt) -> FsResult<T>) -> Result<T> {
        let interrupt = Interrupt::never();
        let describe = |text: &mut String, _: Option<&T>| {
            text.extend(["(", &self.ino.to_string(), ")"]);
        };
        self.vfs()
            .observed(kind, &self.caller, || run(&interrupt), describe)
            .map_err(|error| Error::new(&self.path, error))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.closed || !self.volume.is_own() {
            return;
        }
        if let Err(error) = self.end() {
            let path = String::from_utf8_lossy(&self.path);
            tracing::error!(%error, "not everything that was written to {path} could be stored when it was closed");
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = String::from_utf8_lossy(&self.path);
        f.debug_struct("File").field("path", &path).field("ino", &self.ino).finish_non_exhaustive()
    }
}
