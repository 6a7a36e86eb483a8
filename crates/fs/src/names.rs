//! Calls that make and remove names.
//!
//! What must stay true: the error is the one that a kernel gives. A kernel looks a name up before
//! it checks whether the directory may be changed; the operations below check that first.

use sluice_types::{Access, Attr, FileType, FsError, FsResult, Ino, Name};
use sluice_vfs::{Dir, Interrupt, NewNode, OpKind};

use crate::{
    error::{About, Result},
    fs::Fs,
    path,
    resolve::{Last, Place},
};

/// The answer to a call in a directory that was guessed; `None` if the guess was wrong, or if the
/// error may not be the one that comes first.
pub(crate) fn certain<T>(done: FsResult<T>) -> Option<FsResult<T>> {
    (!matches!(done, Err(FsError::Again | FsError::Access | FsError::Perm))).then_some(done)
}

impl Fs {
    /// Makes a directory. Setuid and setgid in `mode` have no effect, as with a kernel: setgid is
    /// inherited.
    pub fn mkdir(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        self.run(OpKind::Mkdir, path.as_ref(), |interrupt, path| self.make_dir(interrupt, path, mode))
    }

    /// Makes a directory and those above it that do not exist, all with the same mode. Others may
    /// make the same at the same time.
    ///
    /// # Errors
    /// [`FsError::Exists`] if something else is there.
    pub fn mkdir_all(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        self.run(OpKind::Mkdir, path.as_ref(), |interrupt, path| self.make_dirs(interrupt, path, mode))
    }

    fn make_dir(&self, interrupt: &Interrupt, path: &[u8], mode: u16) -> FsResult<()> {
        // Linux gives a new directory no other bits.
        let mode = mode & 0o1777;
        let node = NewNode { kind: FileType::Dir, mode, umask: self.umask(), rdev: 0 };
        if let Some((dir, name)) = self.guess(path)
            && let Some(made) = certain(self.vfs().make(self.caller(), interrupt, dir, &name, node))
        {
            return made.map(drop);
        }
        let place = self.place(interrupt, path)?;
        let name = place.name(|_| FsError::Exists)?;
        let made = self.vfs().make(self.caller(), interrupt, place.dir, name, node);
        made.map(drop).map_err(|error| self.or_exists(interrupt, &place, name, error))
    }

