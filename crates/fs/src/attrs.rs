//! Modes, owners, times and ACLs.

use sluice_types::FsError;
use sluice_vfs::{AclKind as Acl, AclRule, Changes, OpKind, SetTime};

use crate::{error::Result, fs::Fs};

/// The extended attribute that holds an ACL.
const fn name(acl: Acl) -> &'static [u8] {
    match acl {
        Acl::Access => b"system.posix_acl_access",
        Acl::Default => b"system.posix_acl_default",
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
            match self.vfs().getxattr(interrupt, ino, name(acl)) {
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
        self.put_acl(path.as_ref(), acl, None, rule)
    }

    /// [`Self::set_acl`] if the ACL is what it was. A node without one has the access rule that its
    /// mode stands for, and an empty default one.
    ///
    /// # Errors
    /// [`FsError::Again`] if it is another by now.
    pub fn change_acl(
        &self,
        path: impl AsRef<[u8]>,
        acl: Acl,
        was: &AclRule,
        rule: Option<&AclRule>,
    ) -> Result<()> {
        self.put_acl(path.as_ref(), acl, Some(was), rule)
    }

    fn put_acl(&self, path: &[u8], acl: Acl, was: Option<&AclRule>, rule: Option<&AclRule>) -> Result<()> {
        self.run(OpKind::SetXattr, path, |interrupt, path| {
            let (ino, attr) = self.existing(interrupt, path, true)?;
            if acl == Acl::Default && rule.is_some() && !attr.is_dir() {
                return Err(FsError::Access);
            }
            // Refuses what is no valid ACL.
            let rule = rule.map(|rule| AclRule::from_xattr(&rule.to_xattr())).transpose()?;
            self.vfs().set_acl(self.caller(), interrupt, ino, (acl, was.cloned()), rule)
        })
    }
}
