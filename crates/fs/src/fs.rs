//! A volume as one user sees it.

use std::{fmt, sync::Arc};

use sluice_types::{Access, Attr, Caller, FsError, FsResult, Ino};
use sluice_vfs::{Interrupt, OpKind, Vfs, VolumeSize};

use crate::{
    error::{About, Error, Result},
    user::User,
    volume::Volume,
};

/// What stands at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Its inode.
    pub ino: Ino,
    /// Its attributes, what this process wrote and did not store yet included.
    pub attr: Attr,
}

/// A volume as one user sees it. Cheap to clone.
#[derive(Clone)]
pub struct Fs {
    volume: Arc<Volume>,
    caller: Arc<Caller>,
    umask: u16,
}

impl Volume {
    /// The volume as a user sees it.
    pub fn fs(self: &Arc<Self>, user: &User) -> Fs {
        Fs { volume: Arc::clone(self), caller: Arc::new(user.caller()), umask: user.umask }
    }
}

impl Fs {
    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The same view with another umask.
    #[must_use]
    pub fn with_umask(&self, umask: u16) -> Self {
        Self { umask: umask & 0o777, ..self.clone() }
    }

    /// Attributes of what a path leads to.
    pub fn stat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        self.run(OpKind::GetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            Ok(Stat { ino, attr })
        })
    }

    /// As [`Self::stat`], of a symbolic link itself.
    pub fn lstat(&self, path: impl AsRef<[u8]>) -> Result<Stat> {
        self.run(OpKind::GetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, false)?;
            Ok(Stat { ino, attr })
        })
    }

    /// Whether something is at a path, symbolic links followed.
    ///
    /// # Errors
    /// Nobody can tell: a directory may not be searched, or the engine failed.
    pub fn exists(&self, path: impl AsRef<[u8]>) -> Result<bool> {
        match self.stat(path) {
            Ok(_) => Ok(true),
            Err(Error { error: FsError::NotFound | FsError::NotDir, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Checks permissions as `access(2)` does: mode and ACL of the node, and search permission on
    /// the way to it.
    ///
    /// # Errors
    /// [`FsError::Access`] if the user lacks one of them, [`FsError::ReadOnly`] for writing to a
    /// volume that is open for reading only.
    pub fn access(&self, path: impl AsRef<[u8]>, access: Access) -> Result<()> {
        self.run(OpKind::GetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            self.check(interrupt, (ino, &attr), access)?;
            if access.0 & Access::EXEC.0 != 0 && attr.is_file() && attr.mode & 0o111 == 0 {
                // Nobody runs what is no program.
                return Err(FsError::Access);
            }
            let writes = access.0 & Access::WRITE.0 != 0;
            if writes && self.vfs().meta().is_read_only() { Err(FsError::ReadOnly) } else { Ok(()) }
        })
    }

    /// Used and total size of the volume.
    pub fn statfs(&self) -> VolumeSize {
        self.vfs().statfs()
    }

    pub(crate) fn vfs(&self) -> &Arc<Vfs> {
        self.volume.vfs()
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn shared_caller(&self) -> Arc<Caller> {
        Arc::clone(&self.caller)
    }

    pub(crate) fn umask(&self) -> u16 {
        self.umask
    }

    /// Whether the user may do `access` on a node, by its mode or its ACL.
    pub(crate) fn check(
        &self,
        interrupt: &Interrupt,
        (ino, attr): (Ino, &Attr),
        access: Access,
    ) -> FsResult<()> {
        self.vfs().meta().check_access(ino, attr, &self.caller, access, interrupt)
    }

    /// Runs a call on a path: counts it, and names the path in its error.
    pub(crate) fn run<T>(
        &self,
        kind: OpKind,
        path: &[u8],
        run: impl FnOnce(&Interrupt, &[u8]) -> FsResult<T>,
    ) -> Result<T> {
        let interrupt = Interrupt::never();
        let describe = |text: &mut String, _: Option<&T>| {
            text.extend(["(", &String::from_utf8_lossy(path), ")"]);
        };
        self.vfs()
            .observed(kind, &self.caller, || run(&interrupt, path), describe)
            .map_err(|error| Error::new(path, error))
    }

    /// Runs a call on two paths.
    pub(crate) fn run_two<T>(
        &self,
        kind: OpKind,
        (first, second): (&[u8], &[u8]),
        run: impl FnOnce(&Interrupt) -> std::result::Result<T, About>,
    ) -> Result<T> {
        let mut about_second = false;
        let done = self.run(kind, first, |interrupt, _| {
            run(interrupt).map_err(|about| match about {
                About::First(error) => error,
                About::Second(error) => {
                    about_second = true;
                    error
                }
            })
        });
        done.map_err(|error| if about_second { Error::new(second, error.error) } else { error })
    }
}

impl fmt::Debug for Fs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fs")
            .field("volume", &self.volume)
            .field("uid", &self.caller.uid)
            .finish_non_exhaustive()
    }
}
