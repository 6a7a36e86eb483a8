//! Extended attributes.
//!
//! What must stay true: the rules about their names are those of `xattr(7)`, which a kernel applies
//! before it asks a file system.

use sluice_types::{Access, Attr, FileType, FsError, FsResult, Ino};
use sluice_vfs::{Interrupt, OpKind, XattrMode};

use crate::{error::Result, fs::Fs};

const USER: &[u8] = b"user.";
const TRUSTED: &[u8] = b"trusted.";
const SECURITY: &[u8] = b"security.";
const SYSTEM: &[u8] = b"system.";

impl Fs {
    /// Value of an extended attribute.
    ///
    /// # Errors
    /// [`FsError::NoData`] if there is none, or if it may not be seen.
    pub fn xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        let name = name.as_ref();
        self.run(OpKind::GetXattr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            if name.starts_with(USER) {
                if !keeps_user(&attr) {
                    return Err(FsError::NoData);
                }
                self.check(interrupt, (ino, &attr), Access::READ)?;
            } else if name.starts_with(TRUSTED) {
                if !self.caller().is_privileged() {
                    return Err(FsError::NoData);
                }
            } else if !name.starts_with(SECURITY) && !name.starts_with(SYSTEM) {
                return Err(FsError::NotSupported);
            }
            Ok(self.vfs().getxattr(interrupt, ino, name)?.to_vec())
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`FsError::Perm`] if the user may not set attributes of this kind there,
    /// [`FsError::NotSupported`] for names of no known kind.
    pub fn set_xattr(
        &self,
        path: impl AsRef<[u8]>,
        name: impl AsRef<[u8]>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        let name = name.as_ref();
        self.run(OpKind::SetXattr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            self.may_set(interrupt, (ino, &attr), name)?;
            self.vfs().setxattr(self.caller(), interrupt, ino, (name, value), mode)
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// Those of [`Self::set_xattr`], and [`FsError::NoData`] if there is none.
    pub fn remove_xattr(&self, path: impl AsRef<[u8]>, name: impl AsRef<[u8]>) -> Result<()> {
        let name = name.as_ref();
        self.run(OpKind::RemoveXattr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            self.may_set(interrupt, (ino, &attr), name)?;
            self.vfs().removexattr(self.caller(), interrupt, ino, name)
        })
    }

    /// Names of all extended attributes that the user may see.
    pub fn xattrs(&self, path: impl AsRef<[u8]>) -> Result<Vec<Vec<u8>>> {
        self.run(OpKind::ListXattr, path.as_ref(), |interrupt, path| {
            let (ino, _) = self.existing(interrupt, path, true)?;
            let all = self.vfs().listxattr(interrupt, ino)?;
            let names = all.split(|byte| *byte == 0).filter(|name| !name.is_empty());
            let hidden = |name: &&[u8]| name.starts_with(TRUSTED) && !self.caller().is_privileged();
            Ok(names.filter(|name| !hidden(name)).map(<[u8]>::to_vec).collect())
        })
    }

    fn may_set(&self, interrupt: &Interrupt, (ino, attr): (Ino, &Attr), name: &[u8]) -> FsResult<()> {
        let caller = self.caller();
        if name.starts_with(TRUSTED) || name.starts_with(SECURITY) {
            return if caller.is_privileged() { Ok(()) } else { Err(FsError::Perm) };
        }
        if name.starts_with(SYSTEM) {
            return Ok(());
        }
        if !name.starts_with(USER) {
            return Err(FsError::NotSupported);
        }
        // In a directory where everybody may write, nobody shall fill the space of its owner.
        let sticky = attr.is_dir() && attr.mode & 0o1000 != 0;
        if !keeps_user(attr) || sticky && !caller.is_privileged() && caller.uid != attr.uid {
            return Err(FsError::Perm);
        }
        self.check(interrupt, (ino, attr), Access::WRITE)
    }
}

/// Whether a node of this kind has attributes that users set: the permissions of others mean
/// something else.
fn keeps_user(attr: &Attr) -> bool {
    matches!(attr.kind, FileType::File | FileType::Dir)
}