    fn make_dirs(&self, interrupt: &Interrupt, path: &[u8], mode: u16) -> FsResult<()> {
        // Most are there already, or only the last is missing. The way up is a list and not the
        // stack.
        let mut missing = vec![path];
        while let Some(dir) = missing.last() {
            match self.make_dir(interrupt, dir, mode) {
                Ok(()) => {
                    missing.pop();
                }
                Err(FsError::Exists) => {
                    let (_, attr) = self.existing(interrupt, dir, true)?;
                    if !attr.is_dir() {
                        return Err(FsError::Exists);
                    }
                    missing.pop();
                }
                Err(FsError::NotFound) => match path::split(dir) {
                    // A name that is not there although all above it was made: others remove it.
                    Some((above, _)) if above.len() < dir.len() && above != b"/" => missing.push(above),
                    _ => return Err(FsError::NotFound),
                },
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes a name of what is no directory.
    pub fn unlink(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.unlink_node(path.as_ref(), None)
    }

    /// [`Self::unlink`], of a name that must stand for `only`; [`FsError::NotFound`] if it stands
    /// for another node.
    pub(crate) fn unlink_node(&self, path: &[u8], only: Option<Ino>) -> Result<()> {
        let unlink = |interrupt: &Interrupt, dir: Dir, name: &[u8]| {
            self.vfs().unlink_node(self.caller(), interrupt, dir, name, only)
        };
        self.run(OpKind::Unlink, path, |interrupt, path| {
            if let Some((dir, name)) = self.guess(path)
                && let Some(done) = certain(unlink(interrupt, dir, &name))
            {
                return done;
            }
            let place = self.place(interrupt, path)?;
            let name = place.name(|_| FsError::IsDir)?;
            if place.slash {
                let node = self.look(interrupt, place.dir, name)?;
                let (_, attr) = node.ok_or(FsError::NotFound)?;
                return Err(if attr.is_dir() { FsError::IsDir } else { FsError::NotDir });
            }
            let removed = unlink(interrupt, place.dir.into(), name);
            removed.map_err(|error| self.or_missing(interrupt, &place, name, error))
        })
    }

    /// Removes an empty directory.
    pub fn rmdir(&self, path: impl AsRef<[u8]>) -> Result<()> {
        self.run(OpKind::Rmdir, path.as_ref(), |interrupt, path| {
            let place = self.place(interrupt, path)?;
            let name = place.name(|last| match last {
                Last::Dot => FsError::Invalid,
                Last::DotDot => FsError::NotEmpty,
                _ => FsError::Busy,
            })?;
            let removed = self.vfs().rmdir(self.caller(), interrupt, place.dir, name);
            removed.map_err(|error| self.or_missing(interrupt, &place, name, error))
        })
    }

    /// Gives a file one more name. A symbolic link itself gets it.
    ///
    /// # Errors
    /// [`FsError::Perm`] for directories, and for files of others that the user may not both read
    /// and write, or that run as their owner: what Linux calls protected hard links.
    pub fn link(&self, existing: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> Result<()> {
        let (existing, new) = (existing.as_ref(), new.as_ref());
        self.run_two(OpKind::Link, (existing, new), |interrupt| {
            let (ino, attr) = self.existing(interrupt, existing, false).map_err(About::First)?;
            let place = self.place(interrupt, new).map_err(About::Second)?;
            let name = self.new_name(interrupt, &place).map_err(About::Second)?;
            if !self.may_link(interrupt, (ino, &attr)).map_err(About::First)? {
                let found = self.look(interrupt, place.dir, name).map_err(About::Second)?;
                return Err(found.map_or(About::First(FsError::Perm), |_| About::Second(FsError::Exists)));
            }
            let linked = self.vfs().link(self.caller(), interrupt, ino, place.dir, name);
            linked.map(drop).map_err(|error| match self.or_exists(interrupt, &place, name, error) {
                error @ FsError::Perm if attr.is_dir() => About::First(error),
                error => About::Second(error),
            })
        })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, target: impl AsRef<[u8]>, path: impl AsRef<[u8]>) -> Result<()> {
        self.run(OpKind::Symlink, path.as_ref(), |interrupt, path| {
            let place = self.place(interrupt, path)?;
            let name = self.new_name(interrupt, &place)?;
            let made = self.vfs().symlink(self.caller(), interrupt, place.dir, name, target.as_ref());
            made.map(drop).map_err(|error| self.or_exists(interrupt, &place, name, error))
        })
    }

    /// Target of a symbolic link.
    ///
    /// # Errors
    /// [`FsError::Invalid`] if it is none.
    pub fn readlink(&self, path: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.run(OpKind::Readlink, path.as_ref(), |interrupt, path| {
            match self.existing(interrupt, path, false)? {
                (ino, attr) if attr.kind == FileType::Symlink => {
                    Ok(self.vfs().readlink(interrupt, ino)?.to_vec())
                }
                _ => Err(FsError::Invalid),
            }
        })
    }

    /// Whether the user may give a node of others one more name. Such a name would keep what its
    /// owner removes.
    fn may_link(&self, interrupt: &Interrupt, (ino, attr): (Ino, &Attr)) -> FsResult<bool> {
        let caller = self.caller();
        if caller.is_privileged() || caller.uid == attr.uid {
            return Ok(true);
        }
        let runs_as_group = attr.mode & 0o2010 == 0o2010;
        if !attr.is_file() || attr.mode & 0o4000 != 0 || runs_as_group {
            return Ok(false);
        }
        let both = Access(Access::READ.0 | Access::WRITE.0);
        self.vfs().meta().may_access(ino, attr, caller, both, interrupt)
    }

    /// The name of what is about to be made and is no directory.
    fn new_name<'p>(&self, interrupt: &Interrupt, place: &'p Place) -> FsResult<&'p Name> {
        let name = place.name(|_| FsError::Exists)?;
        if place.slash {
            let found = self.look(interrupt, place.dir, name)?;
            return Err(if found.is_some() { FsError::Exists } else { FsError::NotFound });
        }
        Ok(name)
    }

    /// The error of a call that makes a name: that it exists comes first.
    fn or_exists(&self, interrupt: &Interrupt, place: &Place, name: &Name, error: FsError) -> FsError {
        let denied = matches!(error, FsError::Access | FsError::Perm);
        let exists = denied && matches!(self.look(interrupt, place.dir, name), Ok(Some(_)));
        if exists { FsError::Exists } else { error }
    }

    /// The error of a call that removes a name: that it does not exist comes first.
    fn or_missing(&self, interrupt: &Interrupt, place: &Place, name: &Name, error: FsError) -> FsError {
        let denied = matches!(error, FsError::Access | FsError::Perm);
        let missing = denied && matches!(self.look(interrupt, place.dir, name), Ok(None));
        if missing { FsError::NotFound } else { error }
    }
}
