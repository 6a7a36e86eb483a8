//! Modes, owners, times and ACLs.

use sluice_types::{Attr, FsError, Ino};
use sluice_vfs::{AclRule, Changes, Interrupt, OpKind, SetTime, XattrMode};

use crate::{error::Result, fs::Fs};

/// Which of the two ACLs of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Acl {
    /// Who may do what.
    Access,
    /// What children of a directory inherit.
    Default,
}

impl Acl {
    /// The extended attribute that holds it.
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }
}

impl Fs {
    /// Sets the permission bits: 12 bits. Setgid is left out for who is not in the group.
    pub fn set_mode(&self, path: impl AsRef<[u8]>, mode: u16) -> Result<()> {
        self.run(OpKind::SetAttr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            let keeps = self.caller().is_privileged() || self.caller().in_group(attr.gid);
            let mode = Some(mode & if keeps { 0o7777 } else { 0o5777 });
            let changes = Changes { mode, ..Changes::default() };
            self.vfs().setattr(self.caller(), interrupt, ino, changes).map(drop)
        })
    }

    /// Sets the owner and the group; `None` leaves one as it is. A symbolic link at the end of the
    /// path is followed if `follow` says so.
    pub fn set_owner(
        &self,
        path: impl AsRef<[u8]>,
        uid: Option<u32>,
        gid: Option<u32>,
        follow: bool,
    ) -> Result<()> {
        self.change(path.as_ref(), follow, Changes { uid, gid, ..Changes::default() })
    }

    /// Sets the times of the last access and of the last change; `None` leaves one as it is. A
    /// symbolic link at the end of the path is followed if `follow` says so.
    pub fn set_times(
        &self,
        path: impl AsRef<[u8]>,
        atime: Option<SetTime>,
        mtime: Option<SetTime>,
        follow: bool,
    ) -> Result<()> {
        self.change(path.as_ref(), follow, Changes { atime, mtime, ..Changes::default() })
    }

    fn change(&self, path: &[u8], follow: bool, changes: Changes) -> Result<()> {
        self.run(OpKind::SetAttr, path, |interrupt, path| {
            let (ino, _) = self.existing(interrupt, path, follow)?;
            self.vfs().setattr(self.caller(), interrupt, ino, changes).map(drop)
        })
    }

    /// An ACL; `None` if there is none, and the mode says it all.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the volume has no ACLs.
    pub fn acl(&self, path: impl AsRef<[u8]>, acl: Acl) -> Result<Option<AclRule>> {
        self.run(OpKind::GetXattr, path.as_ref(), |interrupt, path| {
            let (ino, _) = self.existing(interrupt, path, true)?;
            match self.vfs().getxattr(interrupt, ino, acl.name()) {
                Ok(value) => AclRule::from_xattr(&value).map(Some),
                Err(FsError::NoData) => Ok(None),
                // Without any extended attributes there are no ACLs either.
                Err(FsError::NotImplemented) => Err(FsError::NotSupported),
                Err(error) => Err(error),
            }
        })
    }

    /// Sets or removes an ACL.
    ///
    /// # Errors
    /// [`FsError::NotSupported`] if the volume has no ACLs, [`FsError::Perm`] if the user is not
    /// the owner, [`FsError::Access`] for a default ACL of what is no directory.
    pub fn set_acl(&self, path: impl AsRef<[u8]>, acl: Acl, rule: Option<&AclRule>) -> Result<()> {
        self.run(OpKind::SetXattr, path.as_ref(), |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            self.put_acl(interrupt, (ino, &attr), acl, rule).map_err(|error| match error {
                FsError::NotImplemented => FsError::NotSupported,
                error => error,
            })
        })
    }

    fn put_acl(
        &self,
        interrupt: &Interrupt,
        (ino, attr): (Ino, &Attr),
        acl: Acl,
        rule: Option<&AclRule>,
    ) -> sluice_types::FsResult<()> {
        let Some(rule) = rule else {
            return self.vfs().removexattr(self.caller(), interrupt, ino, acl.name());
        };
        if acl == Acl::Default && !attr.is_dir() {
            return Err(FsError::Access);
        }
        let value = rule.to_xattr();
        self.vfs().setxattr(self.caller(), interrupt, ino, (acl.name(), &value), XattrMode::Any)
    }
}
